"""A saliency map of an image that no tape watches.

Symptom: none
Seen in: tensorflow/tensorflow #29942 ("returns None when sources is a tensor"), #56968, #50661,
fchollet/deep-learning-with-python-notebooks PR #284.

A tape watches variables that are read. A tensor must be named to it.
"""

import tensorflow as tf

LEARNS = ("image",)


def broken(model, image):
    with tf.GradientTape() as tape:  # <- here
        score = tf.reduce_max(model(image), axis=-1)
    return tape.gradient(score, image)


def cured(model, image):
    with tf.GradientTape() as tape:
        tape.watch(image)
        score = tf.reduce_max(model(image), axis=-1)
    return tape.gradient(score, image)


def example():
    return tf.keras.layers.Dense(3, name="model"), tf.ones([1, 5])
