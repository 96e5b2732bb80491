# The same inside of tf.function.
# finds: no-derivative
import tensorflow as tf

tf.random.set_seed(0)
layer = tf.keras.layers.Dense(1, name="weigh")
layer.build((None, 2))
x, ids = tf.random.normal((6, 2)), tf.constant([0, 1, 1, 2, 0, 1])


@tf.function
def step():
    with tf.GradientTape() as tape:
        score = tf.reshape(layer(x), [-1])
        sums = tf.raw_ops.Bincount(arr=ids, size=3, weights=score)  # <computed>
        loss = tf.reduce_sum(tf.square(sums - 1.0))
    grads = tape.gradient(loss, layer.trainable_variables)  # <called>
    for g, v in zip(grads, layer.trainable_variables):
        v.assign_sub(0.1 * g)
    return loss


for _ in range(3):
    print(float(step()))
