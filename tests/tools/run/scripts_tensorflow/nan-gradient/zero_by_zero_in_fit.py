# A loss under fit() divides 0 by 0 for an empty mask.
# finds: nan-gradient
import numpy as np
import keras
import tensorflow as tf

keras.utils.set_random_seed(0)


def masked_loss(y_true, y_pred):
    mask = tf.cast(y_true > 2.0, tf.float32)
    return tf.reduce_sum(mask * tf.square(y_true - y_pred)) / tf.reduce_sum(mask)


model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
model.compile("sgd", loss=masked_loss)
model.fit(np.random.random((32, 3)), np.random.random((32, 1)), epochs=2, batch_size=8, verbose=0)
