"""A model with two outputs that is compiled with a loss for one: `fit` warns that gradients do not exist.

Symptom: none
Seen in: tensorflow/tensorflow #42542, alirezaafzalaghaei/rKAN #1, abman23/seq2seq-sc #3 ("did you forget to
provide a `loss` argument?").

The head takes part in the forward pass, and no loss looks at it.
"""

import keras
import tensorflow as tf

LEARNS = ("box/kernel", "box/bias")


def made():
    inputs = keras.Input([2])
    label = keras.layers.Dense(1, name="label")(inputs)
    box = keras.layers.Dense(4, name="box")(inputs)
    return keras.Model(inputs, {"label": label, "box": box}, name="model")


def broken(x, labels, boxes):
    model = made()
    model.compile("sgd", loss={"label": "mse"})  # <- here
    model.fit(x, {"label": labels}, verbose=0)


def cured(x, labels, boxes):
    model = made()
    model.compile("sgd", loss={"label": "mse", "box": "mse"})
    model.fit(x, {"label": labels, "box": boxes}, verbose=0)


def example():
    return tf.ones([4, 2]), tf.zeros([4, 1]), tf.zeros([4, 4])
