"""A stop in one branch of a `tf.cond`: while the model warms up, the encoder does not learn.

Symptom: inert
Seen in: allenai/deep_qa PR #355 (a switch in the loss, and None), tensorflow/tensorflow #27949.

The step at which the other branch is taken was never reached.
"""

import tensorflow as tf

LEARNS = ("encoder",)


def broken(encoder, head, step, x):
    @tf.function
    def loss_of(step, x):
        code = x * encoder
        code = tf.cond(step < 1000, lambda: tf.stop_gradient(code), lambda: code)  # <- here
        return tf.reduce_sum((code * head) ** 2)

    with tf.GradientTape() as tape:
        loss = loss_of(step, x)
    return tape.gradient(loss, [encoder, head])


def cured(encoder, head, step, x):
    @tf.function
    def loss_of(step, x):
        code = x * encoder
        code = tf.cond(step < 1000, lambda: 0.1 * code, lambda: code)
        return tf.reduce_sum((code * head) ** 2)

    with tf.GradientTape() as tape:
        loss = loss_of(step, x)
    return tape.gradient(loss, [encoder, head])


def example():
    encoder, head = tf.Variable([1.0, 2.0], name="encoder"), tf.Variable(0.5, name="head")
    return encoder, head, tf.constant(3), tf.ones([2])
