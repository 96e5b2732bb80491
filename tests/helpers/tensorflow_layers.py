"""Layers and functions of Keras, each as a network of its own, with unknown sizes. It imports Keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers, ops

Build = Callable[[], Any]


def _on(shape: Sequence[int | None], compute: Callable[[Any], Any], dtype: str = "float32") -> Build:
    """A network that computes something of one input of a shape."""

    def build() -> Any:
        x = layers.Input(tuple(shape), dtype=dtype)
        return keras.Model(x, compute(x))

    return build


def _activations(*names: str) -> Callable[[Any], Any]:
    def compute(x: Any) -> Any:
        for name in names:
            x = layers.Activation(name)(x)
        return x

    return compute


def _masked(x: Any) -> Any:
    return layers.LSTM(3)(layers.Embedding(11, 4, mask_zero=True)(x))


_TIMES, _IMAGE, _ANY = (None, 4), (6, 6, 2), (None, None, 2)

LAYERS: dict[str, Build] = {
    "lstm": _on(_TIMES, lambda x: layers.LSTM(4, return_sequences=True)(x)),
    "gru": _on(_TIMES, lambda x: layers.GRU(4)(x)),
    "simple_rnn": _on((5, 3), lambda x: layers.SimpleRNN(4)(x)),
    "masked_lstm": _on((6,), _masked, "int32"),
    "bidirectional": _on((6, 3), lambda x: layers.Bidirectional(layers.GRU(3))(x)),
    "conv_lstm": _on((3, 4, 4, 2), lambda x: layers.ConvLSTM2D(2, 2)(x)),
    "time_distributed": _on((3, 4), lambda x: layers.TimeDistributed(layers.Dense(2))(x)),
    "attention": _on((None, 8), lambda x: layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)),
    "dot_attention": _on((5, 4), lambda x: layers.Attention()([x, x])),
    "additive_attention": _on((5, 4), lambda x: layers.AdditiveAttention()([x, x])),
    "einsum_dense": _on((5, 4), lambda x: layers.EinsumDense("abc,cde->abde", (None, 2, 3))(x)),
    "batch_norm": _on(_TIMES, lambda x: layers.BatchNormalization()(x)),
    "layer_norm": _on(_TIMES, lambda x: layers.LayerNormalization()(x)),
    "rms_norm": _on(_TIMES, lambda x: layers.RMSNormalization()(x)),
    "group_norm": _on((4, 4, 6), lambda x: layers.GroupNormalization(3)(x)),
    "unit_norm": _on((5,), lambda x: layers.UnitNormalization()(x)),
    "spectral_norm": _on(_IMAGE, lambda x: layers.SpectralNormalization(layers.Conv2D(2, 2))(x)),
    "causal": _on(_TIMES, lambda x: layers.Conv1D(4, 3, padding="causal", dilation_rate=2)(x)),
    "conv1d_transpose": _on((5, 3), lambda x: layers.Conv1DTranspose(4, 3, 2)(x)),
    "conv": _on(_ANY, lambda x: layers.Conv2D(2, 3, 2, "same")(x)),
    "conv_transpose": _on(_ANY, lambda x: layers.Conv2DTranspose(2, 3, 2, "same")(x)),
    "conv3d": _on((4, 4, 4, 2), lambda x: layers.Conv3D(2, 2)(x)),
    "conv3d_transpose": _on((3, 3, 3, 2), lambda x: layers.Conv3DTranspose(2, 2, 2)(x)),
    "depthwise": _on(_ANY, lambda x: layers.DepthwiseConv2D(3, padding="same")(x)),
    "separable": _on(_IMAGE, lambda x: layers.SeparableConv2D(4, 3)(x)),
    "max_pool": _on(_ANY, lambda x: layers.MaxPooling2D(2)(x)),
    "average_pool": _on(_IMAGE, lambda x: layers.AveragePooling2D(3, 2, "same")(x)),
    "global_pool": _on(_ANY, lambda x: layers.GlobalMaxPooling2D()(x)),
    "pool1d": _on((7, 2), lambda x: layers.AveragePooling1D(2)(layers.MaxPooling1D(2)(x))),
    "repeated": _on(_ANY, lambda x: layers.UpSampling2D(2)(x)),
    "bicubic": _on(_IMAGE, lambda x: layers.UpSampling2D((2, 3), interpolation="bicubic")(x)),
    "bilinear": _on(_IMAGE, lambda x: layers.Resizing(3, 4, interpolation="bilinear")(x)),
    "nearest": _on(_IMAGE, lambda x: layers.Resizing(8, 4, interpolation="nearest")(x)),
    "lanczos": _on(_IMAGE, lambda x: layers.Resizing(8, 4, interpolation="lanczos3")(x)),
    "margins": _on(_IMAGE, lambda x: layers.Cropping2D(1)(layers.ZeroPadding2D(2)(x))),
    "prelu": _on((5,), lambda x: layers.PReLU()(x)),
    "bent": _on((5,), lambda x: layers.ReLU(6, 0.1, 0.2)(layers.ELU(0.5)(x))),
    "silu": _on((5,), _activations("gelu", "mish", "silu")),
    "hard": _on((5,), _activations("hard_sigmoid", "hard_silu", "log_softmax")),
    "soft": _on((6,), _activations("softsign", "celu", "selu", "squareplus")),
    "shapes": _on((3, 4), lambda x: layers.Reshape((-1, 3))(layers.Flatten()(layers.Permute((2, 1))(x)))),
    "joined": _on((3, 4), lambda x: layers.Concatenate()([layers.Dot((2, 2))([x, x]), x])),
    "extremes": _on((4,), lambda x: layers.Maximum()([layers.Minimum()([x, -x]), x * 0.5])),
    "standard": _on((3,), lambda x: layers.Normalization(mean=[1.0, 2, 3], variance=[1.0, 2, 3])(x)),
    "sorted": _on((4, 4), lambda x: ops.logsumexp(x, -1) + ops.sum(ops.sort(x, -1)[..., :2], -1)),
    "taken": _on((4, 4), lambda x: ops.take(x, [0, 2], axis=1) * ops.std(x, -1, keepdims=True)[:, :2]),
    "moved": _on((4, 4), lambda x: ops.cumsum(x, 1) + ops.roll(x, 1, 1) + ops.flip(x, 1) + ops.tril(x)),
    "one_hot": _on((4,), lambda x: ops.one_hot(ops.argmax(x, -1), 4) * x),
    "chosen": _on((4, 4), lambda x: ops.where(x > 0, x, ops.max(x, axis=1, keepdims=True))),
    "statistics": _on((4, 4), lambda x: ops.norm(x, axis=-1) + ops.var(x, 1) + ops.median(x, 1)),
    "sliced": _on(_TIMES, lambda x: x[:, -1] + x[:, 0] + ops.mean(x, 1)),
    "parts": _on((6, 4), lambda x: ops.concatenate(ops.split(x, 2, axis=1), -1)),
    "products": _on((6, 4), lambda x: ops.einsum("bij,bkj->bik", x, x)),
    "largest": _on((6, 4), lambda x: ops.top_k(x, 2)[0]),
    "normalized": _on((6, 4), lambda x: ops.normalize(x, -1)),
}
