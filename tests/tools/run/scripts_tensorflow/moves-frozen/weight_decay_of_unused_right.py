# The gate is not decayed.
# finds: nothing
import tensorflow as tf
import keras

keras.utils.set_random_seed(0)
body = keras.layers.Dense(4, name="body")
head = keras.layers.Dense(1, name="head")
body.build((None, 3))
head.build((None, 4))
optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
body.trainable = False
x, y = tf.random.normal((16, 3)), tf.random.normal((16, 1))
variables = head.trainable_variables
for _ in range(5):
    with tf.GradientTape() as tape:
        h = tf.stop_gradient(body(x))
        loss = tf.reduce_mean(tf.square(head(h) - y))
    grads = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(grads, variables))
