# The bias is 0.
# finds: nothing
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([
    tf.keras.layers.Input((4,)),
    tf.keras.layers.Dense(8, "relu", name="live"),
    tf.keras.layers.Dense(1, name="out"),
])
optimizer = tf.keras.optimizers.Adam(0.01)
x, y = tf.random.normal((32, 4)), tf.random.normal((32, 1))
for _ in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
