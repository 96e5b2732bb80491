"""Two networks with the one-hot code of an argmax between them.

Symptom: none
Seen in: keras-team/keras #11157 (`K.argmax` between an encoder and a decoder), tensorflow/tfjs-core PR #1218.

The code of the class is a float again, and no gradient comes through it. A softmax at a low temperature is
nearly one-hot, and has one.
"""

import tensorflow as tf

LEARNS = ("writer/kernel", "writer/bias")


def broken(writer, reader, x, y):
    with tf.GradientTape() as tape:
        word = tf.one_hot(tf.argmax(writer(x), axis=-1), 5)  # <- here
        loss = tf.reduce_mean((reader(word) - y) ** 2)
    return tape.gradient(loss, writer.trainable_variables + reader.trainable_variables)


def cured(writer, reader, x, y):
    with tf.GradientTape() as tape:
        word = tf.nn.softmax(writer(x) / 0.1)
        loss = tf.reduce_mean((reader(word) - y) ** 2)
    return tape.gradient(loss, writer.trainable_variables + reader.trainable_variables)


def example():
    writer, reader = tf.keras.layers.Dense(5, name="writer"), tf.keras.layers.Dense(1, name="reader")
    return writer, reader, tf.ones([4, 2]), tf.zeros([4, 1])
