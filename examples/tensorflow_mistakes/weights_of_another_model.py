"""The weights of another model: a copy was made for evaluation, and its weights are given to the tape.

Symptom: none
Seen in: tensorflow/tensorflow #37414, #31265 (generator and discriminator), #1511 ("there is no path between
any of the variables and the loss").

Each weight gets None, and the optimizer says that no gradients are provided for any variable.
"""

import tensorflow as tf

LEARNS = ("average/kernel", "average/bias")


def broken(model, average, x, y):
    average(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return tape.gradient(loss, average.trainable_variables)  # <- here


def cured(model, average, x, y):
    average(x)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((average(x) - y) ** 2)
    return tape.gradient(loss, average.trainable_variables)


def example():
    model, average = tf.keras.layers.Dense(1, name="model"), tf.keras.layers.Dense(1, name="average")
    return model, average, tf.ones([4, 2]), tf.zeros([4, 1])
