# Its loss is added.
# finds: nothing
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


class TwoHeads(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.layers.Dense(8, activation="relu")
        self.main = keras.layers.Dense(1, name="main")
        self.auxiliary = keras.layers.Dense(1, name="auxiliary")

    def call(self, x):
        h = self.body(x)
        return self.main(h), self.auxiliary(h)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            main, auxiliary = self(x, training=True)
            loss = tf.reduce_mean(tf.square(main - y))
            loss += 0.1 * tf.reduce_mean(tf.square(auxiliary - y))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


model = TwoHeads()
model.compile(optimizer="adam")
model.fit(np.random.random((32, 3)), np.random.random((32, 1)), epochs=2, batch_size=8, verbose=0)
