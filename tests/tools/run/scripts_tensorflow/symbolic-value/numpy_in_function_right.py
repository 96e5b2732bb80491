# It returns the loss.
# finds: nothing
import tensorflow as tf

w = tf.Variable([[1.0], [2.0]], name="w")
optimizer = tf.keras.optimizers.SGD(0.1)
losses = []


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ w - y))
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    return loss


optimizer.build([w])
for _ in range(3):
    losses.append(train_step(tf.ones((4, 2)), tf.ones((4, 1))).numpy())
print(losses)
