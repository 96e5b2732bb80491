# The loss is made of argmax, which has no gradient: Keras raises.
# finds: no-gradients-provided
import tensorflow as tf
import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
optimizer = keras.optimizers.Adam(1e-2)
x = tf.random.normal((32, 4))
y = tf.random.uniform((32,), 0, 3, tf.int32)
for step in range(5):
    with tf.GradientTape() as tape:
        pred = tf.argmax(model(x), axis=-1)  # <cut>
        loss = tf.reduce_mean(tf.square(tf.cast(pred, tf.float32) - tf.cast(y, tf.float32)))
    grads = tape.gradient(loss, model.trainable_variables)  # <called>
    optimizer.apply_gradients(zip(grads, model.trainable_variables))  # <step>
