# A teacher inside of the model, whose weights the tape is asked for, too.
# finds: nothing
import hashlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(0)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.student = keras.layers.Dense(4, name="student")
        self.teacher = keras.layers.Dense(4, name="teacher", trainable=False)

    def call(self, x):
        return self.student(x), self.teacher(x)

    def train_step(self, data):
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            student, teacher = self(x)
            loss = tf.reduce_mean(tf.square(student - tf.stop_gradient(teacher) - 1.0))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        for s, t in zip(self.student.weights, self.teacher.weights):
            t.assign(0.9 * t + 0.1 * s)
        return {"loss": loss}


model = Model()
model.compile(optimizer="adam")
model.fit(np.random.random((64, 6)).astype("float32"), epochs=2, batch_size=16, verbose=0)
print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.weights)).hexdigest())
