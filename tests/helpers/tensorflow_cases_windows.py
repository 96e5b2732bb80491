"""Random calls of TensorFlow's convolutions, pooling, normalisation and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_case import (
    F32,
    F64,
    I32,
    I64,
    Array,
    Case,
    Family,
    Maker,
    Random,
    const,
    fed,
    ints,
)

# ---------------------------------------------------------------------------------------- convolutions


def _window(r: Random, rank: int, dilated: bool = True) -> dict[str, Any]:
    steps = [1 + r.below(2) for _ in range(rank)]
    gaps = [1 + r.below(2) for _ in range(rank)] if dilated and max(steps) == 1 else [1] * rank
    attributes: dict[str, Any] = {"strides": [1, *steps, 1], "padding": r.one("SAME", "VALID")}
    if dilated:
        attributes["dilations"] = [1, *gaps, 1]
    return attributes


def _is_dense(attributes: dict[str, Any]) -> bool:
    """Whether TensorFlow has the gradient on processors: of dilated convolutions it has none there."""
    return max(attributes["dilations"]) == 1


def _convolution(r: Random) -> Case:
    dtype = r.kind()
    channels, groups = 1 + r.below(3), 1
    attributes = _window(r, 2)
    if r.below(3) == 0:
        attributes["padding"] = "EXPLICIT"
        attributes["explicit_paddings"] = [0, 0, r.below(2), r.below(3), r.below(2), 1, 0, 0]
    x = r.array((2, 5 + r.below(3), 5 + r.below(3), channels * groups), dtype)
    filters = r.array((1 + r.below(3), 1 + r.below(3), channels, 2 * groups), dtype)
    return Case("Conv2D", [fed(x), fed(filters)], attributes, differentiated=_is_dense(attributes))


def _convolution_3d(r: Random) -> Case:
    dtype, channels = r.kind(), 1 + r.below(2)
    attributes = _window(r, 3, dilated=False)
    x, filters = r.array((1, 3, 4, 4, channels), dtype), r.array((2, 1 + r.below(2), 2, channels, 2), dtype)
    return Case("Conv3D", [fed(x), fed(filters)], attributes)


def _depthwise(r: Random) -> Case:
    dtype, channels = r.kind(), 1 + r.below(3)
    step = 1 + r.below(2)
    attributes = {
        "strides": [1, step, step, 1],
        "padding": r.one("SAME", "VALID"),
    }
    x = r.array((2, 5, 6, channels), dtype)
    return Case(
        "DepthwiseConv2dNative",
        [fed(x), fed(r.array((2, 1 + r.below(3), channels, 1 + r.below(2)), dtype))],
        attributes,
    )


def _counts(sizes: Sequence[int], window: Sequence[int], attributes: dict[str, Any]) -> list[int]:
    found = []
    gaps = attributes.get("dilations") or [1] * (len(sizes) + 2)
    for i, (size, k) in enumerate(zip(sizes, window, strict=True)):
        step, reach = attributes["strides"][i + 1], (k - 1) * gaps[i + 1] + 1
        found.append(-(-size // step) if attributes["padding"] == "SAME" else (size - reach) // step + 1)
    return found


def _back(op: str, rank: int) -> Maker:
    """The gradients of convolutions with respect to their input or filters."""

    def make(r: Random) -> Case:
        dtype, channels, multiplier = r.kind(), 1 + r.below(2), 1 + r.below(2)
        by_channel = op.startswith("Depthwise")
        attributes = _window(r, rank, dilated=False)  # TensorFlow has no dilated ones for processors.
        if by_channel:
            attributes["strides"][2] = attributes["strides"][1]
        sizes, window = [4 + r.below(2) for _ in range(rank)], [1 + r.below(3) for _ in range(rank)]
        counts = _counts(sizes, window, attributes)
        last = channels * multiplier if by_channel else multiplier
        x, filters = [2, *sizes, channels], [*window, channels, multiplier]
        g = fed(r.array((2, *counts, last), dtype))
        if "Filter" in op:
            return Case(op, [fed(r.array(x, dtype)), const(filters, I32), g], attributes)
        return Case(op, [const(x, I32), fed(r.array(filters, dtype)), g], attributes)

    return make


def _fused_convolution(r: Random) -> Case:
    """What TensorFlow's optimiser makes; it has no gradient there."""
    first = r.one(["BiasAdd"], ["FusedBatchNorm"])
    last = r.one([], ["Relu"], ["Elu"], ["LeakyRelu"])
    args = [r.array((2,), F32, 0.5) for _ in range(1 if first == ["BiasAdd"] else 4)]
    attributes = {**_window(r, 2, dilated=False), "fused_ops": [*first, *last], "epsilon": 0.01}
    attributes |= {"leakyrelu_alpha": 0.3, "num_args": len(args)}
    operands = [fed(r.array((2, 5, 5, 3), F32)), fed(r.array((3, 2, 3, 2), F32)), fed(args), fed([])]
    return Case("_FusedConv2D", operands, attributes, differentiated=False)


