# It uses it.
# finds: nothing
import tensorflow as tf

tf.random.set_seed(0)


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.w1 = tf.Variable(tf.random.normal((3, 4)), name="w1")
        self.w2 = tf.Variable(tf.random.normal((4, 4)), name="w2")
        self.w3 = tf.Variable(tf.random.normal((4, 1)), name="w3")

    def __call__(self, x):
        h = tf.nn.tanh(x @ self.w1)
        h = tf.nn.tanh(h @ self.w2)
        return h @ self.w3


net = Net()
optimizer = tf.keras.optimizers.SGD(0.05)
x, y = tf.random.normal((16, 3)), tf.random.normal((16, 1))
for _ in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((net(x) - y) ** 2)
    grads = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(grads, net.trainable_variables))
