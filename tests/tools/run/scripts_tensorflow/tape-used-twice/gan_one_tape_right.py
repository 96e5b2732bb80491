# The tape is persistent.
# finds: nothing
import tensorflow as tf

tf.random.set_seed(0)
generator = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(4)])
discriminator = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
g_optimizer, d_optimizer = tf.keras.optimizers.Adam(), tf.keras.optimizers.Adam()
bce = tf.keras.losses.BinaryCrossentropy(from_logits=True)
for step in range(3):
    real, noise = tf.random.normal((8, 4)), tf.random.normal((8, 2))
    with tf.GradientTape(persistent=True) as tape:
        fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake)
        g_loss = bce(tf.ones_like(on_fake), on_fake)
        d_loss = bce(tf.ones_like(on_real), on_real) + bce(tf.zeros_like(on_fake), on_fake)
    g_grads = tape.gradient(g_loss, generator.trainable_variables)
    d_grads = tape.gradient(d_loss, discriminator.trainable_variables)
    g_optimizer.apply_gradients(zip(g_grads, generator.trainable_variables))
    d_optimizer.apply_gradients(zip(d_grads, discriminator.trainable_variables))
