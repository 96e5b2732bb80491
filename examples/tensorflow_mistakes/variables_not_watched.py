"""A tape with `watch_accessed_variables=False`, and a variable that nobody names to it.

Symptom: none
Seen in: tensorflow/tensorflow #47387 (watches by hand, and None all the same), and
tensorflow.org/guide/autodiff#controlling_what_the_tape_watches, where it is shown for one of two variables.

It is set to save memory, for one group of weights; a group that is added later is forgotten.
"""

import tensorflow as tf

LEARNS = ("offset",)


def broken(slope, offset, x, y):
    with tf.GradientTape(watch_accessed_variables=False) as tape:  # <- here
        tape.watch(slope)
        loss = tf.reduce_mean((slope * x + offset - y) ** 2)
    return tape.gradient(loss, [slope, offset])


def cured(slope, offset, x, y):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([slope, offset])
        loss = tf.reduce_mean((slope * x + offset - y) ** 2)
    return tape.gradient(loss, [slope, offset])


def example():
    return tf.Variable(1.0, name="slope"), tf.Variable(0.0, name="offset"), tf.ones([4]), tf.zeros([4])
