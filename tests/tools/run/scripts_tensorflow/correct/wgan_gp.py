# A Wasserstein GAN with a gradient penalty, of second order.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
critic = keras.Sequential([keras.Input((4,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])
c_opt, g_opt = keras.optimizers.Adam(1e-3, beta_1=0.5), keras.optimizers.Adam(1e-3, beta_1=0.5)


def gradient_penalty(real, fake):
    alpha = tf.random.uniform((tf.shape(real)[0], 1))
    between = real + alpha * (fake - real)
    with tf.GradientTape() as gp_tape:
        gp_tape.watch(between)
        pred = critic(between, training=True)
    grads = gp_tape.gradient(pred, [between])[0]
    norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=1) + 1e-12)
    return tf.reduce_mean((norm - 1.0) ** 2)


for step in range(6):
    real = tf.random.normal((16, 4)) + 2.0
    for _ in range(2):
        fake = generator(tf.random.normal((16, 2)))
        with tf.GradientTape() as tape:
            cost = tf.reduce_mean(critic(fake)) - tf.reduce_mean(critic(real))
            d_loss = cost + 10.0 * gradient_penalty(real, fake)
        c_opt.apply_gradients(zip(tape.gradient(d_loss, critic.trainable_variables), critic.trainable_variables))
    with tf.GradientTape() as tape:
        g_loss = -tf.reduce_mean(critic(generator(tf.random.normal((16, 2)))))
    g_opt.apply_gradients(zip(tape.gradient(g_loss, generator.trainable_variables), generator.trainable_variables))
    print(step, float(d_loss), float(g_loss))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in critic.weights + generator.weights)).hexdigest())
