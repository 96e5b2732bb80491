# A train_step applies only the gradients of its body.
# finds: not-held
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(4, activation="relu", name="body")
        self.head = keras.layers.Dense(1, name="head")

    def call(self, x):
        return self.head(self.body(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)  # <called>
        pairs = [(g, v) for g, v in zip(grads, self.trainable_variables) if "body" in v.path]
        self.optimizer.apply_gradients(pairs)  # <step>
        return {"loss": loss}


model = Model()
model.compile(optimizer="adam", loss="mse")
model.fit(np.random.random((32, 3)), np.random.random((32, 1)), epochs=3, batch_size=8, verbose=0)
