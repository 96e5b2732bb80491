"""A GAN whose generated images go through NumPy before the discriminator sees them.

Symptom: none
Seen in: tensorflow/tensorflow #31265, #37414 and #1511 ("No gradients provided for any variable" of a
generator).

The images are joined with real ones by NumPy. The discriminator learns, the generator never does.
"""

import numpy as np
import tensorflow as tf

LEARNS = ("generator/kernel", "generator/bias")


def broken(generator, discriminator, noise, real):
    with tf.GradientTape() as tape:
        images = np.concatenate([real, generator(noise).numpy()])  # <- here
        loss = tf.reduce_mean(discriminator(tf.constant(images))[len(real) :])
    return tape.gradient(loss, generator.trainable_variables)


def cured(generator, discriminator, noise, real):
    with tf.GradientTape() as tape:
        images = tf.concat([real, generator(noise)], axis=0)
        loss = tf.reduce_mean(discriminator(images)[len(real) :])
    return tape.gradient(loss, generator.trainable_variables)


def example():
    generator, discriminator = [
        tf.keras.layers.Dense(n, name=name) for n, name in ((3, "generator"), (1, "judge"))
    ]
    return generator, discriminator, tf.ones([4, 2]), np.zeros([4, 3], np.float32)
