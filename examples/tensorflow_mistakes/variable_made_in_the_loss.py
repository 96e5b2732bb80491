"""A variable that is made anew in each call of the loss, from the weights that were to learn.

Symptom: none
Seen in: tensorflow/tensorflow #17735 ("i went for creating variables in the first place").

Gradients arrive at the copy, which is thrown away.
"""

import tensorflow as tf

LEARNS = ("w",)


def loss_of(w, x):
    own = tf.Variable(w, name="own")  # <- here
    return tf.reduce_sum((own * x) ** 2)


def broken(w, x):
    with tf.GradientTape() as tape:
        loss = loss_of(w, x)
    return tape.gradient(loss, [w])


def cured(w, x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((w * x) ** 2)
    return tape.gradient(loss, [w])


def example():
    return tf.Variable([1.0, 2.0], name="w"), tf.ones([2])
