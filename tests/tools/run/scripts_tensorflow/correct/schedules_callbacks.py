# Schedules of the rate, early stopping, a checkpoint in memory, and a reduced rate.
# finds: nothing
import hashlib

import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(0)
x = np.random.random((96, 6)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
warm = keras.optimizers.schedules.CosineDecay(0.0, 20, warmup_target=0.01, warmup_steps=4)
model.compile(keras.optimizers.AdamW(warm, weight_decay=1e-3), "mse")
stop = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True, monitor="val_loss")
model.fit(x, y, epochs=6, batch_size=16, verbose=0, validation_split=0.25, callbacks=[stop])
model.compile(keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), "mse")
plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=1)
log = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, round(logs["loss"], 6)))
model.fit(x, y, epochs=4, batch_size=16, verbose=0, callbacks=[plateau, log])
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
