"""A loss on the `tf.argmax` of the logits.

Symptom: none
Seen in: tensorflow/tensorflow #15278, #14931, #2177 ("tf.argmax Should Not Permit Backprop Through It"),
Mainak431/List-of-Differentiable--OPs-and-Non-differentiable-OPs--in-Tensorflow #4.

The class that is picked is an integer. The cross-entropy is a function of the logits themselves.
"""

import tensorflow as tf

LEARNS = ("model/kernel", "model/bias")


def broken(model, x, labels):
    with tf.GradientTape() as tape:
        picked = tf.argmax(model(x), axis=-1)  # <- here
        loss = tf.reduce_mean(tf.abs(tf.cast(picked, tf.float32) - tf.cast(labels, tf.float32)))
    return tape.gradient(loss, model.trainable_variables)


def cured(model, x, labels):
    with tf.GradientTape() as tape:
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(x))
    return tape.gradient(loss, model.trainable_variables)


def example():
    return tf.keras.layers.Dense(3, name="model"), tf.ones([4, 2]), tf.constant([0, 1, 2, 0])
