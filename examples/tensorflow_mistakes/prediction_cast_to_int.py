"""A prediction that is cast to the dtype of its integer labels.

Symptom: none
Seen in: tensorflow/tensorflow #28836, and answers there: labels are to be cast to floats, not predictions to
integers.

TensorFlow complains about two dtypes, and the cast goes to the wrong one of them.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, labels):
    with tf.GradientTape() as tape:
        prediction = tf.cast(model(x), labels.dtype)  # <- here
        loss = tf.reduce_mean(tf.cast((prediction - labels) ** 2, tf.float32))
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, labels):
    with tf.GradientTape() as tape:
        prediction = model(x)
        loss = tf.reduce_mean((prediction - tf.cast(labels, prediction.dtype)) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), tf.constant([[1], [2], [3], [4]])
