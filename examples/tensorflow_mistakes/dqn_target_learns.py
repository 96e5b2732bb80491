"""DQN without a stop on its target: the target is pulled towards the prediction.

Symptom: leak
Seen in: openai/baselines #105 (what the stop is for), fg91/Deep-Q-Learning #5.

Both networks are in `trainable_variables` of the agent, so that both are stepped.
"""

import tensorflow as tf

LEARNS = ("online/kernel",)
HELD = ("target/kernel", "target/bias")


def broken(online, target, states, rewards):
    with tf.GradientTape() as tape:
        best = tf.reduce_max(target(states), axis=-1)  # <- here
        goal = rewards + 0.9 * best
        loss = tf.reduce_mean((tf.reduce_max(online(states), axis=-1) - goal) ** 2)
    variables = online.trainable_variables + target.trainable_variables
    tape.gradient(loss, variables)
    return loss, variables


def cured(online, target, states, rewards):
    with tf.GradientTape() as tape:
        best = tf.stop_gradient(tf.reduce_max(target(states), axis=-1))
        goal = rewards + 0.9 * best
        loss = tf.reduce_mean((tf.reduce_max(online(states), axis=-1) - goal) ** 2)
    variables = online.trainable_variables + target.trainable_variables
    tape.gradient(loss, variables)
    return loss, variables


def example():
    online, target = tf.keras.layers.Dense(3, name="online"), tf.keras.layers.Dense(3, name="target")
    return online, target, tf.ones([4, 2]), tf.ones([4])
