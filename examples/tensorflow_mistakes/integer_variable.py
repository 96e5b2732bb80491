"""A variable of integers: `tf.Variable(3)` is an int32.

Symptom: none
Seen in: tensorflow/tensorflow #27378, #25386.

Its dtype is that of the number it is made with.
"""

import tensorflow as tf

LEARNS = ("degree",)


def broken(x):
    degree = tf.Variable(3, name="degree")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(degree, tf.float32) * x)  # <- here
    return tape.gradient(loss, [degree])


def cured(x):
    degree = tf.Variable(3.0, name="degree")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(degree * x)
    return tape.gradient(loss, [degree])


def example():
    return (tf.ones([2]),)
