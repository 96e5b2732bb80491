"""An integer that is watched: `tf.constant(3)` is an int32.

Symptom: none
Seen in: tensorflow/tensorflow #27378 ("Your variables are of integer types because you initialize them with
integers"), and tensorflow.org/guide/autodiff#3_took_gradients_through_an_integer_or_string.

TensorFlow warns that the dtype of a watched tensor must be floating, once, and goes on.
"""

import tensorflow as tf

LEARNS = ("x",)


def broken():
    x = tf.constant(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.cast(x * x, tf.float32)  # <- here
    return tape.gradient(y, x)


def cured():
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    return tape.gradient(y, x)


def example():
    return ()
