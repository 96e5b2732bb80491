# They are asked for at once.
# finds: nothing
import tensorflow as tf

w, b = tf.Variable(2.0, name="w"), tf.Variable(0.5, name="b")
x, y = tf.constant([1.0, 2.0, 3.0]), tf.constant([3.0, 5.0, 7.0])


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(w * x + b - y))
    dw, db = tape.gradient(loss, [w, b])
    w.assign_sub(0.1 * dw)
    b.assign_sub(0.1 * db)
    return loss


for _ in range(5):
    print(float(step()))
