# A training loop from scratch with tf.data, metrics and validation.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
inputs = keras.Input((8,))
x1 = keras.layers.Dense(16, activation="relu")(inputs)
model = keras.Model(inputs, keras.layers.Dense(4)(x1))
optimizer = keras.optimizers.SGD(learning_rate=1e-2)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_acc, val_acc = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseCategoricalAccuracy()
x, y = np.random.random((96, 8)).astype("float32"), np.random.randint(0, 4, 96)
train = tf.data.Dataset.from_tensor_slices((x[:64], y[:64])).shuffle(64, seed=0).batch(16).prefetch(2)
val = tf.data.Dataset.from_tensor_slices((x[64:], y[64:])).batch(16)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss_value = loss_fn(y, logits)
    grads = tape.gradient(loss_value, model.trainable_weights)
    optimizer.apply(grads, model.trainable_weights)
    train_acc.update_state(y, logits)
    return loss_value


@tf.function
def test_step(x, y):
    val_acc.update_state(y, model(x, training=False))


for epoch in range(2):
    for step, (xb, yb) in enumerate(train):
        loss_value = train_step(xb, yb)
    for xb, yb in val:
        test_step(xb, yb)
    print(epoch, float(loss_value), float(train_acc.result()), float(val_acc.result()))
    train_acc.reset_state(), val_acc.reset_state()
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
