"""`tf.map_fn` with a result of integers in the middle.

Symptom: none
Seen in: tensorflow/tensorflow #28836, #25386 ("this grad function would silently return the wrong answer").

The signature says int32, and the loop returns that.
"""

import tensorflow as tf

LEARNS = ("w",)


def broken(w, x):
    with tf.GradientTape() as tape:
        levels = tf.map_fn(
            lambda row: tf.cast(tf.reduce_sum(row * w), tf.int32),  # <- here
            x,
            fn_output_signature=tf.int32,
        )
        loss = tf.reduce_sum(tf.cast(levels, tf.float32) ** 2)
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        levels = tf.map_fn(lambda row: tf.reduce_sum(row * w), x)
        loss = tf.reduce_sum(levels**2)
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([3, 2])
