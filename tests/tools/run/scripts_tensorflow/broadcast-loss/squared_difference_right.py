# Targets are reshaped.
# finds: nothing
import tensorflow as tf

w, b = tf.Variable(tf.zeros((2, 1)), name="w"), tf.Variable(0.0, name="b")
x = tf.constant([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0], [4.0, 1.0]])
y = tf.constant([3.0, 3.0, 3.0, 5.0])
for _ in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.math.squared_difference(tf.reshape(y, (-1, 1)), x @ w + b))
    dw, db = tape.gradient(loss, [w, b])
    w.assign_sub(0.01 * dw)
    b.assign_sub(0.01 * db)
