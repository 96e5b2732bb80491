# A convolutional autoencoder that removes noise.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
inputs = keras.Input((8, 8, 1))
h = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
h = layers.MaxPooling2D(2, padding="same")(h)
h = layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(h)
autoencoder = keras.Model(inputs, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(h))
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
x = np.random.random((48, 8, 8, 1)).astype("float32")
noisy = np.clip(x + 0.4 * np.random.normal(size=x.shape), 0, 1).astype("float32")
autoencoder.fit(noisy, x, epochs=2, batch_size=16, verbose=0, shuffle=True)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in autoencoder.weights)).hexdigest())
