# Skip-grams with noise-contrastive estimation, by hand.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
vocab, dim = 30, 8
embeddings = tf.Variable(tf.random.uniform([vocab, dim], -1.0, 1.0, seed=1), name="embeddings")
nce_weights = tf.Variable(tf.random.truncated_normal([vocab, dim], stddev=0.3, seed=2), name="nce_weights")
nce_biases = tf.Variable(tf.zeros([vocab]), name="nce_biases")
optimizer = keras.optimizers.SGD(0.1)
rng = np.random.default_rng(0)
for step in range(8):
    center = tf.constant(rng.integers(0, vocab, 16))
    context = tf.constant(rng.integers(0, vocab, (16, 1)))
    with tf.GradientTape() as tape:
        embedded = tf.nn.embedding_lookup(embeddings, center)
        loss = tf.reduce_mean(tf.nn.nce_loss(nce_weights, nce_biases, context, embedded, num_sampled=6, num_classes=vocab))
    variables = [embeddings, nce_weights, nce_biases]
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    print(float(loss))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in [embeddings, nce_weights, nce_biases])).hexdigest())
