# A conditional GAN with a persistent tape.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
gen_in, label_in = keras.Input((4,)), keras.Input((), dtype="int32")
h = layers.Concatenate()([gen_in, layers.Embedding(3, 4)(label_in)])
generator = keras.Model([gen_in, label_in], layers.Dense(5)(layers.Dense(8, "relu")(h)))
img_in, lab_in = keras.Input((5,)), keras.Input((), dtype="int32")
h = layers.Concatenate()([img_in, layers.Embedding(3, 4)(lab_in)])
discriminator = keras.Model([img_in, lab_in], layers.Dense(1)(layers.Dense(8, "relu")(h)))
opt_g, opt_d = keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3)
bce = keras.losses.BinaryCrossentropy(from_logits=True)
for step in range(5):
    labels = tf.random.uniform((16,), 0, 3, tf.int32)
    real = tf.random.normal((16, 5)) + tf.cast(labels, tf.float32)[:, None]
    with tf.GradientTape(persistent=True) as tape:
        fake = generator([tf.random.normal((16, 4)), labels], training=True)
        on_real, on_fake = discriminator([real, labels]), discriminator([fake, labels])
        g_loss = bce(tf.ones_like(on_fake), on_fake)
        d_loss = bce(tf.ones_like(on_real), on_real) + bce(tf.zeros_like(on_fake), on_fake)
    g_grads = tape.gradient(g_loss, generator.trainable_variables)
    d_grads = tape.gradient(d_loss, discriminator.trainable_variables)
    del tape
    opt_g.apply_gradients(zip(g_grads, generator.trainable_variables))
    opt_d.apply_gradients(zip(d_grads, discriminator.trainable_variables))
    print(float(g_loss), float(d_loss))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in generator.weights + discriminator.weights)).hexdigest())
