# A rate of 0.001.
# finds: nothing
import numpy as np
import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(16) for _ in range(4)] + [keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.001), "mse")
x = np.random.normal(size=(64, 8)).astype("float32")
model.fit(x, x.sum(1, keepdims=True), epochs=3, batch_size=8, verbose=0)
