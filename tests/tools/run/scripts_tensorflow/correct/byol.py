# A momentum encoder as a target, updated by assign.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)


def network():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])


online, target = network(), network()
target.set_weights(online.get_weights())
predictor = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
optimizer = keras.optimizers.Adam(1e-3)


def loss_of(p, z):
    p, z = tf.math.l2_normalize(p, axis=-1), tf.math.l2_normalize(z, axis=-1)
    return 2 - 2 * tf.reduce_mean(tf.reduce_sum(p * z, axis=-1))


for step in range(6):
    x = tf.random.normal((16, 8))
    one, two = x + 0.1 * tf.random.normal(x.shape), x + 0.1 * tf.random.normal(x.shape)
    with tf.GradientTape() as tape:
        loss = loss_of(predictor(online(one)), tf.stop_gradient(target(two)))
        loss += loss_of(predictor(online(two)), tf.stop_gradient(target(one)))
    variables = online.trainable_variables + predictor.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    for t, o in zip(target.variables, online.variables):
        t.assign(0.99 * t + 0.01 * o)
    print(float(loss))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in online.weights + target.weights)).hexdigest())
