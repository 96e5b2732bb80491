# A normalising flow of coupling layers.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)


def coupling():
    inputs = keras.Input((2,))
    s = layers.Dense(2, activation="tanh")(layers.Dense(8, "relu")(inputs))
    t = layers.Dense(2)(layers.Dense(8, "relu")(inputs))
    return keras.Model(inputs, [s, t])


class RealNVP(keras.Model):
    def __init__(self, n):
        super().__init__()
        self.masks = [np.array([[0, 1], [1, 0]][i % 2], "float32") for i in range(n)]
        self.layers_list = [coupling() for _ in range(n)]

    def call(self, x):
        log_det = 0.0
        for mask, layer in zip(self.masks[::-1], self.layers_list[::-1]):
            masked = x * mask
            s, t = layer(masked)
            s, t = s * (1 - mask), t * (1 - mask)
            x = (1 - mask) * (x - t) * tf.exp(-s) + masked
            log_det -= tf.reduce_sum(s, [1])
        return x, log_det

    def log_loss(self, x):
        y, logdet = self(x)
        log_likelihood = -0.5 * tf.reduce_sum(y**2, 1) - np.log(2 * np.pi).astype("float32") + logdet
        return -tf.reduce_mean(log_likelihood)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.log_loss(data)
        g = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(g, self.trainable_variables))
        return {"loss": loss}


model = RealNVP(4)
model.compile(optimizer=keras.optimizers.Adam(1e-3))
model.fit(np.random.normal(size=(64, 2)).astype("float32"), batch_size=16, epochs=2, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
