# Gradients of encoder and decoder are computed, those of the decoder alone applied.
# finds: not-held
import tensorflow as tf

tf.random.set_seed(0)
encoder = tf.keras.Sequential([tf.keras.layers.Input((6,)), tf.keras.layers.Dense(2, name="code")])
decoder = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(6, name="back")])
optimizer = tf.keras.optimizers.Adam(0.01)
for step in range(5):
    x = tf.random.normal((16, 6))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(decoder(encoder(x)) - x))
    variables = decoder.trainable_variables + encoder.trainable_variables
    grads = tape.gradient(loss, variables)  # <called>
    optimizer.apply_gradients(zip(grads, decoder.trainable_variables))  # <step>
