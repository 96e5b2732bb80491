# Proximal policy optimisation with early stop by the divergence.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
actor = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(2)])
critic = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
policy_optimizer, value_optimizer = keras.optimizers.Adam(3e-4), keras.optimizers.Adam(1e-3)


def logprobabilities(logits, a):
    return tf.reduce_sum(tf.one_hot(a, 2) * tf.nn.log_softmax(logits), axis=1)


@tf.function
def train_policy(obs, act, logp, adv):
    with tf.GradientTape() as tape:
        ratio = tf.exp(logprobabilities(actor(obs), act) - logp)
        min_advantage = tf.where(adv > 0, 1.2 * adv, 0.8 * adv)
        policy_loss = -tf.reduce_mean(tf.minimum(ratio * adv, min_advantage))
    grads = tape.gradient(policy_loss, actor.trainable_variables)
    policy_optimizer.apply_gradients(zip(grads, actor.trainable_variables))
    return tf.reduce_mean(logp - logprobabilities(actor(obs), act))


@tf.function
def train_value(obs, returns):
    with tf.GradientTape() as tape:
        value_loss = tf.reduce_mean((returns - tf.squeeze(critic(obs), axis=1)) ** 2)
    grads = tape.gradient(value_loss, critic.trainable_variables)
    value_optimizer.apply_gradients(zip(grads, critic.trainable_variables))


for epoch in range(3):
    obs, act = tf.random.normal((32, 4)), tf.random.uniform((32,), 0, 2, tf.int32)
    logp = logprobabilities(actor(obs), act)
    adv, returns = tf.random.normal((32,)), tf.random.normal((32,))
    for _ in range(4):
        kl = train_policy(obs, act, logp, adv)
        if kl > 1.5 * 0.01:
            break
    for _ in range(4):
        train_value(obs, returns)
    print(epoch, float(kl))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in actor.weights + critic.weights)).hexdigest())
