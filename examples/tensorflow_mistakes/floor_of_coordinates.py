"""Coordinates that are floored before a smooth function of them.

Symptom: none
Seen in: tensorflow/models #295 (a spatial transformer), keras-team/keras #5521.

The fraction that `tf.floor` takes away is what carries the gradient.
"""

import tensorflow as tf

LEARNS = ("where",)


def broken(where):
    with tf.GradientTape() as tape:
        cell = tf.floor(where)  # <- here
        loss = tf.reduce_sum(tf.sin(cell))
    return tape.gradient(loss, [where])


def cured(where):
    with tf.GradientTape() as tape:
        cell = tf.floor(where)
        between = where - cell
        loss = tf.reduce_sum((1.0 - between) * tf.sin(cell) + between * tf.sin(cell + 1.0))
    return tape.gradient(loss, [where])


def example():
    return (tf.Variable([0.3, 1.7], name="where"),)
