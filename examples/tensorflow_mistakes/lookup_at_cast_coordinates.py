"""A learned position that is cast to an integer, to look up what is there.

Symptom: none
Seen in: kevinzakka/spatial-transformer-network #19, tensorflow/tensorflow #24216, #27526.

`tf.gather` has a gradient for the table, and none for the indices.
"""

import tensorflow as tf

LEARNS = ("where",)


def broken(where, table):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, tf.cast(where, tf.int32)) ** 2)  # <- here
    return tape.gradient(loss, [where, table])


def cured(where, table):
    with tf.GradientTape() as tape:
        near = tf.nn.softmax(-((where[:, None] - tf.range(5.0)) ** 2))
        loss = tf.reduce_sum((near @ table) ** 2)
    return tape.gradient(loss, [where, table])


def example():
    table = tf.Variable(tf.reshape(tf.range(10.0), [5, 2]), name="table")
    return tf.Variable([0.7, 2.3], name="where"), table
