# A Siamese network with the triplet loss.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
embedding = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(4)])


class Distance(keras.layers.Layer):
    def call(self, anchor, positive, negative):
        return tf.reduce_sum(tf.square(anchor - positive), -1), tf.reduce_sum(tf.square(anchor - negative), -1)


names = ("anchor", "positive", "negative")
ins = [keras.Input((8,), name=name) for name in names]
siamese_network = keras.Model(ins, Distance()(*[embedding(one) for one in ins]))


class SiameseModel(keras.Model):
    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network, self.margin = siamese_network, margin
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs):
        return self.siamese_network(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            ap, an = self.siamese_network(data)
            loss = tf.maximum(ap - an + self.margin, 0.0)
        gradients = tape.gradient(loss, self.siamese_network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.siamese_network.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


model = SiameseModel(siamese_network)
model.compile(optimizer=keras.optimizers.Adam(0.001))
triplets = tuple(np.random.random((48, 8)).astype("float32") for _ in range(3))
model.fit(tf.data.Dataset.from_tensor_slices(triplets).batch(16), epochs=2, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in embedding.weights)).hexdigest())
