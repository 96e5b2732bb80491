# An encoder stands before a stop in a functional model, and never learns.
# finds: no-gradient
import numpy as np
import keras
from keras import layers, ops

keras.utils.set_random_seed(0)


class Gate(layers.Layer):
    def call(self, x):
        return ops.stop_gradient(x)  # <cut>


inputs = keras.Input((6,))
h = layers.Dense(8, activation="relu", name="encoder")(inputs)
h = Gate()(h)
outputs = layers.Dense(2, name="head")(h)
model = keras.Model(inputs, outputs)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = np.random.normal(size=(64, 6)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
