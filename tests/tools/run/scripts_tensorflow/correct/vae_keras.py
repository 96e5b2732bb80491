# The variational autoencoder of the Keras examples.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, ops

keras.utils.set_random_seed(0)


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        z_mean, z_log_var = inputs
        epsilon = keras.random.normal(shape=ops.shape(z_mean), seed=self.seed_generator)
        return z_mean + ops.exp(0.5 * z_log_var) * epsilon


inputs = keras.Input((10,))
h = layers.Dense(16, activation="relu")(inputs)
z_mean, z_log_var = layers.Dense(2, name="z_mean")(h), layers.Dense(2, name="z_log_var")(h)
encoder = keras.Model(inputs, [z_mean, z_log_var, Sampling()([z_mean, z_log_var])])
decoder = keras.Sequential([keras.Input((2,)), layers.Dense(16, "relu"), layers.Dense(10, "sigmoid")])


class VAE(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            z_mean, z_log_var, z = self.encoder(data)
            reconstruction = self.decoder(z)
            rec = ops.mean(ops.sum(ops.square(data - reconstruction), axis=1))
            kl = -0.5 * (1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var))
            total = rec + ops.mean(ops.sum(kl, axis=1))
        grads = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
        self.tracker.update_state(total)
        return {"loss": self.tracker.result()}


vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam())
vae.fit(np.random.random((64, 10)).astype("float32"), epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in vae.weights)).hexdigest())
