"""Layers that are computed under `tape.stop_recording()`: the tape knows nothing of them.

Symptom: none
Seen in: tensorflow/tensorflow #24849 (None for what a tape does not know), and the guide at
tensorflow.org/guide/autodiff#stop_recording, from where the pattern is copied.

It is meant for what is measured on the way: a norm that is printed, an accuracy.
"""

import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


def broken(encoder, head, x, y):
    with tf.GradientTape() as tape:
        with tape.stop_recording():
            features = encoder(x)  # <- here
            tf.debugging.check_numerics(features, "features")
        loss = tf.reduce_mean((head(features) - y) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + head.trainable_variables)


def cured(encoder, head, x, y):
    with tf.GradientTape() as tape:
        features = encoder(x)
        with tape.stop_recording():
            tf.debugging.check_numerics(features, "features")
        loss = tf.reduce_mean((head(features) - y) ** 2)
    return tape.gradient(loss, encoder.trainable_variables + head.trainable_variables)


def example():
    encoder = tf.keras.layers.Dense(3, name="encoder")
    return encoder, tf.keras.layers.Dense(1, name="head"), tf.ones([4, 2]), tf.zeros([4, 1])
