"""A backbone that is frozen for the first epochs, and not released after them.

Symptom: none
Seen in: keras-team/keras #11157, and keras.io/guides/transfer_learning, whose second half is to set
`trainable` back.

`model.trainable_variables` leaves out the weights of a frozen layer, so that no gradient is None and nothing
warns. Asked about the whole model, the report tells what is frozen.
"""

import tensorflow as tf

LEARNS = ("backbone/kernel", "backbone/bias")


def broken(model, x, y):
    model.get_layer("backbone").trainable = False  # <- here
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    tape.gradient(loss, model.trainable_variables)
    return loss, model


def cured(model, x, y):
    model.get_layer("backbone").trainable = True
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    tape.gradient(loss, model.trainable_variables)
    return loss, model


def example():
    inputs = tf.keras.Input([2])
    features = tf.keras.layers.Dense(3, name="backbone")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="head")(features))
    return model, tf.ones([4, 2]), tf.zeros([4, 1])
