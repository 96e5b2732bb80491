# A step compiled by XLA.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "gelu"), keras.layers.LayerNormalization(), keras.layers.Dense(3)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)


@tf.function(jit_compile=True)
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


x, y = tf.random.normal((32, 6)), tf.random.uniform((32,), 0, 3, tf.int32)
for _ in range(5):
    print(float(train_step(x, y)))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
