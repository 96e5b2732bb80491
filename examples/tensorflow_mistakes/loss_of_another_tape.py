"""Two tapes, and the loss of one given to the other.

Symptom: none
Seen in: tensorflow/tensorflow #37141 (three tapes in a Wasserstein autoencoder), #31265.

In a GAN's step there are two tapes and two losses. This one was opened after its loss.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, y):
    with tf.GradientTape():
        first = tf.reduce_mean((model(x) - y) ** 2)  # <- here
    with tf.GradientTape() as tape:
        second = tf.reduce_mean(tf.abs(model(x) - y))
    assert second.shape == first.shape
    return tape.gradient(first, model.trainable_variables)


def cured(model, x, y):
    with tf.GradientTape() as tape:
        first = tf.reduce_mean((model(x) - y) ** 2)
    return tape.gradient(first, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), tf.zeros([4, 1])
