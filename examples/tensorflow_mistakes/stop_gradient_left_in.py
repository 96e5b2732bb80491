"""A `tf.stop_gradient` that was left in: the encoder was frozen once, while the head was warmed up.

Symptom: none
Seen in: keras-team/keras #11157 (a pipeline whose first half gets None), tensorflow/tensorflow #42984 (a list
of weights, and None for each of them).

The head learns and the loss goes down, so nobody looks.
"""

import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


def broken(encoder, head, x, y):
    with tf.GradientTape() as tape:
        features = tf.stop_gradient(encoder(x))  # <- here
        loss = tf.reduce_mean((head(features) - y) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + head.trainable_variables)


def cured(encoder, head, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((head(encoder(x)) - y) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + head.trainable_variables)


def example():
    encoder = tf.keras.layers.Dense(3, activation="tanh", name="encoder")
    return encoder, tf.keras.layers.Dense(1, name="head"), tf.ones([4, 2]), tf.zeros([4, 1])
