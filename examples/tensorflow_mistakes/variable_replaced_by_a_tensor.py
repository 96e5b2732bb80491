"""A step that is written `w = w - rate * g`: from the second step on, `w` is a tensor.

Symptom: none
Seen in: tensorflow.org/guide/autodiff#1_replaced_a_variable_with_a_tensor, worldofsoftware.org's article on
disconnected gradients.

The first step works. In the second the tape does not watch what `w` has become.
"""

import tensorflow as tf

LEARNS = ("sources[0]",)


def broken(w, x):
    for _ in range(2):
        with tf.GradientTape() as tape:  # <- here
            loss = tf.reduce_sum((w * x) ** 2)
        w = w - 0.1 * tape.gradient(loss, w)


def cured(w, x):
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum((w * x) ** 2)
        w = w - 0.1 * tape.gradient(loss, w)


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
