"""A function of NumPy's on a tensor: it looks like TensorFlow's and gives an array.

Symptom: none
Seen in: tensorflow.org/guide/autodiff#2_did_calculations_outside_of_tensorflow, tensorflow/tensorflow #50111.

`np.mean` takes a tensor without complaint, and the next line of TensorFlow's takes the array.
"""

import numpy as np
import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as tape:
        loss = tf.sqrt(np.mean((w * x) ** 2, axis=0))  # <- here
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        loss = tf.sqrt(tf.reduce_mean((w * x) ** 2, axis=0))
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
