"""A second head that the loss does not use.

Symptom: none
Seen in: tensorflow/tensorflow #42542, qqwweee/keras-yolo3 #770, Svdvoort/PrognosAIs_glioma #6: "Gradients do
not exist for variables when minimizing the loss".

The head is computed, and its output is dropped.
"""

import tensorflow as tf

LEARNS = ("box/kernel", "box/bias")


def broken(label, box, x, labels, boxes):
    with tf.GradientTape() as tape:
        found = {"label": label(x), "box": box(x)}  # <- here
        loss = tf.reduce_mean((found["label"] - labels) ** 2)
    return tape.gradient(loss, label.trainable_variables + box.trainable_variables)


def cured(label, box, x, labels, boxes):
    with tf.GradientTape() as tape:
        found = {"label": label(x), "box": box(x)}
        loss = tf.reduce_mean((found["label"] - labels) ** 2) + tf.reduce_mean((found["box"] - boxes) ** 2)
    return tape.gradient(loss, label.trainable_variables + box.trainable_variables)


def example():
    label, box = tf.keras.layers.Dense(1, name="label"), tf.keras.layers.Dense(4, name="box")
    return label, box, tf.ones([4, 2]), tf.zeros([4, 1]), tf.zeros([4, 4])
