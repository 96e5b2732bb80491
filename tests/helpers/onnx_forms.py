"""Small models for ONNX Runtime's optimiser and quantisers, what these write of them, and loops."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T, helper as h, numpy_helper
from onnx_loops import doubling, looped
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

RNG = np.random.default_rng(0)
BASIC, EXTENDED, ALL = (
    getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{name}") for name in ("BASIC", "EXTENDED", "ALL")
)


def weights(**shapes: Any) -> dict[str, Any]:
    return {name: RNG.normal(size=shape).astype(np.float32) * 0.5 for name, shape in shapes.items()}


def model(
    nodes: list[Any], stored: dict[str, Any], shape: tuple[Any, ...], more: tuple[Any, ...] = ()
) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    info = h.make_tensor_value_info
    x = info("x", T.FLOAT, ["n", *shape])
    graph = h.make_graph(nodes, "g", [x], [info("y", T.FLOAT, None)], tensors)
    imports = [h.make_opsetid("", 18), h.make_opsetid("com.microsoft", 1)]
    return h.make_model(graph, opset_imports=imports, ir_version=9)


def layer(activation: str, **attributes: Any) -> Any:
    nodes = [
        h.make_node("Gemm", ["x", "w", "b"], ["a"], "first", transB=1, alpha=0.5),
        h.make_node(activation, ["a"], ["c"], "act", **attributes),
        h.make_node("Gemm", ["c", "v", "d"], ["y"], "second"),
    ]
    return model(nodes, weights(w=(5, 4), b=5, v=(5, 3), d=3), (4,))


def convolutions() -> Any:
    norm = weights(scale=3, shift=3, mean=3) | {"var": RNG.uniform(0.5, 1, 3).astype(np.float32)}
    nodes = [
        h.make_node("Conv", ["x", "k", "kb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        h.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"], "norm"),
        h.make_node("Relu", ["b"], ["c"], "relu"),
        h.make_node("Conv", ["c", "l", "lb"], ["d"], "conv2", pads=[1, 1, 1, 1]),
        h.make_node("Add", ["d", "x"], ["e"], "add"),
        h.make_node("Relu", ["e"], ["f"], "relu2"),
        h.make_node("Conv", ["f", "m", "mb"], ["g"], "conv3"),
        h.make_node("LeakyRelu", ["g"], ["y"], "leaky", alpha=0.2),
    ]
    held = weights(k=(3, 3, 3, 3), kb=3, l=(3, 3, 3, 3), lb=3, m=(2, 3, 3, 3), mb=2)
    return model(nodes, held | norm, (3, 5, 5))


def products() -> Any:
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["q"], "q"),
        h.make_node("Transpose", ["x"], ["t"], "t", perm=[0, 2, 1]),
        h.make_node("MatMul", ["q", "t"], ["raw"], "raw"),
        h.make_node("Div", ["raw", "root"], ["scaled"], "scaled"),
        h.make_node("Softmax", ["scaled"], ["p"], "p", axis=-1),
        h.make_node("MatMul", ["p", "x"], ["y"], "y"),
    ]
    return model(nodes, weights(w=(4, 4)) | {"root": np.float32(2)}, (3, 4))


def gelus() -> Any:
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["m"], "m"),
        h.make_node("Add", ["m", "b"], ["a"], "a"),
        h.make_node("Div", ["a", "root"], ["r"], "r"),
        h.make_node("Erf", ["r"], ["e"], "e"),
        h.make_node("Add", ["e", "one"], ["e1"], "e1"),
        h.make_node("Mul", ["a", "e1"], ["g2"], "g2"),
        h.make_node("Mul", ["g2", "half"], ["g"], "g"),
        h.make_node("Mul", ["g", "quick"], ["s"], "s"),
        h.make_node("Sigmoid", ["s"], ["sig"], "sig"),
        h.make_node("Mul", ["g", "sig"], ["z"], "z"),
        h.make_node("Add", ["z", "x"], ["sum"], "sum"),
        h.make_node("LayerNormalization", ["sum", "scale", "shift"], ["n"], "n", axis=-1),
        h.make_node("MatMul", ["n", "v"], ["y"], "last"),
    ]
    numbers = {"root": 2**0.5, "one": 1, "half": 0.5, "quick": 1.702}
    held = weights(w=(4, 4), b=4, scale=4, shift=4, v=(4, 2))
    return model(nodes, held | {name: np.float32(x) for name, x in numbers.items()}, (3, 4))


MODELS = {
    **{name: layer(name) for name in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign")},
    "LeakyRelu": layer("LeakyRelu", alpha=0.3),
    "Elu": layer("Elu", alpha=0.7),
    "Selu": layer("Selu", alpha=1.2, gamma=0.9),
    "HardSigmoid": layer("HardSigmoid", alpha=0.3, beta=0.4),
    "ThresholdedRelu": layer("ThresholdedRelu", alpha=0.2),
    "convolutions": convolutions(),
    "products": products(),
    "gelus": gelus(),
}
FUSED = {
    "convolutions": {"FusedConv"},
    "products": {"FusedMatMul"},
    "gelus": {"BiasGelu", "QuickGelu", "SkipLayerNormalization"},
}


def optimized(proto: Any, level: Any, path: Path) -> Any:
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.graph_optimization_level = str(path), level
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options)


NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
BILINEAR = {"coordinate_transformation_mode": "asymmetric"}


def images() -> Any:
    """Every layer that has a form in blocks: few and many channels, one for each group, pools, enlarging."""
    sizes = {
        "k": (24, 3, 3, 3),
        "kb": 24,
        "l": (40, 24, 3, 3),
        "lb": 40,
        "d": (40, 1, 3, 3),
        "m": (7, 40, 1, 1),
    }
    nodes = [
        h.make_node("Conv", ["x", "k", "kb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        h.make_node("Relu", ["a"], ["b"], "relu"),
        h.make_node("MaxPool", ["b"], ["p"], "max", kernel_shape=[2, 2], strides=[2, 2]),
        h.make_node("Conv", ["p", "l", "lb"], ["c"], "conv2", pads=[1, 1, 1, 1]),
        h.make_node("Conv", ["c", "d"], ["e"], "by group", pads=[1, 1, 1, 1], group=40),
        h.make_node("Add", ["c", "e"], ["f"], "add"),
        h.make_node("AveragePool", ["f"], ["g"], "mean", kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
        h.make_node("Resize", ["g", "", "scales"], ["r"], "resize", **NEAREST),
        h.make_node("Conv", ["r", "m"], ["s"], "last"),
        h.make_node("GlobalAveragePool", ["f"], ["t"], "whole"),
        h.make_node("Conv", ["t", "m"], ["u"], "last2"),
        h.make_node("Add", ["s", "u"], ["y"], "sum"),
    ]
    scales = np.array([1, 1, 2, 2], np.float32)
    made = model(nodes, weights(**sizes) | {"scales": scales}, (3, 8, 8))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return made


def pools(domain: str) -> Any:
    """Layers in blocks, as nodes by hand, or the same elsewhere."""
    inside = {"domain": domain} if domain else {}
    into = [h.make_node("ReorderInput", ["x"], ["a"], **inside)]
    out = [h.make_node("ReorderOutput", ["f"], ["y"], channels=20, **inside)]
    scales = {"scales": [1, 1, 2, 2]}
    nodes = [
        h.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], pads=[0, 0, 1, 1], **inside),
        h.make_node("AveragePool", ["b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], **inside),
        h.make_node("Upsample", ["c"], ["d"], mode="linear", **BILINEAR, **scales, **inside)
        if domain
        else h.make_node("Resize", ["c", "", "scales"], ["d"], mode="linear", **BILINEAR),
        h.make_node("GlobalMaxPool", ["d"], ["e"], **inside),
        h.make_node("GlobalAveragePool", ["d"], ["e2"], **inside),
        h.make_node("Add", ["e", "e2"], ["f"]),
    ]
    if not domain:
        into = [h.make_node("Identity", ["x"], ["a"])]
        out = [h.make_node("Identity", ["f"], ["y"])]
    made = model([*into, *nodes, *out], {"scales": np.array(scales["scales"], np.float32)}, (20, 9, 9))
    made.opset_import.append(h.make_opsetid("com.microsoft.nchwc", 1))
    return made


def odd_channels(activation: str) -> Any:
    """Convolutions of 20 and 21 channels, which no block divides, behind an activation."""
    nodes = [
        h.make_node("Conv", ["x", "k", "kb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        h.make_node(activation, ["a"], ["b"], "act"),
        h.make_node("Conv", ["b", "l", "lb"], ["c"], "conv2", pads=[1, 1, 1, 1]),
        h.make_node(activation, ["c"], ["d"], "act2"),
        h.make_node("Conv", ["d", "m", "mb"], ["y"], "last"),
    ]
    sizes = {"k": (20, 3, 3, 3), "kb": 20, "l": (21, 20, 3, 3), "lb": 21, "m": (40, 21, 1, 1), "mb": 40}
    made = model(nodes, weights(**sizes), (3, 6, 6))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return made


class _Examples(CalibrationDataReader):
    """Inputs from which a quantiser takes its scales."""

    def __init__(self, proto: Any) -> None:
        sizes = [d.dim_value or 2 for d in proto.graph.input[0].type.tensor_type.shape.dim]
        random = np.random.default_rng(7)
        self._left = [{"x": random.normal(size=sizes).astype(np.float32)} for _ in range(3)]

    def get_next(self) -> Any:
        return self._left.pop() if self._left else None


def quantized(proto: Any, form: str, folder: Path) -> Any:
    """What the quantisers write: "dynamic", "QDQ", "QOperator"; "by channel" and "int4" are of QDQ too."""
    source, path = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(proto, source)
    if form == "dynamic":
        quantize_dynamic(source, path)
    else:
        quantize_static(
            source,
            path,
            _Examples(proto),
            quant_format=QuantFormat.QOperator if form == "QOperator" else QuantFormat.QDQ,
            per_channel=form == "by channel",
            weight_type=QuantType.QInt4 if form == "int4" else QuantType.QInt8,
        )
    return onnx.load(path)


def forms() -> Iterator[tuple[str, Any]]:
    """Every model, as the optimiser's levels and the quantisers write it, by name; and loops."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "m.onnx"
        for key, proto in {**MODELS, "images": images(), "odd channels": odd_channels("Sigmoid")}.items():
            for level, word in ((EXTENDED, "extended"), (ALL, "all")):
                optimized(proto, level, path)
                yield f"{key} {word}", onnx.load(path)
        for key in ("Relu", "convolutions", "products", "gelus"):
            for form in ("dynamic", "QDQ", "QOperator", "by channel", "int4"):
                made = quantized(MODELS[key], form, folder)
                yield f"{key} {form}", made
                optimized(made, EXTENDED, path)
                yield f"{key} {form} extended", onnx.load(path)
    yield "pools in blocks", pools("com.microsoft.nchwc")
    yield "loop by condition", doubling()
    yield "loop by condition and count", doubling(counted=True)
    yield "loop by count", looped("five")
    yield "loop by counter", looped("", ("Less", "k/new", "n"))
