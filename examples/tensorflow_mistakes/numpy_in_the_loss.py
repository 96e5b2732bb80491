"""A prediction that goes through `.numpy()` in the loss.

Symptom: none
Seen in: tensorflow/tensorflow #50111 ("I converted the tensor into a numpy array when passing it to my loss
function"), #36596 ("It is imperative that you don't convert them to numpy arrays").

What comes back from NumPy is a constant.
"""

import numpy as np
import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, y):
    with tf.GradientTape() as tape:
        error = np.abs(model(x).numpy() - y)  # <- here
        loss = tf.reduce_mean(tf.constant(error))
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, y):
    with tf.GradientTape() as tape:
        error = tf.abs(model(x) - y)
        loss = tf.reduce_mean(error)
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), np.zeros([4, 1], np.float32)
