"""`tf.numpy_function` inside of a `tf.function`: the error is the same, and the lines are far away.

Symptom: none
Seen in: tensorflow/tensorflow #47288 (a training step by `numpy_function`), #43916.

NumPy cannot be called in a graph, so it is wrapped; with the wrapper goes the gradient.
"""

import numpy as np
import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    @tf.function
    def train_step(x):
        with tf.GradientTape() as tape:
            clipped = tf.numpy_function(lambda z: np.clip(z, 0.0, 3.0), [w * x], tf.float32)  # <- here
            loss = tf.reduce_sum(clipped)
        return tape.gradient(loss, [w])

    return train_step(x)


def cured(w, x):
    @tf.function
    def train_step(x):
        with tf.GradientTape() as tape:
            clipped = tf.py_function(lambda z: tf.clip_by_value(z, 0.0, 3.0), [w * x], tf.float32)
            loss = tf.reduce_sum(clipped)
        return tape.gradient(loss, [w])

    return train_step(x)


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