CONVOLUTIONS: Family = {
    "Conv2D": _convolution,
    "Conv3D": _convolution_3d,
    "_FusedConv2D": _fused_convolution,
    "DepthwiseConv2dNative": _depthwise,
    "Conv2DBackpropInput": _back("Conv2DBackpropInput", 2),
    "Conv2DBackpropFilter": _back("Conv2DBackpropFilter", 2),
    "Conv3DBackpropInputV2": _back("Conv3DBackpropInputV2", 3),
    "Conv3DBackpropFilterV2": _back("Conv3DBackpropFilterV2", 3),
    "DepthwiseConv2dNativeBackpropInput": _back("DepthwiseConv2dNativeBackpropInput", 2),
    "DepthwiseConv2dNativeBackpropFilter": _back("DepthwiseConv2dNativeBackpropFilter", 2),
}


# --------------------------------------------------------------------------------------------- pooling


def _pool(op: str, rank: int) -> Maker:
    def make(r: Random) -> Case:
        attributes = _window(r, rank, dilated=False)
        attributes["ksize"] = [1, *[1 + r.below(3) for _ in range(rank)], 1]
        if op == "MaxPool" and r.below(3) == 0:
            attributes["padding"] = "EXPLICIT"
            attributes["explicit_paddings"] = [0, 0, 0, min(1, attributes["ksize"][1] - 1), 0, 0, 0, 0]
        if op == "MaxPoolWithArgmax":
            attributes |= {"Targmax": I64, "include_batch_in_index": r.flag()}
        shape = (2, *[4 + r.below(2) for _ in range(rank)], 1 + r.below(2))
        return Case(op, [fed(_image(r, shape))], attributes)

    return make


def _pool_grad(op: str, rank: int) -> Maker:
    def make(r: Random) -> Case:
        attributes = _window(r, rank, dilated=False)
        attributes["ksize"] = [1, *[1 + r.below(3) for _ in range(rank)], 1]
        sizes = [4 + r.below(2) for _ in range(rank)]
        counts = _counts(sizes, attributes["ksize"][1:-1], attributes)
        shape, g = (2, *sizes, 2), r.array((2, *counts, 2), F32)
        if op.startswith("Avg"):
            return Case(op, [const(shape, I32), fed(g)], attributes)
        x = _image(r, shape)
        if op == "MaxPoolGradGrad":
            g = r.array(shape, F32)
        return Case(op, [fed(x), fed(_maxima(x, attributes, counts)), fed(g)], attributes)

    return make


def _image(r: Random, shape: Sequence[int]) -> Array:
    """Numbers; for three axes without ties: there, TensorFlow gives each of them the whole gradient."""
    return r.array(shape, F32) if len(shape) == 4 else r.apart(shape)


def _maxima(x: Array, attributes: dict[str, Any], counts: Sequence[int]) -> Array:
    """Pooled by NumPy, window by window."""
    rank = x.ndim - 2
    y = np.empty((x.shape[0], *counts, x.shape[-1]), x.dtype)
    for place in np.ndindex(*counts):
        spans = []
        for i in range(rank):
            size, k, step = x.shape[i + 1], attributes["ksize"][i + 1], attributes["strides"][i + 1]
            same = max((counts[i] - 1) * step + k - size, 0) // 2 if attributes["padding"] == "SAME" else 0
            start = place[i] * step - same
            spans.append(slice(max(start, 0), min(start + k, size)))
        y[(slice(None), *place)] = x[(slice(None), *spans)].max(axis=tuple(range(1, rank + 1)))
    return y


def _pool_v2(r: Random) -> Case:
    attributes = _window(r, 2, dilated=False)
    steps, window = attributes.pop("strides"), [1, 1 + r.below(3), 1 + r.below(3), 1]
    return Case(
        "MaxPoolV2", [fed(r.array((2, 4, 5, 2), F32)), const(window, I32), const(steps, I32)], attributes
    )


