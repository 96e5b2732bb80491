# The first tutorial: a line, two variables, a loop.
# finds: nothing
import hashlib

import tensorflow as tf

tf.random.set_seed(0)


class MyModel(tf.Module):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.w = tf.Variable(5.0)
        self.b = tf.Variable(0.0)

    def __call__(self, x):
        return self.w * x + self.b


x = tf.cast(tf.linspace(-2, 2, 64), tf.float32)
y = 3.0 * x + 2.0 + tf.random.normal([64])
model = MyModel()
for epoch in range(10):
    with tf.GradientTape() as t:
        current_loss = tf.reduce_mean(tf.square(y - model(x)))
    dw, db = t.gradient(current_loss, [model.w, model.b])
    model.w.assign_sub(0.1 * dw)
    model.b.assign_sub(0.1 * db)
    print(f"W = {model.w.numpy():1.2f}, b = {model.b.numpy():1.2f}, loss={current_loss:2.5f}")
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in [model.w, model.b])).hexdigest())
