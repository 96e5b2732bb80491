# The loss is computed after the tape was closed.
# finds: no-gradients-provided
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Dense(10, activation="relu"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.01)
mse = tf.keras.losses.MeanSquaredError()
x, y = tf.random.normal((16, 3)), tf.random.normal((16, 1))
for epoch in range(4):
    with tf.GradientTape() as tape:
        pred = model(x, training=True)
    loss = mse(y, pred)  # <cut>
    grads = tape.gradient(loss, model.trainable_weights)  # <called>
    optimizer.apply_gradients(zip(grads, model.trainable_weights))  # <step>
    print(epoch, float(loss))
