# The generator's tokens are picked by argmax: the discriminator's gradient does not come to it.
# finds: no-gradient
import tensorflow as tf

tf.random.set_seed(0)
generator = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(5, name="logits")])
critic = tf.keras.Sequential([tf.keras.layers.Input((5,)), tf.keras.layers.Dense(1, name="score")])
optimizer = tf.keras.optimizers.Adam(1e-3)
variables = generator.trainable_variables + critic.trainable_variables
for step in range(4):
    noise = tf.random.normal((8, 4))
    with tf.GradientTape() as tape:
        logits = generator(noise)
        fake = tf.one_hot(tf.argmax(logits, axis=-1), 5)  # <cut>
        loss = tf.reduce_mean(critic(fake))
    grads = tape.gradient(loss, variables)  # <called>
    optimizer.apply_gradients(zip(grads, variables))
