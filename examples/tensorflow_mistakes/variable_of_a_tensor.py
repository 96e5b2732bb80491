"""A tensor that is wrapped as a `tf.Variable`, to be differentiated.

Symptom: none
Seen in: tensorflow/tensorflow #47387 ("I tried manually creating a tf.Variable() with trainable=True"),
#29942.

The new variable gets a gradient. What its first value was computed from does not.
"""

import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


def broken(encoder, x):
    with tf.GradientTape() as tape:
        code = tf.Variable(encoder(x))  # <- here
        loss = tf.reduce_mean(code**2)
    return tape.gradient(loss, encoder.trainable_variables)


def cured(encoder, x):
    with tf.GradientTape() as tape:
        code = encoder(x)
        loss = tf.reduce_mean(code**2)
    return tape.gradient(loss, encoder.trainable_variables)


def example():
    return tf.keras.layers.Dense(2, name="encoder"), tf.ones([1, 3])
