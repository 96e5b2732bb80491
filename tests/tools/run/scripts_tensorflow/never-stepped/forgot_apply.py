# The gradients are computed and never applied.
# finds: never-stepped
import tensorflow as tf

tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(4, "relu"), tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.Adam(0.01)  # <made>
x, y = tf.random.normal((32, 3)), tf.random.normal((32, 1))
for epoch in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    grads = tape.gradient(loss, model.trainable_variables)  # <called>
    print(f"epoch {epoch}: loss {float(loss):.4f}")
