# Inside of tf.function, targets of shape [n] meet predictions of shape [n, 1].
# finds: broadcast-loss
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.01)
x = tf.random.normal((64, 3))
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1))).batch(16)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        pred = model(x, training=True)
        error = pred - y  # <made>
        loss = tf.reduce_mean(error**2)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


for epoch in range(2):
    for xb, yb in data:
        train_step(xb, yb)
