"""A gradient penalty whose inner gradient is taken behind the outer tape.

Symptom: none
Seen in: tensorflow/tensorflow #41510 ("the first gradient operation is not in the tape"), #37141.

For a gradient of a gradient, the first one must be computed while the outer tape records.
"""

import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        inner.watch(x)
        score = tf.reduce_sum(tf.tanh(x * w))
    slope = inner.gradient(score, x)
    penalty = tf.reduce_sum(slope**2)  # <- here
    return outer.gradient(penalty, [w])


def cured(w, x):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(x)
            score = tf.reduce_sum(tf.tanh(x * w))
        slope = inner.gradient(score, x)
        penalty = tf.reduce_sum(slope**2)
    return outer.gradient(penalty, [w])


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
