# It clips by tf.minimum.
# finds: nothing
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        grads = tape.gradient(loss, self.trainable_variables)
        norm = tf.linalg.global_norm(grads)
        grads = [g / tf.maximum(norm, 1.0) for g in grads]
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


model = Model()
model.compile(optimizer="sgd")
model.fit(np.random.random((32, 3)), np.random.random((32, 1)), epochs=1, batch_size=8, verbose=0)