POOLING: Family = {
    "MaxPool": _pool("MaxPool", 2),
    "AvgPool": _pool("AvgPool", 2),
    "MaxPool3D": _pool("MaxPool3D", 3),
    "AvgPool3D": _pool("AvgPool3D", 3),
    "MaxPoolWithArgmax": _pool("MaxPoolWithArgmax", 2),
    "MaxPoolGrad": _pool_grad("MaxPoolGrad", 2),
    "AvgPoolGrad": _pool_grad("AvgPoolGrad", 2),
    "MaxPoolV2": _pool_v2,
    "MaxPoolGradGrad": _pool_grad("MaxPoolGradGrad", 2),
    "MaxPool3DGrad": _pool_grad("MaxPool3DGrad", 3),
    "AvgPool3DGrad": _pool_grad("AvgPool3DGrad", 3),
}


# -------------------------------------------------------------------------------------- normalizations


def _batch_norm(op: str) -> Maker:
    def make(r: Random) -> Case:
        layout = r.one("NHWC", "NCHW") if op != "FusedBatchNorm" else "NHWC"
        channels, training = 1 + r.below(3), r.flag()
        shape = (2, 3, 2, channels) if layout == "NHWC" else (2, channels, 3, 2)
        part = lambda low: r.array((channels,), F32, low, 2.0)
        attributes = {"is_training": training, "epsilon": 0.01, "data_format": layout}
        if op != "FusedBatchNorm" and training and r.flag():
            attributes["exponential_avg_factor"] = 0.3
        operands = [r.array(shape, F32), part(-2.0), part(-2.0), part(-2.0), part(0.5)]
        if training and "exponential_avg_factor" not in attributes:
            operands[3:] = [np.zeros(0, F32), np.zeros(0, F32)]
        # In inference TensorFlow leaves what only the gradient needs to chance.
        return Case(op, [fed(x) for x in operands], attributes, results=5 if training else 3)

    return make


def _batch_norm_grad(op: str) -> Maker:
    return lambda r: _batch_norm_grad_of(op, r)


def _batch_norm_grad_of(op: str, r: Random) -> Case:
    channels, training = 1 + r.below(3), r.flag()
    layout = r.one("NHWC", "NCHW") if training else "NHWC"
    x = r.array((2, 3, 2, channels) if layout == "NHWC" else (2, channels, 3, 2), F32)
    axes = (0, 1, 2) if layout == "NHWC" else (0, 2, 3)
    mean, variance = x.mean(axes), x.var(axes)
    if not training:
        mean, variance = r.array((channels,), F32), r.array((channels,), F32, 0.5)
    operands = [r.array(x.shape, F32), x, r.array((channels,), F32, 0.5), mean, variance]
    operands += [np.zeros(0, F32)] if op.endswith("V3") else []
    attributes = {"is_training": training, "epsilon": 0.01, "data_format": layout}
    return Case(op, [fed(o) for o in operands], attributes, results=3, differentiated=False)


def _bias(r: Random) -> Case:
    layout, dtype = r.one("NHWC", "NCHW"), r.kind()
    x = r.array(r.shape(2, 4) if layout == "NHWC" else r.shape(3, 4), dtype)
    size = x.shape[-1 if layout == "NHWC" else 1]
    return Case("BiasAdd", [fed(x), fed(r.array((size,), dtype))], {"data_format": layout})


def _bias_grad(r: Random) -> Case:
    layout = r.one("NHWC", "NCHW")
    x = r.array(r.shape(2, 4) if layout == "NHWC" else r.shape(3, 4), r.kind())
    return Case("BiasAddGrad", [fed(x)], {"data_format": layout})


def _response(r: Random) -> Case:
    attributes = {"depth_radius": r.below(3), "bias": 1.0, "alpha": r.one(0.5, 1.0), "beta": r.one(0.5, 0.75)}
    return Case("LRN", [fed(r.array((1, 2, 2, 4), F32))], attributes)


def _response_grad(r: Random) -> Case:
    """Its third operand, the result of the function itself, is computed by NumPy."""
    x, g = r.array((1, 2, 2, 4), F32), r.array((1, 2, 2, 4), F32)
    around = np.pad(x**2, [(0, 0)] * 3 + [(1, 1)])
    y = x / np.sqrt(1 + sum(around[..., i : i + 4] for i in range(3)))
    attributes = {"depth_radius": 1, "bias": 1.0, "alpha": 1.0, "beta": 0.5}
    return Case("LRNGrad", [fed(g), fed(x), fed(y.astype(F32))], attributes, differentiated=False)


