# The logarithm of a ReLU that is 0.
# finds: nan-gradient
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(3)])
optimizer = tf.keras.optimizers.SGD(0.1)
x, y = tf.random.normal((32, 4)), tf.one_hot(tf.random.uniform((32,), 0, 3, tf.int32), 3)
for step in range(5):
    with tf.GradientTape() as tape:
        probabilities = tf.nn.relu(model(x))
        loss = -tf.reduce_mean(tf.reduce_sum(y * tf.math.log(probabilities), axis=1))
    grads = tape.gradient(loss, model.trainable_variables)  # <called>
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
