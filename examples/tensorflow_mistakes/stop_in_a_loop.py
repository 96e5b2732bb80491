"""A recurrent network whose state is stopped at every step, in a loop of AutoGraph's.

Symptom: inert
Seen in: tensorflow/tensorflow #54417 (None in an RNN), #55262 (the gradient of a state for the first state).

Truncated backpropagation stops the state between windows. Stopped at each step, the recurrent weight learns
from one step back.
"""

import tensorflow as tf

LEARNS = ("recurrent",)


def broken(recurrent, xs):
    @tf.function
    def loss_of(xs):
        state = tf.zeros([2])
        for i in tf.range(3):
            state = tf.tanh(tf.linalg.matvec(recurrent, tf.stop_gradient(state)) + xs[i])  # <- here
        return tf.reduce_sum(state)

    with tf.GradientTape() as tape:
        loss = loss_of(xs)
    return tape.gradient(loss, [recurrent])


def cured(recurrent, xs):
    @tf.function
    def loss_of(xs):
        state = tf.zeros([2])
        for i in tf.range(3):
            state = tf.tanh(tf.linalg.matvec(recurrent, state) + xs[i])
        return tf.reduce_sum(state)

    with tf.GradientTape() as tape:
        loss = loss_of(xs)
    return tape.gradient(loss, [recurrent])


def example():
    return tf.Variable([[0.1, 0.2], [0.3, 0.4]], name="recurrent"), tf.ones([3, 2])
