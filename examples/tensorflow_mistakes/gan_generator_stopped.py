"""A GAN's generator step on the images that were stopped for the discriminator's.

Symptom: none
Seen in: tensorflow/tensorflow #31265, CIFASIS/splitting_gan #1.

One forward pass is shared by both losses, and the stop that holds the generator in the one is in the way of
the other.
"""

import tensorflow as tf

LEARNS = ("generator/kernel", "generator/bias")


def broken(generator, judge, noise):
    with tf.GradientTape() as tape:
        images = tf.stop_gradient(generator(noise))  # <- here
        loss = tf.reduce_mean(tf.nn.softplus(-judge(images)))
    return tape.gradient(loss, generator.trainable_variables)


def cured(generator, judge, noise):
    with tf.GradientTape() as tape:
        images = generator(noise)
        loss = tf.reduce_mean(tf.nn.softplus(-judge(images)))
    return tape.gradient(loss, generator.trainable_variables)


def example():
    generator, judge = tf.keras.layers.Dense(3, name="generator"), tf.keras.layers.Dense(1, name="judge")
    return generator, judge, tf.ones([4, 2])
