"""Makes keras_gru.onnx and keras_gru.npz of tests/interop/onnx/exported.

Needs TensorFlow 2.21, Keras 3 and tf2onnx, which tests do not.

    python tests/helpers/onnx_exports_keras.py

The gradients are those of the sum of the squared outputs, in the order of the model's trainable variables.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf2onnx

if not hasattr(np, "cast"):  # Which tf2onnx takes from NumPy 1.

    class Cast(dict):
        def __missing__(self, dtype):
            return lambda x: np.asarray(x, dtype)

    np.cast = Cast()

HERE = Path(__file__).parents[1] / "interop/onnx/exported"
keras.utils.set_random_seed(0)
layers = [
    keras.layers.GRU(4, return_sequences=True),
    keras.layers.GlobalAveragePooling1D(),
    keras.layers.Dense(2),
]
model = keras.Sequential([keras.Input((None, 3)), *layers])
tf2onnx.convert.from_function(
    tf.function(lambda x: model(x)),
    input_signature=[tf.TensorSpec((None, None, 3), tf.float32, name="x")],
    opset=17,
    output_path=str(HERE / "keras_gru.onnx"),
)
x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
with tf.GradientTape() as tape:
    y = model(tf.constant(x))
    loss = tf.reduce_sum(y * y)
gradients = tape.gradient(loss, model.trainable_variables)
np.savez_compressed(
    HERE / "keras_gru.npz", x=x, y=y.numpy(), **{f"g{i}": g.numpy() for i, g in enumerate(gradients)}
)
