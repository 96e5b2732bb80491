# The loss is made of the logits.
# finds: nothing
import tensorflow as tf
import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
optimizer = keras.optimizers.Adam(1e-2)
x = tf.random.normal((32, 4))
y = tf.random.uniform((32,), 0, 3, tf.int32)
for step in range(5):
    with tf.GradientTape() as tape:
        logits = model(x)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
