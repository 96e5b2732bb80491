# Custom layers with a state that is not trained, a regulariser and a metric.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(0)


class Linear(keras.layers.Layer):
    def __init__(self, units=32):
        super().__init__()
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal", trainable=True, regularizer="l2")
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", trainable=True)
        self.total = self.add_weight(shape=(self.units,), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.total.assign_add(keras.ops.mean(inputs, axis=0)[: self.units])
        return keras.ops.matmul(inputs, self.w) + self.b


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = Linear(4), Linear(3), Linear(1)

    def call(self, x, training=False):
        return self.c(keras.ops.relu(self.b(keras.ops.relu(self.a(x, training=training)))))


model = Net()
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
model.fit(np.random.random((64, 6)).astype("float32"), np.random.random((64, 1)), epochs=3, batch_size=16, verbose=0)
print(model.a.total.numpy())
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
