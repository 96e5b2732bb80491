# A physics-informed network for u'' = -u, with nested tapes.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(1e-2)
t = tf.reshape(tf.linspace(0.0, 3.0, 32), (-1, 1))


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        with tf.GradientTape() as second:
            second.watch(t)
            with tf.GradientTape() as first:
                first.watch(t)
                u = model(t)
            du = first.gradient(u, t)
        ddu = second.gradient(du, t)
        at_zero = tf.square(u[0, 0]) + tf.square(du[0, 0] - 1.0)
        loss = tf.reduce_mean(tf.square(ddu + u)) + at_zero
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


optimizer.build(model.trainable_variables)
for step in range(8):
    print(float(train_step()))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
