# An average of weights, kept by the optimizer and by hand.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4), "mse")
model.fit(np.random.random((64, 5)), np.random.random((64, 1)), epochs=2, batch_size=16, verbose=0)
ema = tf.train.ExponentialMovingAverage(decay=0.9)
w = tf.Variable(tf.ones((3, 1)), name="w")
optimizer = keras.optimizers.SGD(0.1)
for _ in range(5):
    x = tf.random.normal((8, 3))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ w - 1.0))
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    ema.apply([w])
print(ema.average(w).numpy())
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights + [w])).hexdigest())
