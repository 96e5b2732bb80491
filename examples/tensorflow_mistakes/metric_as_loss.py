"""A metric of Keras' in the loss.

Symptom: none
Seen in: tensorflow/addons #825 (F1 of tfa.metrics as a loss), tensorflow/tensorflow #29799.

A metric adds up what it has seen in variables of its own, and returns what these hold.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, y):
    metric = tf.keras.metrics.MeanSquaredError()
    with tf.GradientTape() as tape:
        metric.update_state(y, model(x))  # <- here
        loss = metric.result()
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, y):
    loss_of = tf.keras.losses.MeanSquaredError()
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x))
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), tf.zeros([4, 1])
