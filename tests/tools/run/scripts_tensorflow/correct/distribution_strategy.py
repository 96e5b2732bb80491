# A mirrored strategy with one device.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
x = np.random.random((64, 6)).astype("float32")
model.fit(x, x.sum(1, keepdims=True), epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
