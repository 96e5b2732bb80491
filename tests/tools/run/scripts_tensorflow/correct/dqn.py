# Deep Q learning with a target network that is set now and then.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)


def create_q_model():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2, "linear")])


model, model_target = create_q_model(), create_q_model()
model_target.set_weights(model.get_weights())
optimizer = keras.optimizers.Adam(learning_rate=0.00025, clipnorm=1.0)
loss_function = keras.losses.Huber()
rng = np.random.default_rng(0)
for frame in range(12):
    state_sample = rng.normal(size=(16, 4)).astype("float32")
    state_next = rng.normal(size=(16, 4)).astype("float32")
    rewards, done = rng.normal(size=16).astype("float32"), (rng.random(16) < 0.1).astype("float32")
    action_sample = rng.integers(0, 2, 16)
    future_rewards = model_target.predict(state_next, verbose=0)
    updated_q_values = rewards + 0.99 * tf.reduce_max(future_rewards, axis=1)
    updated_q_values = updated_q_values * (1 - done) - done
    masks = tf.one_hot(action_sample, 2)
    with tf.GradientTape() as tape:
        q_values = model(state_sample)
        q_action = tf.reduce_sum(tf.multiply(q_values, masks), axis=1)
        loss = loss_function(updated_q_values, q_action)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    if frame % 5 == 0:
        model_target.set_weights(model.get_weights())
    print(frame, float(loss))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights + model_target.weights)).hexdigest())
