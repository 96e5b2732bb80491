"""A loss that is computed behind the `with` block: the tape has been closed by then.

Symptom: none
Seen in: tensorflow/tensorflow #27660 ("it's a scoping problem"), #26404 (the loss stands one level too far to
the left).

One level of indentation decides whether the tape hears of the loss.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, y):
    with tf.GradientTape() as tape:
        prediction = model(x)
    loss = tf.reduce_mean((prediction - y) ** 2)  # <- here
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, y):
    with tf.GradientTape() as tape:
        prediction = model(x)
        loss = tf.reduce_mean((prediction - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), tf.zeros([4, 1])
