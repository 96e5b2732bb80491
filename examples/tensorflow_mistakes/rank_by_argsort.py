"""A ranking loss on the ranks, by `tf.argsort`.

Symptom: none
Seen in: tensorflow/tensorflow #35713 (Spearman's correlation as a loss), #288 ("are those two functions
differentiable though?"), #25444.

Positions are integers. Sorted values have gradients, and so have differences between pairs.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, ranks):
    with tf.GradientTape() as tape:
        scores = model(x)[:, 0]
        found = tf.argsort(tf.argsort(scores))  # <- here
        loss = tf.reduce_mean((tf.cast(found, tf.float32) - ranks) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, ranks):
    with tf.GradientTape() as tape:
        scores = model(x)[:, 0]
        loss = tf.reduce_mean((tf.sort(scores) - tf.sort(ranks)) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def example():
    x = tf.reshape(tf.range(8.0), [4, 2])
    return tf.keras.layers.Dense(1, name="model"), x, tf.constant([3.0, 1.0, 0.0, 2.0])
