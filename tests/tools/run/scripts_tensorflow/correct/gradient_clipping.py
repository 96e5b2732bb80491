# Clipping by the global norm, by value, and by the optimizer.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)])
optimizer = keras.optimizers.RMSprop(0.01)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
for step in range(6):
    x, y = tf.random.normal((16, 5)), tf.random.uniform((16,), 0, 2, tf.int32)
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    grads = tape.gradient(loss, model.trainable_weights)
    grads, norm = tf.clip_by_global_norm(grads, 0.5)
    grads = [tf.clip_by_value(g, -0.1, 0.1) for g in grads]
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    print(float(loss), float(norm))
model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), loss_fn)
model.fit(np.random.random((32, 5)), np.random.randint(0, 2, 32), epochs=2, batch_size=8, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
