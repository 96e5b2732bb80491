"""An accuracy, counted with a threshold, as the loss.

Symptom: none
Seen in: tensorflow/tensorflow #58614 (counts of `tf.equal`), tensorflow/addons #825 (F1), markaicode.com's
article on losses that are not differentiable.

A comparison has no gradient; a soft count, with the probability in place of the threshold, has.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, labels):
    with tf.GradientTape() as tape:
        probability = tf.sigmoid(model(x))
        right = tf.equal(probability > 0.5, labels > 0.5)  # <- here
        loss = 1.0 - tf.reduce_mean(tf.cast(right, tf.float32))
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, labels):
    with tf.GradientTape() as tape:
        probability = tf.sigmoid(model(x))
        right = labels * probability + (1.0 - labels) * (1.0 - probability)
        loss = 1.0 - tf.reduce_mean(right)
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(1, name="model"), tf.ones([4, 2]), tf.constant([[0.0], [1.0], [1.0], [0.0]])
