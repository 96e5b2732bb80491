# Mixed precision keeps the weights in float32.
# finds: nothing
import numpy as np
import keras

keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([
    keras.layers.Input((4,)),
    keras.layers.Dense(4, use_bias=False, kernel_initializer="ones"),
    keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
])
model.compile(keras.optimizers.Adam(1e-5), "mse")
x = np.random.random((64, 4)).astype("float32")
model.fit(x, x.sum(1, keepdims=True), epochs=2, batch_size=8, verbose=0)
