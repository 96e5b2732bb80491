# A multilayer perceptron for digits, with compile and fit.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
x = np.random.random((256, 8, 8)).astype("float32")
y = (x.reshape(256, -1)[:, :10]).argmax(1)
model = keras.Sequential([
    keras.Input((8, 8)), layers.Flatten(), layers.Dense(32, activation="relu"), layers.Dropout(0.2), layers.Dense(10),
])
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss_fn, metrics=["accuracy"])
history = model.fit(x, y, epochs=3, batch_size=32, verbose=0, validation_split=0.2)
print([round(one, 6) for one in history.history["loss"]])
print(model.evaluate(x, y, verbose=0))
probability_model = keras.Sequential([model, layers.Softmax()])
print(probability_model(x[:2]).numpy())
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
