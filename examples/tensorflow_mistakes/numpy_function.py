"""A metric of SciPy's as a loss, by `tf.numpy_function`.

Symptom: none
Seen in: tensorflow/tensorflow #35713 (ranks of scipy.stats by `numpy_function`), #47288.

`tf.numpy_function` has no gradient. `tf.py_function` has, as long as the function itself is written with
TensorFlow.
"""

import numpy as np
import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as tape:
        logistic = tf.numpy_function(lambda z: 1.0 / (1.0 + np.exp(-z)), [w * x], tf.float32)  # <- here
        loss = tf.reduce_sum(logistic)
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        logistic = tf.py_function(lambda z: 1.0 / (1.0 + tf.exp(-z)), [w * x], tf.float32)
        loss = tf.reduce_sum(logistic)
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
