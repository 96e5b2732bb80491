"""A variable that is made with `trainable=False`, and was to be learned.

Symptom: none
Seen in: tensorflow/tensorflow #26404 (None for the variables of batch normalisation that are not trainable).

Tapes do not watch such variables by themselves. A step counter, or a moving average, is made so.
"""

import tensorflow as tf

LEARNS = ("temperature",)


def broken(logits, labels):
    temperature = tf.Variable(1.0, trainable=False, name="temperature")
    return step(temperature, logits, labels)


def step(temperature, logits, labels):
    with tf.GradientTape() as tape:
        scaled = logits / temperature  # <- here
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scaled)
    return tape.gradient(loss, [temperature])


def cured(logits, labels):
    temperature = tf.Variable(1.0, name="temperature")
    return step(temperature, logits, labels)


def example():
    return tf.constant([[1.0, 2.0], [0.5, 0.1]]), tf.constant([0, 1])
