# Inputs of millions saturate the sigmoid.
# finds: zero-gradient
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([
    tf.keras.layers.Input((1,)), tf.keras.layers.Dense(4, "sigmoid", name="hidden"), tf.keras.layers.Dense(1, name="out"),
])
optimizer = tf.keras.optimizers.SGD(0.01)
x = tf.random.uniform((64, 1), 1e6, 2e6)
y = tf.random.normal((64, 1))
for _ in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    grads = tape.gradient(loss, model.trainable_variables)  # <called>
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
