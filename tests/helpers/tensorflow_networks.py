"""Keras networks as frozen graphs, with TensorFlow's values and gradients. It imports TensorFlow.

    python tests/helpers/tensorflow_networks.py

writes the small ones, which tests/interop/tensorflow/test_networks.py reads. It needs TensorFlow 2.21, and is
run again where a network has changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow_case import Array, Written

FOLDER = Path(__file__).parent.parent / "interop" / "tensorflow" / "networks"


# --------------------------------------------------------------------------------------- convolutional ones


def _normalized(x: Any, activation: Any = None) -> Any:
    x = layers.BatchNormalization()(x)
    return x if activation is None else layers.Activation(activation)(x)


def mobile() -> Any:
    """MobileNetV2's blocks: expanded, by channel, narrowed, with a shortcut where sizes agree."""
    x = start = layers.Input((12, 12, 3))
    x = _normalized(layers.Conv2D(4, 3, 2, "same", use_bias=False)(x), "relu6")
    for filters, stride in ((4, 1), (6, 2), (6, 1)):
        y = _normalized(layers.Conv2D(2 * x.shape[-1], 1, use_bias=False)(x), "relu6")
        if stride == 2:
            y = layers.ZeroPadding2D(((0, 1), (0, 1)))(y)
        y = layers.DepthwiseConv2D(3, stride, "valid" if stride == 2 else "same", use_bias=False)(y)
        y = _normalized(layers.Conv2D(filters, 1, use_bias=False)(_normalized(y, "relu6")))
        x = layers.Add()([x, y]) if x.shape == y.shape else y
    return keras.Model(start, layers.Dense(5, "softmax")(layers.GlobalAveragePooling2D()(x)))


def residual() -> Any:
    """ResNet50's blocks, with their stem of padding and max pooling."""
    x = start = layers.Input((16, 16, 3))
    x = layers.Conv2D(4, 7, 2)(layers.ZeroPadding2D(3)(x))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(_normalized(x, "relu")))
    for filters, stride in ((2, 1), (3, 2), (3, 1)):
        same = stride == 1 and x.shape[-1] == 4 * filters
        shortcut = x if same else _normalized(layers.Conv2D(4 * filters, 1, stride)(x))
        y = _normalized(layers.Conv2D(filters, 1, stride)(x), "relu")
        y = _normalized(layers.Conv2D(filters, 3, padding="same")(y), "relu")
        y = _normalized(layers.Conv2D(4 * filters, 1)(y))
        x = layers.Activation("relu")(layers.Add()([shortcut, y]))
    return keras.Model(start, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def efficient() -> Any:
    """EfficientNet's blocks: swish, and channels that are weighed by what the whole image holds."""
    x = start = layers.Input((12, 12, 3))
    x = layers.Rescaling(1.0 / 2.0)(x)
    x = _normalized(layers.Conv2D(4, 3, 2, "same", use_bias=False)(x), "swish")
    for stride in (1, 2):
        y = _normalized(layers.Conv2D(8, 1, use_bias=False)(x), "swish")
        y = _normalized(layers.DepthwiseConv2D(3, stride, "same", use_bias=False)(y), "swish")
        share = layers.Reshape((1, 1, 8))(layers.GlobalAveragePooling2D()(y))
        share = layers.Conv2D(8, 1, activation="sigmoid")(layers.Conv2D(2, 1, activation="swish")(share))
        y = _normalized(layers.Conv2D(4, 1, use_bias=False)(layers.Multiply()([y, share])))
        x = layers.Add()([x, y]) if stride == 1 else y
    return keras.Model(start, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))


def generator() -> Any:
    """Transposed convolutions and resized images, as generators and segmenters have them."""
    x = start = layers.Input((5,))
    x = layers.Reshape((2, 2, 4))(layers.Dense(16, "elu")(x))
    x = layers.LeakyReLU(0.2)(layers.Conv2DTranspose(3, 3, 2, "same")(x))
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = layers.UpSampling2D(2)(layers.Conv2D(3, 3, padding="same", activation="selu")(x))
    x = layers.AveragePooling2D(2)(layers.LayerNormalization()(x))
    return keras.Model(start, layers.Conv2D(2, 3, dilation_rate=1, activation="tanh")(x))


# ------------------------------------------------------------------------------------------ of sequences


def _recurrent(layer: Callable[..., Any]) -> Callable[[], Any]:
    def build() -> Any:
        start = layers.Input((5, 3))
        x = layer(4, return_sequences=True)(start)
        return keras.Model(start, layers.Dense(2)(layer(3)(x)))

    return build


