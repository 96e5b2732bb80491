"""A word that is drawn by `tf.random.categorical`: the writer gets no gradient.

Symptom: none
Seen in: tensorflow/models #5422 (MaskGAN), tensorflow/tensorflow #41528.

A draw is an integer. The Gumbel softmax is a draw that has a gradient.
"""

import tensorflow as tf

LEARNS = ("writer/kernel", "writer/bias")


def broken(writer, words, x):
    with tf.GradientTape() as tape:
        drawn = tf.random.categorical(writer(x), 1)[:, 0]  # <- here
        loss = tf.reduce_mean(tf.gather(words, drawn) ** 2)
    return tape.gradient(loss, [*writer.trainable_variables, words])


def cured(writer, words, x):
    with tf.GradientTape() as tape:
        logits = writer(x)
        gumbel = -tf.math.log(-tf.math.log(tf.random.uniform(tf.shape(logits), 1e-6, 1.0 - 1e-6)))
        drawn = tf.nn.softmax((logits + gumbel) / 0.5)
        loss = tf.reduce_mean((drawn @ words) ** 2)
    return tape.gradient(loss, [*writer.trainable_variables, words])


def example():
    words = tf.Variable(tf.reshape(tf.range(10.0), [5, 2]), name="words")
    return tf.keras.layers.Dense(5, name="writer"), words, tf.ones([4, 2])
