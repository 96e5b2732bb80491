"""Layers on images whose channels lie in blocks, which ONNX Runtime's optimiser writes at its level ``all``.

A tensor of the shape [batch, channels, sizes] then holds its elements in the order [batch, blocks, sizes,
channels of a block], and channels are filled up with zeros to whole blocks. The file does not tell how large
these are, since it is for the processor at hand; the runtime does.
"""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import stopgrad as sg
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.calling import Call, Known, Table
from stopgrad.interop.onnx.operators.contrib import fused_conv
from stopgrad.interop.onnx.operators.pooling import POOLING
from stopgrad.interop.onnx.operators.resizing import RESIZING
from stopgrad.interop.shared.slices import padded

CURE = (
    "ONNX Runtime's level 'all' has laid out its convolutions and their weights for one kind of processor: "
    "optimise at the level 'extended' (GraphOptimizationLevel.ORT_ENABLE_EXTENDED)"
)


@functools.lru_cache(1)
def block_size() -> int:
    """How many channels make a block on this processor, as the runtime lays out weights; 0 for no blocks."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        return 0
    weights = np.add.outer(np.arange(64), [0, 100]).astype(np.float32).reshape(64, 2, 1, 1)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, 4, 4])
        for name, n in (("x", 2), ("y", 64))
    )
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "probe", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.onnx"
        options = runtime.SessionOptions()
        options.optimized_model_filepath, options.log_severity_level = str(path), 4
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
        runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        optimised = onnx.load(path).graph
    if all(layer.op_type == "Conv" and layer.domain != "com.microsoft.nchwc" for layer in optimised.node):
        return 0
    laid_out = numpy_helper.to_array(optimised.initializer[0]).ravel()
    return int(np.argmax(laid_out >= 100))  # The first of the second input channel.


def _block(node: Call) -> int:
    size = block_size()
    if not size:
        node.fail(f"{CURE}; or load the file where ONNX Runtime has such a layout")
    return size


def _blocked(node: Call, x: sg.Output) -> sg.Output:
    """The elements of x, [batch, channels, sizes], in the order of blocks."""
    size, shape = _block(node), list(x.shape)
    if int(shape[1]) % size:
        node.fail(f"its tensor has {shape[1]} channels, not blocks of {size} as on this processor. {CURE}")
    parts = sg.reshape(x, [shape[0], shape[1] // size, size, *shape[2:]])
    return sg.reshape(sg.moveaxis(parts, 2, -1), shape)


def _opened(node: Call, x: sg.Output) -> sg.Output:
    """The same, the other way round."""
    size, shape = _block(node), list(x.shape)
    if int(shape[1]) % size:
        node.fail(f"its tensor has {shape[1]} channels, not blocks of {size} as on this processor. {CURE}")
    parts = sg.reshape(x, [shape[0], shape[1] // size, *shape[2:], size])
    return sg.reshape(sg.moveaxis(parts, -1, 2), shape)


def into_blocks(node: Call, x: sg.Output) -> sg.Output:
    x = sg.moveaxis(x, -1, 1) if node.attribute("channels_last", 0) else x
    missing = -int(x.shape[1]) % _block(node)
    return _blocked(node, padded(x, [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)]) if missing else x)


def from_blocks(node: Call, x: sg.Output) -> sg.Output:
    y = _opened(node, x)[:, : int(node.attribute("channels"))]
    return sg.moveaxis(y, 1, -1) if node.attribute("channels_last", 0) else y


def _inside(rule: Any) -> Callable[..., Tensor]:
    """A rule for tensors as they are elsewhere, between blocks."""
    return lambda node, x: _blocked(node, rule(node, _opened(node, x)))


def convolution(
    node: Call, x: sg.Output, w: sg.Output, b: sg.Output | None = None, z: sg.Output | None = None
) -> sg.Output:
    """A convolution whose weights lie in blocks of results, and of channels too if these fill one."""
    size, (out, channels, *window) = _block(node), w.shape
    if out % size:
        node.fail(f"its weights have {out} results, not blocks of {size} as on this processor. {CURE}")
    if int(channels) < size:
        laid = sg.reshape(w, [out // size, channels, *window, size])
        kernel = sg.moveaxis(laid, -1, 1)
    else:
        laid = sg.reshape(w, [out // size, channels // size, *window, size, size])
        kernel = sg.moveaxis(sg.moveaxis(laid, -1, 1), -1, 3)
    # Images of few channels come as they are.
    alone = int(channels) < size and int(node.attribute("group", 1)) == 1
    x, z = x if alone else _opened(node, x), None if z is None else _opened(node, z)
    kernel, used = sg.reshape(kernel, [out, channels, *window]), _used(node.raw(w), size)
    if used < int(channels):
        x, kernel = x[:, :used], kernel[:, :used]
    return _blocked(node, fused_conv(node, x, kernel, b, z))


def _used(w: sg.Output | Known, size: int) -> int:
    """How many channels a convolution reads that are not filled up: behind them all its weights are 0.

    Behind a sigmoid what fills up is 0.5, and these weights would be trained.
    The file does not tell the number. Of weights that are all 0, or 0 for whole blocks, all are used.
    """
    channels = int(w.shape[1])
    if not isinstance(w, Known) or not w.array.size or channels < size or channels % size:
        return channels
    blocks = w.array.reshape(w.shape[0] // size, channels // size, -1, size, size)
    (read,) = np.nonzero(blocks.any(axis=(0, 2, 4)).reshape(-1))
    return int(read[-1]) + 1 if read.size and read[-1] + size >= channels else channels


def _upsampled(node: Call, x: sg.Output) -> object:
    scales = [float(n) for n in node.attribute("scales")]
    how = {
        "mode": str(node.attribute("mode", "nearest")),
        "coordinate_transformation_mode": str(node.attribute("coordinate_transformation_mode", "asymmetric")),
        "nearest_mode": "floor",
    }
    return RESIZING["Resize"](node.having(how), x, None, Known(np.array(scales, np.float32)))


_RULES: Table = {
    "ReorderInput": into_blocks,
    "ReorderOutput": from_blocks,
    "Conv": convolution,
    "Upsample": _inside(_upsampled),
    **{
        name: _inside(POOLING[name])
        for name in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
    },
}

BLOCKED: Table = {f"com.microsoft.nchwc::{name}": rule for name, rule in _RULES.items()}
