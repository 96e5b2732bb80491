# Gradients of four batches are added before a step, by hand and by Keras.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
accumulated = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in model.trainable_variables]
for step in range(12):
    x = tf.random.normal((8, 6))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - tf.reduce_sum(x, 1, keepdims=True))) / 4
    for a, g in zip(accumulated, tape.gradient(loss, model.trainable_variables)):
        a.assign_add(g)
    if (step + 1) % 4 == 0:
        optimizer.apply_gradients(zip([a.value() for a in accumulated], model.trainable_variables))
        for a in accumulated:
            a.assign(tf.zeros_like(a))
    print(float(loss))
model.compile(keras.optimizers.SGD(0.01, gradient_accumulation_steps=2), "mse")
model.fit(np.random.random((64, 6)), np.random.random((64, 1)), epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
