"""A stop in a function that differentiates by `tf.gradients`.

Symptom: none
Seen in: tensorflow/tensorflow #31719 and #33135 (from `K.gradients` to TensorFlow 2), #55262.

Old code calls `tf.gradients` inside of a `tf.function`; its None is the same.
"""

import tensorflow as tf

LEARNS = ("x",)


def broken(x, w):
    @tf.function
    def sensitivity(x):
        h = tf.stop_gradient(tf.tanh(x * w))  # <- here
        (found,) = tf.gradients(tf.reduce_sum(h * w), [x])
        return tf.zeros([]) if found is None else found

    return sensitivity(x)


def cured(x, w):
    @tf.function
    def sensitivity(x):
        h = tf.tanh(x * w)
        (found,) = tf.gradients(tf.reduce_sum(h * w), [x])
        return tf.zeros([]) if found is None else found

    return sensitivity(x)


def example():
    return tf.ones([2]), tf.Variable([1.0, 2.0], name="w")
