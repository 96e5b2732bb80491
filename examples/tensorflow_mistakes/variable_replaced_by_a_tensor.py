"""A step that is written `w = w - rate * gradient`: from the second step on, `w` is a tensor.

Symptom: none
Seen in: tensorflow.org/guide/autodiff#1_replaced_a_variable_with_a_tensor, worldofsoftware.org's article on
disconnected gradients.

The first step works. In the second the tape does not watch what `w` has become.
"""

import tensorflow as tf

LEARNS = ("w",)


def first_step(w, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((w * x) ** 2)
    return w - 0.1 * tape.gradient(loss, w)


def broken(w, x):
    w = first_step(w, x)
    with tf.GradientTape() as tape:  # <- here
        loss = tf.reduce_sum((w * x) ** 2)
    return tape.gradient(loss, w)


def cured(w, x):
    w = first_step(w, x)
    with tf.GradientTape() as tape:
        tape.watch(w)
        loss = tf.reduce_sum((w * x) ** 2)
    return tape.gradient(loss, w)


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
