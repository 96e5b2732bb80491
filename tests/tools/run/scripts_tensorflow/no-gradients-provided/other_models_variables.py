# The gradient is asked for the variables of another model than the loss is made with.
# finds: no-gradients-provided
import tensorflow as tf


def make_model():
    return tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])


tf.random.set_seed(1)
model, old_model = make_model(), make_model()
optimizer = tf.keras.optimizers.Adam(0.01)
for step in range(4):
    x = tf.random.normal((8, 4))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - 1.0))
    grads = tape.gradient(loss, old_model.trainable_variables)  # <called>
    optimizer.apply_gradients(zip(grads, old_model.trainable_variables))  # <step>
