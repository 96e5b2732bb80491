# A convolutional network with augmentation and batch normalisation.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
x = np.random.random((64, 12, 12, 3)).astype("float32")
y = np.random.randint(0, 3, 64)
model = keras.Sequential([
    keras.Input((12, 12, 3)),
    layers.RandomFlip("horizontal", seed=1),
    layers.Rescaling(2.0, offset=-1.0),
    layers.Conv2D(8, 3, padding="same", use_bias=False), layers.BatchNormalization(), layers.Activation("relu"),
    layers.MaxPooling2D(),
    layers.SeparableConv2D(8, 3, activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(3, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
print(model.predict(x[:4], verbose=0))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
