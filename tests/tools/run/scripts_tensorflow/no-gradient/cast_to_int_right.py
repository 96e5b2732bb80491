# It stays a float.
# finds: nothing
import tensorflow as tf
import keras

keras.utils.set_random_seed(0)
embed = keras.layers.Dense(4, activation="sigmoid", name="embed")
head = keras.layers.Dense(1, name="head")
optimizer = keras.optimizers.Adam(0.01)
x, y = tf.random.normal((16, 3)), tf.random.normal((16, 1))
embed.build((None, 3))
head.build((None, 4))
variables = embed.trainable_variables + head.trainable_variables
for step in range(5):
    with tf.GradientTape() as tape:
        code = embed(x)
        loss = keras.losses.mean_squared_error(y, head(code))
    grads = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(grads, variables))
