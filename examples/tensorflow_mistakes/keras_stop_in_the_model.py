"""A `keras.ops.stop_gradient` inside of a functional model: what is before it is never trained.

Symptom: none
Seen in: keras-team/keras #11157 (None in the middle of a model), kpe/bert-for-tf2 #46 ("Gradients do not
exist for variables" of a whole encoder).

It was put there for a target network, and the model was copied.
"""

import keras
import tensorflow as tf

LEARNS = ("encoder/kernel", "encoder/bias")


def broken(x, y):
    inputs = keras.Input([2])
    code = keras.layers.Dense(3, name="encoder")(inputs)
    code = keras.ops.stop_gradient(code)
    return step(model_of(inputs, code), x, y)


def cured(x, y):
    inputs = keras.Input([2])
    code = keras.layers.Dense(3, name="encoder")(inputs)
    return step(model_of(inputs, code), x, y)


def model_of(inputs, code):
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(code), name="model")


def step(model, x, y):
    with tf.GradientTape() as tape:
        prediction = model(x)  # <- here
        loss = tf.reduce_mean((prediction - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.ones([4, 2]), tf.zeros([4, 1])
