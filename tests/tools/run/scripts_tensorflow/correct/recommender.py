# Collaborative filtering with embeddings of users and movies.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(0)


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        init = "he_normal"
        self.user_embedding = keras.layers.Embedding(num_users, embedding_size, embeddings_initializer=init, embeddings_regularizer=keras.regularizers.l2(1e-6))
        self.user_bias = keras.layers.Embedding(num_users, 1)
        self.movie_embedding = keras.layers.Embedding(num_movies, embedding_size, embeddings_initializer=init)
        self.movie_bias = keras.layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user, movie = self.user_embedding(inputs[:, 0]), self.movie_embedding(inputs[:, 1])
        dot = keras.ops.sum(user * movie, axis=1, keepdims=True)
        return keras.ops.nn.sigmoid(dot + self.user_bias(inputs[:, 0]) + self.movie_bias(inputs[:, 1]))


model = RecommenderNet(20, 30, 6)
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(learning_rate=0.001))
x = np.stack([np.random.randint(0, 20, 96), np.random.randint(0, 30, 96)], axis=1)
model.fit(x, np.random.random(96), batch_size=16, epochs=2, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
