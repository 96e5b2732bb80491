# It applies the gradients first.
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
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, "norm": tf.linalg.global_norm(gradients)}


model = Model()
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
model.fit(np.random.random((32, 3)), np.random.random((32, 1)), epochs=3, batch_size=8, verbose=0)
