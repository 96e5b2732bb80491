# The learning rate is 0.
# finds: no-learning-rate
import numpy as np
import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.0), loss="mse")  # <made>
model.fit(np.random.random((64, 3)), np.random.random((64, 1)), epochs=2, batch_size=16, verbose=0)
