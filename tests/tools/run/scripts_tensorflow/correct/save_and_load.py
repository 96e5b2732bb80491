# A model is saved and loaded between two trainings.
# finds: nothing
import hashlib
import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
x = np.random.random((64, 5)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.keras")
    model.save(path)
    restored = keras.models.load_model(path)
    restored.fit(x, y, epochs=2, batch_size=16, verbose=0)
    checkpoint = tf.train.Checkpoint(model=restored)
    saved = checkpoint.save(os.path.join(folder, "checkpoint"))
    restored.fit(x, y, epochs=1, batch_size=16, verbose=0)
    checkpoint.restore(saved)
    restored.export(os.path.join(folder, "exported"), verbose=False)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in restored.weights)).hexdigest())
