"""Words as floats that are cast for an embedding: the encoder before it gets no gradient.

Symptom: none
Seen in: keras-team/keras #11157 (an embedding behind an argmax), kevinzakka/spatial-transformer-network #19.

The embedding itself learns, by a sparse gradient of the rows that are used. A mixture of its rows has a
gradient for both.
"""

import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


def broken(encoder, embedding, x):
    with tf.GradientTape() as tape:
        words = tf.cast(tf.nn.relu(encoder(x)), tf.int32)  # <- here
        loss = tf.reduce_mean(embedding(words) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + embedding.trainable_variables)


def cured(encoder, embedding, x):
    with tf.GradientTape() as tape:
        rows = embedding(tf.range(3))
        loss = tf.reduce_mean((tf.nn.softmax(encoder(x)) @ rows) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + embedding.trainable_variables)


def example():
    return (
        tf.keras.layers.Dense(3, name="encoder"),
        tf.keras.layers.Embedding(3, 2, name="words"),
        tf.ones([4, 2]),
    )
