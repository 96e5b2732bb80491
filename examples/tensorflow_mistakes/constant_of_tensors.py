"""A vector that is put together by `tf.constant`.

Symptom: none
Seen in: tensorflow/tensorflow #56968 (`tf.constant` within the tape), #50661.

`tf.constant` copies the values of the tensors in the list. `tf.stack` takes the tensors.
"""

import tensorflow as tf

LEARNS = ("angle",)


def broken(angle, x):
    with tf.GradientTape() as tape:
        direction = tf.constant([tf.cos(angle).numpy(), tf.sin(angle).numpy()])  # <- here
        loss = tf.reduce_sum(direction * x)
    return tape.gradient(loss, [angle])


def cured(angle, x):
    with tf.GradientTape() as tape:
        direction = tf.stack([tf.cos(angle), tf.sin(angle)])
        loss = tf.reduce_sum(direction * x)
    return tape.gradient(loss, [angle])


def example():
    return tf.Variable(0.3, name="angle"), tf.ones([2])
