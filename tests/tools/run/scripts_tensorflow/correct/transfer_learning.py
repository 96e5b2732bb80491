# A frozen base with a new head, then fine tuning with a low rate.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)


def make_base():
    inputs = keras.Input((12, 12, 3))
    x = layers.Conv2D(8, 3, strides=2)(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.Conv2D(8, 3)(x)
    return keras.Model(inputs, layers.BatchNormalization()(x), name="base")


x = np.random.random((64, 12, 12, 3)).astype("float32")
y = (x.mean((1, 2, 3)) > 0.5).astype("float32")[:, None]
base = make_base()
base.trainable = False
inputs = keras.Input((12, 12, 3))
h = base(inputs, training=False)
h = layers.GlobalAveragePooling2D()(h)
h = layers.Dropout(0.2)(h)
model = keras.Model(inputs, layers.Dense(1)(h))
model.compile(keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in base.weights)).hexdigest())
base.trainable = True
model.compile(keras.optimizers.Adam(1e-5), keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
