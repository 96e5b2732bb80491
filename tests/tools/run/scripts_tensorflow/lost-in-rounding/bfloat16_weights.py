# Updates of 1e-5 are added to bfloat16 weights of about 1.
# finds: lost-in-rounding
import tensorflow as tf

w = tf.Variable(tf.ones((8, 1), tf.bfloat16), name="w")
optimizer = tf.keras.optimizers.SGD(1e-5)
x = tf.cast(tf.random.stateless_normal((32, 8), (1, 2)), w.dtype)
for _ in range(6):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ w))
    grads = tape.gradient(loss, [w])
    optimizer.apply_gradients(zip(grads, [w]))  # <step>
