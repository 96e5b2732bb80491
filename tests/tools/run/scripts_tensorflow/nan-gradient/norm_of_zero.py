# The derivative of a square root at 0 is infinite, times 0 it is NaN.
# finds: nan-gradient
import tensorflow as tf

w = tf.Variable([[1.0], [1.0]], name="w")
optimizer = tf.keras.optimizers.SGD(0.1)
x = tf.constant([[0.0, 0.0], [1.0, 2.0]])
for _ in range(4):
    with tf.GradientTape() as tape:
        distance = tf.sqrt(tf.reduce_sum(tf.square(x @ w), axis=1))
        loss = tf.reduce_mean(tf.square(distance - 1.0))
    grads = tape.gradient(loss, [w])  # <called>
    optimizer.apply_gradients(zip(grads, [w]))
