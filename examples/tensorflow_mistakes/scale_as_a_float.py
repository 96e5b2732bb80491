"""A scale that is to be learned, and is a float before it is used.

Symptom: inert
Seen in: tensorflow/tensorflow #58614 ("Loss function return a float value").

`float(...)` is written to log the number, and the number goes into the loss. The model learns, and makes up
for the scale that stays as it is.
"""

import tensorflow as tf

LEARNS = ("log_scale",)


def broken(log_scale, w, x, y):
    with tf.GradientTape() as tape:
        scale = float(tf.exp(log_scale))  # <- here
        loss = tf.reduce_mean((scale * tf.linalg.matvec(x, w) - y) ** 2)
    return tape.gradient(loss, [log_scale, w])


def cured(log_scale, w, x, y):
    with tf.GradientTape() as tape:
        scale = tf.exp(log_scale)
        loss = tf.reduce_mean((scale * tf.linalg.matvec(x, w) - y) ** 2)
    return tape.gradient(loss, [log_scale, w])


def example():
    w = tf.Variable([1.0, 2.0], name="w")
    return tf.Variable(0.1, name="log_scale"), w, tf.ones([4, 2]), tf.zeros([4])
