# TensorFlow computes it.
# finds: nothing
import numpy as np
import tensorflow as tf

tf.random.set_seed(0)
first = tf.keras.layers.Dense(6, name="first")
second = tf.keras.layers.Dense(1, name="second")
optimizer = tf.keras.optimizers.SGD(0.05)
x, y = tf.random.normal((16, 4)), tf.random.normal((16, 1))


def swish(a):
    return a / (1.0 + np.exp(-a))


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        h = tf.nn.swish(first(x))
        loss = tf.reduce_mean(tf.square(second(h) - y))
    variables = first.trainable_variables + second.trainable_variables
    grads = tape.gradient(loss, variables)
    optimizer.apply_gradients([(g, v) for g, v in zip(grads, variables) if g is not None])
    return loss


first.build((None, 4))
second.build((None, 6))
optimizer.build(first.trainable_variables + second.trainable_variables)
for _ in range(5):
    print(float(train_step(x, y)))
