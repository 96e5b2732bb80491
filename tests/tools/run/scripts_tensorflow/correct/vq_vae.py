# A vector-quantised autoencoder with the straight-through estimator.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)


class VectorQuantizer(keras.layers.Layer):
    def __init__(self, num_embeddings, embedding_dim, beta=0.25, **kwargs):
        super().__init__(**kwargs)
        self.embedding_dim, self.num_embeddings, self.beta = embedding_dim, num_embeddings, beta
        self.embeddings = self.add_weight(shape=(embedding_dim, num_embeddings), initializer="uniform", name="codes")

    def call(self, x):
        flattened = tf.reshape(x, [-1, self.embedding_dim])
        similarity = tf.matmul(flattened, self.embeddings)
        distances = tf.reduce_sum(flattened**2, axis=1, keepdims=True) + tf.reduce_sum(self.embeddings.value**2, axis=0) - 2 * similarity
        indices = tf.argmin(distances, axis=1)
        quantized = tf.matmul(tf.one_hot(indices, self.num_embeddings), self.embeddings, transpose_b=True)
        quantized = tf.reshape(quantized, tf.shape(x))
        commitment_loss = tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2)
        codebook_loss = tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2)
        self.add_loss(self.beta * commitment_loss + codebook_loss)
        return x + tf.stop_gradient(quantized - x)


encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
decoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(8)])
inputs = keras.Input((8,))
vqvae = keras.Model(inputs, decoder(VectorQuantizer(16, 4)(encoder(inputs))))
vqvae.compile("adam", "mse")
x = np.random.random((64, 8)).astype("float32")
vqvae.fit(x, x, epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in vqvae.weights)).hexdigest())
