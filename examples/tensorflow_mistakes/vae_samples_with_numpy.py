"""A variational autoencoder that draws its code with NumPy.

Symptom: none
Seen in: tensorflow/tensorflow #36596, #37141 (autoencoders without gradients).

`np.random.normal(mean, deviation)` draws from the right distribution; the mean and the deviation do not hear
of it. Noise that is scaled and shifted is the same draw, and has a gradient.
"""

import numpy as np
import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


def broken(encoder, decoder, x):
    with tf.GradientTape() as tape:
        mean, logarithm = tf.split(encoder(x), 2, axis=-1)
        code = np.random.normal(mean.numpy(), np.exp(logarithm.numpy()))  # <- here
        loss = tf.reduce_mean((decoder(code.astype(np.float32)) - x) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + decoder.trainable_variables)


def cured(encoder, decoder, x):
    with tf.GradientTape() as tape:
        mean, logarithm = tf.split(encoder(x), 2, axis=-1)
        code = mean + tf.exp(logarithm) * tf.random.normal(tf.shape(mean))
        loss = tf.reduce_mean((decoder(code) - x) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + decoder.trainable_variables)


def example():
    encoder, decoder = tf.keras.layers.Dense(4, name="encoder"), tf.keras.layers.Dense(3, name="decoder")
    return encoder, decoder, tf.ones([5, 3])
