"""A tensor that the tape is told to watch after it was used.

Symptom: none
Seen in: tensorflow/tensorflow #31264 ("it will result in None no matter where I put the tape.watch"), #36596.

`tape.watch` works from its line on. What was computed before it is not recorded.
"""

import tensorflow as tf

LEARNS = ("image",)


def broken(image):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(image**2)  # <- here
        tape.watch(image)
    return tape.gradient(loss, image)


def cured(image):
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = tf.reduce_sum(image**2)
    return tape.gradient(loss, image)


def example():
    return (tf.ones([4, 5]),)
