"""Features that are computed before the tape is opened: the backbone is not fine-tuned at all.

Symptom: none
Seen in: tensorflow/tensorflow #42984, and the answers to "No gradients provided for any variable" such as in
#1511 ("there is no path between any of the variables and the loss").

The head gets its gradients, so that no error and no warning is given unless the optimizer is handed the
backbone's weights.
"""

import tensorflow as tf

LEARNS = ("backbone/kernel", "backbone/bias")


def broken(backbone, head, x, y):
    features = backbone(x)  # <- here
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((head(features) - y) ** 2)
    return tape.gradient(loss, backbone.trainable_variables + head.trainable_variables)


def cured(backbone, head, x, y):
    with tf.GradientTape() as tape:
        features = backbone(x)
        loss = tf.reduce_mean((head(features) - y) ** 2)
    return tape.gradient(loss, backbone.trainable_variables + head.trainable_variables)


def example():
    backbone = tf.keras.layers.Dense(3, name="backbone")
    return backbone, tf.keras.layers.Dense(1, name="head"), tf.ones([4, 2]), tf.zeros([4, 1])
