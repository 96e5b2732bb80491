# Embedding with a mask, bidirectional LSTMs, a sigmoid.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((None,), dtype="int32"), layers.Embedding(60, 8, mask_zero=True),
    layers.Bidirectional(layers.LSTM(8, return_sequences=True)), layers.Bidirectional(layers.LSTM(8)), layers.Dense(1, "sigmoid"),
])
x = np.random.randint(1, 60, (48, 10))
x[:, 7:] = 0
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(x, np.random.randint(0, 2, 48), batch_size=16, epochs=2, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
