"""MAML whose inner step is an `assign_sub`: the meta-gradient is that of a constant.

Symptom: inert
Seen in: tensorflow/tensorflow #30234 ("How to calculate gradients for meta learning loop?"), #61199.

The learned learning rate gets None. A step that makes a tensor, and does not write into a variable, keeps the
path.
"""

import tensorflow as tf

LEARNS = ("rate",)


def broken(w, rate, x, y):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_mean((x * w - y) ** 2)
        w.assign_sub(rate * inner.gradient(loss, w))  # <- here
        meta = tf.reduce_mean((x * w - y) ** 2)
    return outer.gradient(meta, [w, rate])


def cured(w, rate, x, y):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_mean((x * w - y) ** 2)
        fast = w - rate * inner.gradient(loss, w)
        meta = tf.reduce_mean((x * fast - y) ** 2)
    return outer.gradient(meta, [w, rate])


def example():
    return tf.Variable(1.0, name="w"), tf.Variable(0.1, name="rate"), tf.ones([4]), tf.zeros([4])
