# A tf.Module whose variables are updated by hand.
# finds: nothing
import hashlib

import tensorflow as tf

tf.random.set_seed(0)


class Dense(tf.Module):
    def __init__(self, in_features, out_features, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.random.normal([in_features, out_features], seed=3), name="w")
        self.b = tf.Variable(tf.zeros([out_features]), name="b")

    def __call__(self, x):
        return tf.nn.relu(tf.matmul(x, self.w) + self.b)


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.dense_1, self.dense_2 = Dense(3, 8), Dense(8, 1)

    @tf.function
    def __call__(self, x):
        return self.dense_2(self.dense_1(x))


def train(model, x, y, learning_rate):
    with tf.GradientTape() as t:
        current_loss = tf.reduce_mean(tf.square(y - model(x)))
    grads = t.gradient(current_loss, model.trainable_variables)
    for g, v in zip(grads, model.trainable_variables):
        v.assign_sub(learning_rate * g)
    return current_loss


model = Model()
x = tf.random.normal((32, 3), seed=4)
for epoch in range(5):
    print(float(train(model, x, tf.reduce_sum(x, 1, keepdims=True) + 3.0, 0.02)))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.variables)).hexdigest())
