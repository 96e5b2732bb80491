# It does not stop them.
# finds: nothing
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(8, activation="relu", name="encoder")
        self.head = keras.layers.Dense(2, name="head")

    def call(self, x):
        return self.head(self.encoder(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            features = self.encoder(x)
            loss = self.compute_loss(x, y, self.head(features))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


model = Classifier()
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = np.random.normal(size=(64, 6)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
