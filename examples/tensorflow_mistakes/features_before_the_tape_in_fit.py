"""A `train_step` of one's own whose features are computed before the tape.

Symptom: none
Seen in: tensorflow/tensorflow #41343 and #37141 (custom steps),
keras.io/guides/custom_train_step_in_tensorflow.

`fit` warns about the backbone once, among the lines of its progress bar.
"""

import keras
import tensorflow as tf

LEARNS = ("backbone/kernel", "backbone/bias")


class Tuned(keras.Model):
    def __init__(self, late):
        super().__init__()
        self.late = late
        self.backbone = keras.layers.Dense(3, name="backbone")
        self.head = keras.layers.Dense(1, name="head")

    def call(self, x):
        return self.head(self.backbone(x))

    def train_step(self, data):
        x, y = data
        features = self.backbone(x)  # <- here
        with tf.GradientTape() as tape:
            if not self.late:
                features = self.backbone(x)
            loss = tf.reduce_mean((self.head(features) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def broken(x, y):
    model = Tuned(late=True)
    model.compile("sgd")
    model.fit(x, y, verbose=0)


def cured(x, y):
    model = Tuned(late=False)
    model.compile("sgd")
    model.fit(x, y, verbose=0)


def example():
    return tf.ones([4, 2]), tf.zeros([4, 1])
