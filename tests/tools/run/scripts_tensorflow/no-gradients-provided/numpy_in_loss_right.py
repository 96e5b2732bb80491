# The loss is of TensorFlow's operations.
# finds: nothing
import numpy as np
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam()
x, y = tf.random.normal((16, 3)), tf.random.normal((16, 1))


def loss_function(model, x, y):
    pred = model(x)
    return tf.reduce_mean((pred - y) ** 2)


for i in range(5):
    with tf.GradientTape() as tape:
        loss = loss_function(model, x, y)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
