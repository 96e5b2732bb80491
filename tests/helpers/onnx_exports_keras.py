"""Makes keras_*.onnx and keras_*.npz of tests/interop/onnx/exported: what tf2onnx writes of Keras models.

Needs TensorFlow 2.21, Keras 3 and tf2onnx 1.17, which tests do not.

    python tests/helpers/onnx_exports_keras.py [gru] [lstm] [convolutions]

Beside the inputs x and outputs y stand gradients in the order of the model's trainable variables: ``g0``, ...
of the sum of the squared outputs, and ``h0``, ... of the mean of the squared differences from ``t``, which is
``loss``.
"""

import sys
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
L = keras.layers


def gru():
    return (None, 3), [L.GRU(4, return_sequences=True), L.GlobalAveragePooling1D(), L.Dense(2)]


def lstm():
    return (None, 3), [L.LSTM(4, return_sequences=True), L.Dense(2)]


def convolutions():
    """tf2onnx turns the images and kernels round, and makes a product and a sum of the norm."""
    return (8, 8, 3), [
        *(L.Conv2D(4, 3, padding="same", activation="relu"), L.MaxPooling2D()),
        *(L.DepthwiseConv2D(3, padding="same"), L.BatchNormalization(), L.Activation("silu")),
        *(L.Conv2DTranspose(3, 2, strides=2), L.GlobalAveragePooling2D(), L.Dense(2)),
    ]


def export(name, shape, layers):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input(shape), *layers])
    random = np.random.default_rng(1)
    for w in model.weights if name != "gru" else []:  # Not zeros and ones, and all different.
        w.assign(w + 0.1 * random.uniform(size=w.shape).astype(np.float32))
    tf2onnx.convert.from_function(
        tf.function(lambda x: model(x, training=False)),
        input_signature=[tf.TensorSpec((None, *shape), tf.float32, name="x")],
        opset=17,
        output_path=str(HERE / f"keras_{name}.onnx"),
    )
    sizes = [5 if size is None else size for size in shape]
    x = np.random.default_rng(0).normal(size=(2, *sizes)).astype(np.float32)
    with tf.GradientTape(persistent=True) as tape:
        y = model(tf.constant(x), training=False)
        t = random.normal(size=y.shape).astype(np.float32)
        total, loss = tf.reduce_sum(y * y), tf.reduce_mean((y - t) ** 2)
    arrays = {"x": x, "y": y.numpy(), "t": t, "loss": loss.numpy()}
    for key, z in (("g", total), ("h", loss)):
        gradients = tape.gradient(z, model.trainable_variables)
        arrays |= {f"{key}{i}": g.numpy() for i, g in enumerate(gradients)}
    for norm in model.layers:
        if isinstance(norm, L.BatchNormalization):
            arrays["mean"] = norm.moving_mean.numpy()
            arrays["inverse"] = (norm.moving_variance.numpy() + norm.epsilon) ** -0.5
    np.savez_compressed(HERE / f"keras_{name}.npz", **arrays)


MODELS = {"gru": gru, "lstm": lstm, "convolutions": convolutions}
for wanted in sys.argv[1:] or MODELS:
    export(wanted, *MODELS[wanted]())
