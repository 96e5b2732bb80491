# Grad-CAM and a saliency map of a trained classifier.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((12, 12, 1)), layers.Conv2D(4, 3, activation="relu", name="last_conv"), layers.GlobalAveragePooling2D(), layers.Dense(3),
])
x, y = np.random.random((32, 12, 12, 1)).astype("float32"), np.random.randint(0, 3, 32)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, epochs=1, batch_size=16, verbose=0)
grad_model = keras.models.Model(model.inputs, [model.get_layer("last_conv").output, model.outputs[0]])
for i in range(4):
    with tf.GradientTape() as tape:
        last_conv_layer_output, preds = grad_model(x[i : i + 1])
        class_channel = preds[:, tf.argmax(preds[0])]
    grads = tape.gradient(class_channel, last_conv_layer_output)
    pooled_grads = tf.reduce_mean(grads, axis=(0, 1, 2))
    heatmap = tf.squeeze(last_conv_layer_output[0] @ pooled_grads[..., tf.newaxis])
    heatmap = tf.maximum(heatmap, 0) / (tf.math.reduce_max(heatmap) + 1e-8)
    image = tf.convert_to_tensor(x[i : i + 1])
    with tf.GradientTape() as tape:
        tape.watch(image)
        score = tf.reduce_max(model(image))
    print(heatmap.numpy().sum(), tf.reduce_max(tf.abs(tape.gradient(score, image))).numpy())
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
