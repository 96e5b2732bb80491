"""A training step as a `tf.function`, whose loss is computed behind the tape.

Symptom: none
Seen in: tensorflow/tensorflow #28836 ("if I removed the `@tf.function` above the `train_step`"), #46487.

In a graph it is as it is eagerly: the tape is closed where its `with` ends.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, y):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            prediction = model(x)
        loss = tf.reduce_mean((prediction - y) ** 2)  # <- here
        return [g for g in tape.gradient(loss, model.trainable_variables) if g is not None]

    return train_step(x, y)


def cured(model, x, y):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            prediction = model(x)
            loss = tf.reduce_mean((prediction - y) ** 2)
        return [g for g in tape.gradient(loss, model.trainable_variables) if g is not None]

    return train_step(x, y)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), tf.zeros([4, 1])
