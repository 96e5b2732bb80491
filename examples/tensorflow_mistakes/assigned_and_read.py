"""A generated weight that is assigned to a variable, which is then read.

Symptom: none
Seen in: tensorflow/tensorflow #54532 ("returns None when assign is used in a model"), #54568, #23621, #17735.

A variable holds the numbers that are assigned to it, not what they were computed from.
"""

import tensorflow as tf

LEARNS = ("hyper/kernel", "hyper/bias")


def broken(hyper, code, x):
    w = tf.Variable(tf.zeros([2, 1]), name="w")
    with tf.GradientTape() as tape:
        w.assign(tf.reshape(hyper(code), [2, 1]))  # <- here
        loss = tf.reduce_mean((x @ w) ** 2)
    return tape.gradient(loss, hyper.trainable_variables)


def cured(hyper, code, x):
    with tf.GradientTape() as tape:
        w = tf.reshape(hyper(code), [2, 1])
        loss = tf.reduce_mean((x @ w) ** 2)
    return tape.gradient(loss, hyper.trainable_variables)


def example():
    return tf.keras.layers.Dense(2, name="hyper"), tf.ones([1, 3]), tf.ones([4, 2])
