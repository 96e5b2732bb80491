# The DCGAN of the TensorFlow tutorials, with two tapes in a tf.function.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
generator = keras.Sequential([
    keras.Input((8,)), layers.Dense(4 * 4 * 8, use_bias=False), layers.BatchNormalization(), layers.LeakyReLU(),
    layers.Reshape((4, 4, 8)), layers.Conv2DTranspose(1, 5, strides=2, padding="same", activation="tanh"),
])
discriminator = keras.Sequential([
    keras.Input((8, 8, 1)), layers.Conv2D(8, 5, strides=2, padding="same"), layers.LeakyReLU(), layers.Dropout(0.3),
    layers.Flatten(), layers.Dense(1),
])
cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = keras.optimizers.Adam(1e-4)
discriminator_optimizer = keras.optimizers.Adam(1e-4)


def discriminator_loss(real_output, fake_output):
    return cross_entropy(tf.ones_like(real_output), real_output) + cross_entropy(tf.zeros_like(fake_output), fake_output)


@tf.function
def train_step(images):
    noise = tf.random.normal([16, 8])
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated_images = generator(noise, training=True)
        real_output = discriminator(images, training=True)
        fake_output = discriminator(generated_images, training=True)
        gen_loss = cross_entropy(tf.ones_like(fake_output), fake_output)
        disc_loss = discriminator_loss(real_output, fake_output)
    gradients_of_generator = gen_tape.gradient(gen_loss, generator.trainable_variables)
    gradients_of_discriminator = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gradients_of_generator, generator.trainable_variables))
    discriminator_optimizer.apply_gradients(zip(gradients_of_discriminator, discriminator.trainable_variables))
    return gen_loss, disc_loss


dataset = tf.data.Dataset.from_tensor_slices(tf.random.normal((64, 8, 8, 1))).shuffle(64, seed=1).batch(16)
for epoch in range(2):
    for batch in dataset:
        g, d = train_step(batch)
    print(epoch, float(g), float(d))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in generator.weights + discriminator.weights)).hexdigest())
