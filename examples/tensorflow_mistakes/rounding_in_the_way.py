"""Weights that are rounded to a grid: `tf.round` passes nothing.

Symptom: none
Seen in: tensorflow/tensorflow #5888, keras-team/keras #5521, #9396, tensorpack/tensorpack #53.

The straight-through estimator rounds in the forward pass, and passes the gradient by.
"""

import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as tape:
        rounded = tf.round(w / 0.1) * 0.1  # <- here
        loss = tf.reduce_sum((rounded * x) ** 2)
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        rounded = w + tf.stop_gradient(tf.round(w / 0.1) * 0.1 - w)
        loss = tf.reduce_sum((rounded * x) ** 2)
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([0.33, 0.77], name="w"), tf.ones([2])
