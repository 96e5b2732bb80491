# Two variables have the same name, and one of them is stopped.
# finds: no-gradient
import tensorflow as tf

first, second = tf.Variable(tf.ones((3, 2)), name="kernel"), tf.Variable(tf.ones((2, 1)), name="kernel")
optimizer = tf.keras.optimizers.Adam(0.01)
x = tf.random.stateless_normal((8, 3), (1, 2))
for _ in range(4):
    with tf.GradientTape() as tape:
        h = tf.stop_gradient(tf.nn.tanh(x @ first))  # <cut>
        loss = tf.reduce_mean(tf.square(h @ second - 1.0))
    grads = tape.gradient(loss, [first, second])  # <called>
    optimizer.apply_gradients(zip(grads, [first, second]))
