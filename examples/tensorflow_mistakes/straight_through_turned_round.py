"""A straight-through estimator that is turned round: what is stopped is the part with the gradient.

Symptom: none
Seen in: Justin-Tan/generative-compression #27 (how the stop is to stand), keras-team/keras #9396 ("y = g(x) +
tf.stop_gradient(f(x) - g(x))").

What is left with a path is the rounding, which passes nothing, and the value is not even rounded.
"""

import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as tape:
        hard = tf.round(w)
        binary = hard + tf.stop_gradient(w - hard)  # <- here
        loss = tf.reduce_sum((binary * x - 0.5) ** 2)
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        hard = tf.round(w)
        binary = w + tf.stop_gradient(hard - w)
        loss = tf.reduce_sum((binary * x - 0.5) ** 2)
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([0.3, 0.7], name="w"), tf.ones([2])
