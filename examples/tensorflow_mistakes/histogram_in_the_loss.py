"""A loss on a histogram of the predictions.

Symptom: none
Seen in: tensorflow/tensorflow #58614 (counts in the loss), #50111.

To count is not differentiable. Soft bins, such as a Gaussian around each centre, are.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x):
    with tf.GradientTape() as tape:
        counts = tf.histogram_fixed_width(model(x), [-1.0, 1.0], nbins=4)  # <- here
        loss = tf.reduce_sum((tf.cast(counts, tf.float32) - 1.0) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x):
    with tf.GradientTape() as tape:
        centres = tf.linspace(-0.75, 0.75, 4)
        counts = tf.reduce_sum(tf.exp(-10.0 * (model(x) - centres) ** 2), axis=0)
        loss = tf.reduce_sum((counts - 1.0) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2])