NORMALIZATIONS: Family = {
    **{op: _batch_norm(op) for op in ("FusedBatchNorm", "FusedBatchNormV3")},
    "FusedBatchNormGradV3": _batch_norm_grad("FusedBatchNormGradV3"),
    "BiasAdd": _bias,
    "BiasAddGrad": _bias_grad,
    "LRN": _response,
    "LRNGrad": _response_grad,
    "FusedBatchNormV2": _batch_norm("FusedBatchNormV2"),
    "FusedBatchNormGrad": _batch_norm_grad("FusedBatchNormGrad"),
    "FusedBatchNormGradV2": _batch_norm_grad("FusedBatchNormGradV2"),
    "BiasAddV1": lambda r: Case("BiasAddV1", [fed(r.array((2, 3), F32)), fed(r.array((3,), F32))]),
}


# ---------------------------------------------------------------------------------------------- images


def _resize(op: str) -> Maker:
    def make(r: Random) -> Case:
        aligned, half = r.one((False, False), (True, False), (False, True))
        attributes: dict[str, Any] = {"align_corners": aligned}
        if op != "ResizeArea":
            attributes["half_pixel_centers"] = half
        dtype = r.one(F32, F64) if op == "ResizeNearestNeighbor" else F32
        x = r.array((1, 2 + r.below(4), 2 + r.below(4), 1 + r.below(2)), dtype)
        return Case(
            op, [fed(x), ints(1 + r.below(8), 1 + r.below(8))], attributes, differentiated=op != "ResizeArea"
        )

    return make


def _resize_grad(op: str) -> Maker:
    def make(r: Random) -> Case:
        aligned, half = r.one((False, False), (True, False), (False, True))
        attributes = {"align_corners": aligned, "half_pixel_centers": half}
        g = fed(r.array((1, 1 + r.below(6), 1 + r.below(6), 2), F32))
        sizes = 1 + r.below(5), 2 + r.below(4)
        if op == "ResizeNearestNeighborGrad":
            return Case(op, [g, ints(*sizes)], attributes, differentiated=False)
        return Case(op, [g, fed(r.array((1, *sizes, 2), F32))], attributes, differentiated=False)

    return make


def _scaled(r: Random) -> Case:
    kernels = (
        "lanczos1",
        "lanczos3",
        "lanczos5",
        "gaussian",
        "box",
        "triangle",
        "keyscubic",
        "mitchellcubic",
    )
    attributes = {"kernel_type": r.one(*kernels), "antialias": r.flag()}
    old, new = (4 + r.below(3), 4 + r.below(3)), (2 + r.below(7), 2 + r.below(7))
    scale = [b / a for a, b in zip(old, new, strict=True)]
    move = const([0.0, r.below(2)], F32)
    operands = [fed(r.array((1, *old, 2), F32)), ints(*new), const(scale, F32), move]
    return Case("ScaleAndTranslate", operands, attributes)


def _crops(r: Random) -> Case:
    count = 1 + r.below(3)
    start = r.array((count, 2), F32, -0.2, 0.6)
    boxes = np.concatenate([start, start + r.array((count, 2), F32, 0.2, 0.7)], 1) + np.float32(0.0123)
    method = r.one("bilinear", "nearest")
    operands = [fed(r.array((2, 4, 5, 2), F32)), fed(boxes), fed(r.rng.integers(0, 2, count).astype(I32))]
    return Case(
        "CropAndResize",
        [*operands, ints(1 + r.below(4), 1 + r.below(4))],
        {"method": method, "extrapolation_value": 0.5},
        differentiated=method == "bilinear",
    )


def _patches(r: Random) -> Case:
    attributes = {
        "ksizes": [1, 1 + r.below(2), 1 + r.below(3), 1],
        "strides": [1, 1 + r.below(2), 1, 1],
        "rates": [1, 1, 1 + r.below(2), 1],
        "padding": r.one("SAME", "VALID"),
    }
    return Case("ExtractImagePatches", [fed(r.array((2, 5, 6, 2), F32))], attributes)


IMAGES: Family = {
    **{op: _resize(op) for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea")},
    **{
        op: _resize_grad(op)
        for op in ("ResizeBilinearGrad", "ResizeNearestNeighborGrad", "ResizeBicubicGrad")
    },
    "ScaleAndTranslate": _scaled,
    "CropAndResize": _crops,
    "ExtractImagePatches": _patches,
}
