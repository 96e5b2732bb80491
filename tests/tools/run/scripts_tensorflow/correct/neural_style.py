# Style transfer: an image is optimised, no weight of the network.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

keras.utils.set_random_seed(0)
inputs = keras.Input((16, 16, 3))
c1 = layers.Conv2D(8, 3, activation="relu", name="c1")(inputs)
c2 = layers.Conv2D(8, 3, activation="relu", name="c2")(layers.AveragePooling2D(2)(c1))
extractor = keras.Model(inputs, {"style": c1, "content": c2})
extractor.trainable = False


def gram_matrix(x):
    x = tf.einsum("bijc,bijd->bcd", x, x)
    return x / 100.0


content, style = tf.random.uniform((1, 16, 16, 3), seed=1), tf.random.uniform((1, 16, 16, 3), seed=2)
content_target, style_target = extractor(content)["content"], gram_matrix(extractor(style)["style"])
image = tf.Variable(content, name="image")
opt = keras.optimizers.Adam(learning_rate=0.02, beta_1=0.99, epsilon=1e-1)


@tf.function()
def train_step(image):
    with tf.GradientTape() as tape:
        outputs = extractor(image)
        loss = tf.reduce_mean((gram_matrix(outputs["style"]) - style_target) ** 2)
        loss += tf.reduce_mean((outputs["content"] - content_target) ** 2)
        loss += 1e-3 * tf.reduce_sum(tf.image.total_variation(image))
    grad = tape.gradient(loss, image)
    opt.apply_gradients([(grad, image)])
    image.assign(tf.clip_by_value(image, 0.0, 1.0))
    return loss


opt.build([image])
for _ in range(5):
    print(float(train_step(image)))
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in [image])).hexdigest())
