"""A `tf.custom_gradient` that returns None for an operand that matters.

Symptom: none
Seen in: tensorflow/tensorflow #31945, #43916, #25694 (a layer's custom gradient, and None for what is before
it).

The slope of the activation is learned, and its place in the list of gradients was filled with None.
"""

import tensorflow as tf

LEARNS = ("slope",)


@tf.custom_gradient
def forgetful(x, slope):
    def grad(upstream):
        return upstream * slope, None

    return x * slope, grad


@tf.custom_gradient
def complete(x, slope):
    def grad(upstream):
        return upstream * slope, tf.reduce_sum(upstream * x)

    return x * slope, grad


def broken(w, slope, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(forgetful(w * x, tf.exp(slope)))  # <- here
    return tape.gradient(loss, [w, slope])


def cured(w, slope, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(complete(w * x, tf.exp(slope)))
    return tape.gradient(loss, [w, slope])


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.Variable(0.1, name="slope"), tf.ones([2])