def both_ways() -> Any:
    start = layers.Input((4, 3))
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(start)
    return keras.Model(start, layers.Dense(2)(layers.GlobalMaxPooling1D()(x)))


def attention() -> Any:
    """A block of a transformer: causal attention, layer normalisation, a network of two layers."""
    start = layers.Input((6, 8))
    x = layers.LayerNormalization()(start)
    x = layers.Add()([start, layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)])
    y = layers.Dense(12, "gelu")(layers.LayerNormalization()(x))
    return keras.Model(start, layers.Add()([x, layers.Dense(8)(y)]))


def embedding() -> Any:
    """Words as vectors, with positions, averaged and classified."""
    start = layers.Input((6,), dtype="int32")
    x = layers.Embedding(11, 4)(start)
    x = layers.Conv1D(5, 3, activation="relu", padding="causal")(x)
    return keras.Model(start, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


SMALL: dict[str, Callable[[], Any]] = {
    "mobile": mobile,
    "residual": residual,
    "efficient": efficient,
    "generator": generator,
    "lstm": _recurrent(layers.LSTM),
    "gru": _recurrent(layers.GRU),
    "bidirectional": both_ways,
    "attention": attention,
    "embedding": embedding,
}
"""Networks with few channels."""

LOWERED = ("lstm", "gru")
"""Those that are written with TensorFlow 1's control flow, too."""

LARGE: dict[str, Callable[[], Any]] = {
    "MobileNetV2": lambda: keras.applications.MobileNetV2((64, 64, 3), weights=None, classes=10),
    "ResNet50": lambda: keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10),
    "EfficientNetB0": lambda: keras.applications.EfficientNetB0(
        weights=None, input_shape=(64, 64, 3), classes=10
    ),
}
"""Networks of their real width, on small images."""

# ------------------------------------------------------------------------------------------------ written


def network(
    build: Callable[[], Any], lowered: bool = False, batch: int | None = None, seed: int = 0
) -> Written:
    """A network with random weights, frozen; its values, and the gradients of inputs and weights.

    TensorFlow differentiates the network itself, since it cannot differentiate loops that are frozen. Weights
    are found again in the graph as the constants that hold them.
    """
    keras.utils.set_random_seed(seed)
    model, rng = build(), np.random.default_rng(seed)
    for variable in model.variables:
        if "kernel" not in variable.path and "embeddings" not in variable.path:  # Else many are 0 or 1.
            low = 0.5 if "variance" in variable.path or "gamma" in variable.path else -0.5
            variable.assign(rng.uniform(low, low + 1.0, variable.shape))
    called = tf.function(lambda x: model(x, training=False))
    spec = tf.TensorSpec((batch, *model.inputs[0].shape[1:]), model.inputs[0].dtype)
    frozen = convert_variables_to_constants_v2(
        called.get_concrete_function(spec), lower_control_flow=lowered, aggressive_inlining=lowered
    )
    definition = frozen.graph.as_graph_def()
    (name,), (result,) = [x.op.name for x in frozen.inputs], [y.name for y in frozen.outputs]
    given = _drawn(rng, (2, *[5 if n is None else n for n in spec.shape[1:]]), spec.dtype)
    weights = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        x = tf.constant(given)
        tape.watch(x)
        y = called(x)
        g = rng.uniform(0.5, 1.5, y.shape).astype(np.float32)
        loss = tf.reduce_sum(y * g)
    whole = [x, *weights] if x.dtype.is_floating else weights
    slopes = [tf.convert_to_tensor(one).numpy() for one in tape.gradient(loss, whole)]
    gradients: dict[str, Array | None] = {name: slopes[0]} if x.dtype.is_floating else {}
    holders = _constants(definition)
    gradients |= {
        holders[variable.numpy().tobytes()]: slope
        for variable, slope in zip(weights, slopes[len(slopes) - len(weights) :], strict=True)
    }
    return Written(definition.SerializeToString(), {name: given}, {result: y.numpy()}, {result: g}, gradients)


def _drawn(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
    if dtype.is_integer:
        return rng.integers(0, 11, shape).astype(dtype.as_numpy_dtype)
    return rng.uniform(-1, 1, shape).astype(dtype.as_numpy_dtype)


def _constants(definition: Any) -> dict[bytes, str]:
    """The names of constants by their values' bytes."""
    nodes = [node for node in definition.node if node.op == "Const"]
    return {tf.make_ndarray(node.attr["value"].tensor).tobytes(): node.name for node in nodes}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, build in SMALL.items():
        network(build).save(FOLDER / f"{name}.xz")
    for name in LOWERED:
        network(SMALL[name], lowered=True).save(FOLDER / f"{name}_lowered.xz")


if __name__ == "__main__":
    main()
