# The loss is of the probabilities.
# finds: nothing
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


def accuracy_loss(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_pred - y_true))


model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")])
model.compile("adam", loss=accuracy_loss)
x = np.random.normal(size=(64, 5)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model.fit(x, y, epochs=2, batch_size=16, verbose=0)
