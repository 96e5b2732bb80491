# The loss is of logits.
# finds: nothing
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(3)])
optimizer = tf.keras.optimizers.SGD(0.1)
x, y = tf.random.normal((32, 4)), tf.one_hot(tf.random.uniform((32,), 0, 3, tf.int32), 3)
for step in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(y, model(x)))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
