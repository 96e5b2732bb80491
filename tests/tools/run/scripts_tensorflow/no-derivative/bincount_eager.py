# An operation on the way has no gradient function.
# finds: no-derivative
import tensorflow as tf

w = tf.Variable(tf.ones((6,)), name="w")
optimizer = tf.keras.optimizers.SGD(0.1)
x = tf.constant([0.1, 0.3, 0.2, 0.7, 0.9, 0.4])
for _ in range(3):
    with tf.GradientTape() as tape:
        counts = tf.raw_ops.Bincount(arr=tf.constant([0, 1, 1, 2, 0, 1]), size=3, weights=w * x)  # <computed>
        loss = tf.reduce_sum(tf.square(counts - 1.0))
    grads = tape.gradient(loss, [w])  # <called>
    optimizer.apply_gradients(zip(grads, [w]))
