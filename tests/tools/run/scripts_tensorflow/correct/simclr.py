# Contrastive learning of two views, and a linear probe beside it.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)


class Contrastive(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((12,)), layers.Dense(16, "relu")])
        self.projection_head = keras.Sequential([keras.Input((16,)), layers.Dense(16, "relu"), layers.Dense(8)])
        self.linear_probe = keras.Sequential([keras.Input((16,)), layers.Dense(3)])

    def compile(self, contrastive_optimizer, probe_optimizer):
        super().compile()
        self.contrastive_optimizer, self.probe_optimizer = contrastive_optimizer, probe_optimizer
        self.probe_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def contrastive_loss(self, a, b):
        a, b = tf.math.l2_normalize(a, axis=1), tf.math.l2_normalize(b, axis=1)
        similarities = tf.matmul(a, b, transpose_b=True) / 0.1
        labels = tf.range(tf.shape(a)[0])
        one = keras.losses.sparse_categorical_crossentropy(labels, similarities, from_logits=True)
        two = keras.losses.sparse_categorical_crossentropy(labels, tf.transpose(similarities), from_logits=True)
        return tf.reduce_mean(one + two) / 2

    def train_step(self, data):
        x, y = data
        one, two = x + 0.1 * tf.random.normal(tf.shape(x)), x + 0.1 * tf.random.normal(tf.shape(x))
        with tf.GradientTape() as tape:
            features = [self.encoder(view, training=True) for view in (one, two)]
            loss = self.contrastive_loss(*[self.projection_head(f, training=True) for f in features])
        weights = self.encoder.trainable_weights + self.projection_head.trainable_weights
        self.contrastive_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        with tf.GradientTape() as tape:
            logits = self.linear_probe(self.encoder(x, training=False), training=True)
            probe_loss = self.probe_loss(y, logits)
        gradients = tape.gradient(probe_loss, self.linear_probe.trainable_weights)
        self.probe_optimizer.apply_gradients(zip(gradients, self.linear_probe.trainable_weights))
        return {"c_loss": loss, "p_loss": probe_loss}


model = Contrastive()
model.compile(keras.optimizers.Adam(), keras.optimizers.Adam())
model.fit(np.random.random((64, 12)).astype("float32"), np.random.randint(0, 3, 64), epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
