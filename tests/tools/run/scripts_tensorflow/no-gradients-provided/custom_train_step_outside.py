# A custom train_step takes its loss after the tape: fit() raises.
# finds: no-gradients-provided
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


class CustomModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu")
        self.out = keras.layers.Dense(1)

    def call(self, x):
        return self.out(self.hidden(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
        loss = tf.reduce_mean(tf.square(y - y_pred))
        grads = tape.gradient(loss, self.trainable_variables)  # <called>
        self.optimizer.apply(grads, self.trainable_variables)  # <step>
        return {"loss": loss}


model = CustomModel()
model.compile(optimizer="sgd")
model.fit(np.random.random((32, 3)), np.random.random((32, 1)), epochs=1, verbose=0)
