# The schedule has the right number of steps.
# finds: nothing
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)])
schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([1000], [0.1, 0.0])
optimizer = tf.keras.optimizers.SGD(schedule)
x, y = tf.random.normal((32, 3)), tf.random.normal((32, 1))
for epoch in range(6):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
