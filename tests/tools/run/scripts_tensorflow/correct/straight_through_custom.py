# A sign with a straight-through gradient by tf.custom_gradient.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)


@tf.custom_gradient
def binarize(x):
    def grad(upstream):
        return upstream * tf.cast(tf.abs(x) <= 1.0, upstream.dtype)

    return tf.sign(x), grad


class Binary(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")

    def call(self, x):
        return tf.matmul(x, binarize(tf.convert_to_tensor(self.kernel)))


model = keras.Sequential([keras.Input((6,)), Binary(), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.random.random((64, 6)).astype("float32"), np.random.random((64, 1)), epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
