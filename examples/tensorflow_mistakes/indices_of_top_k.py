"""Experts that are chosen by `tf.math.top_k`, and mixed evenly: the router never learns.

Symptom: none
Seen in: tensorflow/tensorflow #288, tensorflow/tfjs #1601.

The indices carry no gradient; the values that stand beside them do, as weights of the mixture.
"""

import tensorflow as tf

LEARNS = ("router/kernel", "router/bias")


def broken(router, experts, x):
    with tf.GradientTape() as tape:
        _, chosen = tf.math.top_k(router(x), k=2)  # <- here
        mixed = tf.reduce_mean(tf.gather(experts, chosen), axis=1)
        loss = tf.reduce_mean(mixed**2)
    return tape.gradient(loss, [*router.trainable_variables, experts])


def cured(router, experts, x):
    with tf.GradientTape() as tape:
        scores, chosen = tf.math.top_k(router(x), k=2)
        weights = tf.nn.softmax(scores)[:, :, None]
        mixed = tf.reduce_sum(weights * tf.gather(experts, chosen), axis=1)
        loss = tf.reduce_mean(mixed**2)
    return tape.gradient(loss, [*router.trainable_variables, experts])


def example():
    experts = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]), name="experts")
    return tf.keras.layers.Dense(4, name="router"), experts, tf.ones([5, 2])
