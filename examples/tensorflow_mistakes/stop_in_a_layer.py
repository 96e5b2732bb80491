"""A layer whose `call` stops the gradient of what it takes.

Symptom: none
Seen in: tensorflow/tensorflow #54568 (a memory layer), remigenet/TKAT #8 (a kernel of a layer without
gradient).

The layer's own weights learn; all that is before it does not.
"""

import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


class Memory(tf.keras.layers.Layer):
    def __init__(self, stops, **kwargs):
        super().__init__(**kwargs)
        self.stops, self.read = stops, tf.keras.layers.Dense(3, name="read")

    def call(self, x):
        if self.stops:
            x = tf.stop_gradient(x)  # <- here
        return self.read(x)


def broken(encoder, head, x, y):
    return step(encoder, Memory(True, name="memory"), head, x, y)


def cured(encoder, head, x, y):
    return step(encoder, Memory(False, name="memory"), head, x, y)


def step(encoder, memory, head, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((head(memory(encoder(x))) - y) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + head.trainable_variables)


def example():
    encoder = tf.keras.layers.Dense(3, name="encoder")
    return encoder, tf.keras.layers.Dense(1, name="head"), tf.ones([4, 2]), tf.zeros([4, 1])
