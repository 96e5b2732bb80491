"""`model.predict` inside of a tape: it returns an array.

Symptom: none
Seen in: tensorflow/tensorflow #20630 ("NOT model.predict(x)"), #39969.

`predict` is for inference over batches. `model(x)` is what a tape can follow.
"""

import keras
import tensorflow as tf

LEARNS = ("model/out/kernel", "model/out/bias")


def broken(model, x, y):
    with tf.GradientTape() as tape:
        prediction = model.predict(x, verbose=0)  # <- here
        loss = tf.reduce_mean((prediction - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, y):
    with tf.GradientTape() as tape:
        prediction = model(x)
        loss = tf.reduce_mean((prediction - y) ** 2)
    return tape.gradient(loss, model.trainable_variables)


def example():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, name="out")], name="model")
    return model, tf.ones([4, 2]), tf.zeros([4, 1])
