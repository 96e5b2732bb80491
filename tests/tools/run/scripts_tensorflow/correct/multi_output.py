# Two inputs, two outputs, two losses with weights.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
title, tags = keras.Input((None,), name="title"), keras.Input((4,), name="tags")
h = layers.Embedding(30, 8)(title)
h = layers.LSTM(8)(h)
h = layers.concatenate([h, tags])
priority = layers.Dense(1, name="priority")(h)
department = layers.Dense(3, name="department")(h)
model = keras.Model([title, tags], {"priority": priority, "department": department})
model.compile(
    keras.optimizers.RMSprop(1e-3),
    loss={"priority": keras.losses.BinaryCrossentropy(from_logits=True), "department": keras.losses.CategoricalCrossentropy(from_logits=True)},
    loss_weights={"priority": 1.0, "department": 0.2},
)
data = {"title": np.random.randint(0, 30, (48, 6)), "tags": np.random.random((48, 4)).astype("float32")}
goal = {"priority": np.random.randint(0, 2, (48, 1)).astype("float32"), "department": np.eye(3)[np.random.randint(0, 3, 48)].astype("float32")}
model.fit(data, goal, epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
