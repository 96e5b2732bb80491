# A tape that watches no variables that are read is told to watch none.
# finds: no-gradients-provided
import tensorflow as tf

w = tf.Variable([[0.5], [0.2]], name="w")
optimizer = tf.keras.optimizers.SGD(0.1)
x, y = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[1.0], [2.0]])
for _ in range(4):
    with tf.GradientTape(watch_accessed_variables=False) as tape:  # <cut>
        loss = tf.reduce_mean(tf.square(x @ w - y))
    grads = tape.gradient(loss, [w])  # <called>
    optimizer.apply_gradients(zip(grads, [w]))  # <step>
