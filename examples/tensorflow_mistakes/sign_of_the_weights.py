"""Binary weights by `tf.sign`: a gradient that is zero everywhere.

Symptom: none
Seen in: tensorpack/tensorpack #53 and #62, larq/larq PR #1, whose `ste_sign` is the cure.

TensorFlow gives zeros here, not None, so that the optimizer steps, and nothing moves.
"""

import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((tf.sign(w) * x - 0.5) ** 2)  # <- here
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        binary = tf.tanh(w) + tf.stop_gradient(tf.sign(w) - tf.tanh(w))
        loss = tf.reduce_sum((binary * x - 0.5) ** 2)
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([0.33, -0.77], name="w"), tf.ones([2])
