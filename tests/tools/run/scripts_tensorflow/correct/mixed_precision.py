# Mixed precision with a scaled loss, with fit and with a loop.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, dtype="float32")])
model.compile("adam", "mse")
x = np.random.random((64, 6)).astype("float32")
y = x.sum(1, keepdims=True)
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.01))
mse = keras.losses.MeanSquaredError()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = mse(y, model(x, training=True))
        scaled_loss = optimizer.scale_loss(loss)
    gradients = tape.gradient(scaled_loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


optimizer.build(model.trainable_variables)
for i in range(6):
    print(float(train_step(x[:16], y[:16])))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
