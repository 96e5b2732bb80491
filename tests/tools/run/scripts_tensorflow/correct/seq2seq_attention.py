# An encoder and a decoder with attention, in a loop with teacher forcing.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)


class Encoder(keras.Model):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding = layers.Embedding(vocab, dim)
        self.gru = layers.GRU(dim, return_sequences=True, return_state=True)

    def call(self, x):
        return self.gru(self.embedding(x))


class Decoder(keras.Model):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding = layers.Embedding(vocab, dim)
        self.gru = layers.GRU(dim, return_sequences=True, return_state=True)
        self.attention = layers.AdditiveAttention()
        self.fc = layers.Dense(vocab)

    def call(self, x, hidden, enc_output):
        out, state = self.gru(self.embedding(x), initial_state=hidden)
        context = self.attention([out, enc_output])
        return self.fc(tf.concat([out, context], axis=-1)), state


encoder, decoder = Encoder(20, 8), Decoder(20, 8)
optimizer = keras.optimizers.Adam()
loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def loss_function(real, pred):
    mask = tf.cast(tf.math.not_equal(real, 0), tf.float32)
    return tf.reduce_sum(loss_object(real, pred) * mask) / tf.reduce_sum(mask)


@tf.function
def train_step(inp, targ):
    loss = 0.0
    with tf.GradientTape() as tape:
        enc_output, hidden = encoder(inp)
        dec_input = targ[:, :1]
        for t in range(1, targ.shape[1]):
            predictions, hidden = decoder(dec_input, hidden, enc_output)
            loss += loss_function(targ[:, t], predictions[:, 0])
            dec_input = targ[:, t : t + 1]
    variables = encoder.trainable_variables + decoder.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss / targ.shape[1]


inp, targ = tf.random.uniform((8, 6), 1, 20, tf.int32), tf.random.uniform((8, 5), 1, 20, tf.int32)
encoder(inp), decoder(targ[:, :1], tf.zeros((8, 8)), tf.zeros((8, 6, 8)))
optimizer.build(encoder.trainable_variables + decoder.trainable_variables)
for epoch in range(4):
    print(float(train_step(inp, targ)))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in encoder.weights + decoder.weights)).hexdigest())
