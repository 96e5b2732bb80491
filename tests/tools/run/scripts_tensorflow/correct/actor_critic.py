# Actor and critic with one tape over an episode.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
inputs = keras.Input((4,))
common = keras.layers.Dense(16, activation="relu")(inputs)
action = keras.layers.Dense(2, activation="softmax")(common)
critic = keras.layers.Dense(1)(common)
model = keras.Model(inputs=inputs, outputs=[action, critic])
optimizer = keras.optimizers.Adam(learning_rate=0.01)
huber_loss = keras.losses.Huber()
rng = np.random.default_rng(1)
for episode in range(4):
    with tf.GradientTape() as tape:
        log_probs, values, rewards = [], [], []
        for timestep in range(6):
            state = tf.constant(rng.normal(size=(1, 4)), tf.float32)
            action_probs, critic_value = model(state)
            values.append(critic_value[0, 0])
            picked = rng.choice(2, p=np.squeeze(action_probs).astype("float64") / np.squeeze(action_probs).astype("float64").sum())
            log_probs.append(tf.math.log(action_probs[0, picked]))
            rewards.append(float(rng.normal()))
        returns, discounted = [], 0.0
        for r in rewards[::-1]:
            discounted = r + 0.99 * discounted
            returns.insert(0, discounted)
        actor_losses, critic_losses = [], []
        for log_prob, value, ret in zip(log_probs, values, returns):
            diff = ret - value
            actor_losses.append(-log_prob * tf.stop_gradient(diff))
            critic_losses.append(huber_loss(tf.expand_dims(value, 0), tf.expand_dims(ret, 0)))
        loss_value = sum(actor_losses) + sum(critic_losses)
    grads = tape.gradient(loss_value, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    print(float(loss_value))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
