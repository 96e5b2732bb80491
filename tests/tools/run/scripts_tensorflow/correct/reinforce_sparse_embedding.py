# A policy gradient with embeddings, whose gradients are slices.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
policy = keras.Sequential([keras.Input((), dtype="int32"), keras.layers.Embedding(10, 8), keras.layers.Dense(4)])
optimizer = keras.optimizers.Adagrad(0.05)
rng = np.random.default_rng(3)
for episode in range(6):
    states = tf.constant(rng.integers(0, 10, 12))
    actions = tf.random.categorical(policy(states), 1)[:, 0]
    returns = tf.constant(rng.normal(size=12), tf.float32)
    with tf.GradientTape() as tape:
        logits = policy(states)
        negative = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=actions, logits=logits)
        loss = tf.reduce_mean(negative * returns)
    grads = tape.gradient(loss, policy.trainable_variables)
    optimizer.apply_gradients(zip(grads, policy.trainable_variables))
    print(float(loss))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in policy.weights)).hexdigest())
