# A small number is added below the root.
# finds: nothing
import tensorflow as tf

w = tf.Variable([[1.0], [1.0]], name="w")
optimizer = tf.keras.optimizers.SGD(0.1)
x = tf.constant([[0.0, 0.0], [1.0, 2.0]])
for _ in range(4):
    with tf.GradientTape() as tape:
        distance = tf.sqrt(tf.reduce_sum(tf.square(x @ w), axis=1) + 1e-9)
        loss = tf.reduce_mean(tf.square(distance - 1.0))
    grads = tape.gradient(loss, [w])
    optimizer.apply_gradients(zip(grads, [w]))
