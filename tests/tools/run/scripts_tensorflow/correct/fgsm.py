# An adversarial example by the sign of the gradient; nothing is trained.
# finds: nothing
import hashlib

import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
model.trainable = False
loss_object = keras.losses.CategoricalCrossentropy()


def create_adversarial_pattern(image, label):
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = loss_object(label, model(image))
    return tf.sign(tape.gradient(loss, image))


for i in range(4):
    image = tf.random.normal((1, 6))
    label = tf.one_hot([i % 3], 3)
    adversarial = image + 0.1 * create_adversarial_pattern(image, label)
    print(model.predict(adversarial, verbose=0), adversarial.numpy())
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
