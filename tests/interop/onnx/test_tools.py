"""What tools write that rewrite ONNX files is read, with its values and its gradients, and can be trained.

One test for each tool that is installed, on a block of a transformer and on convolutions with norms, both by
hand. Eight architectures, and all tools, have a table of their own: docs/onnx-tools.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import onnx  # noqa: E402
from onnx import TensorProto as T, helper as h, numpy_helper  # noqa: E402
from onnx_tools import HALF, NEEDS, QUANTISED, TOOLS  # noqa: E402

import stopgrad.onnx as sgo  # noqa: E402

RNG = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore")  # What tools warn of is theirs.


def weights(size: float = 0.3, /, **shapes: Any) -> dict[str, Any]:
    return {name: (RNG.normal(size=shape) * size).astype(np.float32) for name, shape in shapes.items()}


def model(nodes: list[Any], stored: dict[str, Any], shape: list[int], out: list[int]) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    x, y = (h.make_tensor_value_info(name, T.FLOAT, sizes) for name, sizes in (("x", shape), ("y", out)))
    graph = h.make_graph(nodes, "g", [x], [y], tensors)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)


def block() -> Any:
    """Attention of two heads, a norm of the sum, and two layers with a GELU written out."""
    nodes = []
    for one in "qkv":
        nodes += [
            h.make_node("MatMul", ["x", f"{one}/w"], [f"{one}1"], f"{one}/MatMul"),
            h.make_node("Add", [f"{one}/b", f"{one}1"], [f"{one}2"], f"{one}/Add"),
            h.make_node("Reshape", [f"{one}2", "heads"], [f"{one}3"], f"{one}/Reshape"),
            h.make_node(
                *("Transpose", [f"{one}3"], [one], f"{one}/Transpose"),
                perm=[0, 2, 3, 1] if one == "k" else [0, 2, 1, 3],
            ),
        ]
    nodes += [
        h.make_node("MatMul", ["q", "k"], ["raw"], "raw"),
        h.make_node("Div", ["raw", "root"], ["scaled"], "scaled"),
        h.make_node("Softmax", ["scaled"], ["p"], "p", axis=-1),
        h.make_node("MatMul", ["p", "v"], ["mixed"], "mixed"),
        h.make_node("Transpose", ["mixed"], ["m1"], "m1", perm=[0, 2, 1, 3]),
        h.make_node("Reshape", ["m1", "joined"], ["m2"], "m2"),
        h.make_node("MatMul", ["m2", "o/w"], ["o1"], "o/MatMul"),
        h.make_node("Add", ["o/b", "o1"], ["o2"], "o/Add"),
        h.make_node("Add", ["o2", "x"], ["sum"], "sum"),
        h.make_node("LayerNormalization", ["sum", "n/w", "n/b"], ["n"], "n", axis=-1, epsilon=1e-5),
        h.make_node("MatMul", ["n", "up/w"], ["u1"], "up/MatMul"),
        h.make_node("Add", ["u1", "up/b"], ["u"], "up/Add"),
        h.make_node("Div", ["u", "sqrt2"], ["e1"], "e1"),
        h.make_node("Erf", ["e1"], ["e2"], "e2"),
        h.make_node("Add", ["e2", "one"], ["e3"], "e3"),
        h.make_node("Mul", ["u", "e3"], ["e4"], "e4"),
        h.make_node("Mul", ["e4", "half"], ["gelu"], "gelu"),
        h.make_node("MatMul", ["gelu", "down/w"], ["d1"], "down/MatMul"),
        h.make_node("Add", ["down/b", "d1"], ["d2"], "down/Add"),
        h.make_node("Add", ["d2", "n"], ["sum2"], "sum2"),
        h.make_node("LayerNormalization", ["sum2", "l/w", "l/b"], ["y"], "l", axis=-1, epsilon=1e-5),
    ]
    numbers = {"root": 4.0, "sqrt2": 2**0.5, "one": 1.0, "half": 0.5}
    stored = weights(**{f"{one}/w": (32, 32) for one in "qkvo"}, **{f"{one}/b": 32 for one in "qkvo"})
    stored |= weights(**{"up/w": (32, 48), "up/b": 48, "down/w": (48, 32), "down/b": 32})
    stored |= weights(1.0, **{"n/w": 32, "n/b": 32, "l/w": 32, "l/b": 32})
    stored |= {name: np.float32(x) for name, x in numbers.items()}
    stored |= {"heads": np.array([0, 0, 2, 16]), "joined": np.array([0, 0, 32])}
    return model(nodes, stored, [2, 5, 32], [2, 5, 32])


def convolutions() -> Any:
    norm = weights(scale=3, shift=3, mean=3) | {"var": RNG.uniform(0.5, 1, 3).astype(np.float32)}
    nodes = [
        h.make_node("Conv", ["x", "k", "kb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        h.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"], "norm"),
        h.make_node("Relu", ["b"], ["c"], "relu"),
        h.make_node("AveragePool", ["c"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        h.make_node("Conv", ["p", "l", "lb"], ["d"], "conv2", pads=[1, 1, 1, 1]),
        h.make_node("Add", ["d", "p"], ["e"], "add"),
        h.make_node("Sigmoid", ["e"], ["f"], "sigmoid"),
        h.make_node("GlobalAveragePool", ["f"], ["g"], "mean"),
        h.make_node("Flatten", ["g"], ["t"], "flat"),
        h.make_node("Gemm", ["t", "m", "mb"], ["y"], "last"),
    ]
    held = weights(k=(3, 3, 3, 3), kb=3, l=(3, 3, 3, 3), lb=3, m=(3, 4), mb=4)
    return model(nodes, held | norm, [2, 3, 6, 6], [2, 4])


MODELS = {"block": block(), "convolutions": convolutions()}
SLOW = {"its search for mixed precision", "onnxslim", "onnxsim", *(x for x in TOOLS if "onnxscript" in x)}


def value_and_gradient(source: Any, x: Any, **how: Any) -> tuple[Any, Any]:
    """The output, and the gradient of a weighted sum of it by the input."""
    loaded = sgo.load(source, **how)
    y = loaded.outputs["y"]
    with loaded.graph.as_default():
        c = np.cos(np.arange(np.prod(y.shape))).reshape(y.shape).astype(np.float32)
        (made,) = sg.gradients(sg.reduce_sum(y * c), [loaded.inputs["x"]])
    with sg.Session(loaded.graph, engine="numpy") as session:
        return session.run([y, made], {loaded.inputs["x"]: x})


def close(found: Any, expected: Any, share: float) -> bool:
    return float(np.linalg.norm(found - expected)) <= share * float(np.linalg.norm(expected))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tool", [pytest.param(x, marks=[pytest.mark.slow] * (x in SLOW)) for x in TOOLS])
def test_a_file_that_a_tool_has_rewritten(tool: str, name: str, tmp_path: Path) -> None:
    for module in NEEDS[tool]:
        pytest.importorskip(module)
    source, target = tmp_path / "source.onnx", tmp_path / "target.onnx"
    onnx.save(MODELS[name], source)
    shape = [d.dim_value for d in MODELS[name].graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    TOOLS[tool](source, target, {"x": x}, "bert")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    how = {"quantized": "straight-through"} if tool in QUANTISED else {}
    value, gradient = value_and_gradient(target, x, **how)
    assert close(value, session.run(None, {"x": x})[0], 0.05 if tool in HALF | QUANTISED else 1e-5)
    if tool == "MatMulNBits":  # Other weights than the source's: the runtime's difference along the gradient.
        c, norm = np.cos(np.arange(value.size)).reshape(value.shape), np.linalg.norm(gradient)
        steps = [x + sign * 0.01 * gradient / norm for sign in (1, -1)]
        up, down = (float((session.run(None, {"x": at})[0] * c).sum()) for at in steps)
        assert (up - down) / 0.02 == pytest.approx(norm, rel=1e-2)
        return
    _, unchanged = value_and_gradient(source, x)
    assert close(gradient, unchanged, 0.3 if tool in QUANTISED else 0.02 if tool in HALF else 1e-4)
    assert trained(target)


def trained(path: Path) -> list[str]:
    """What a training graph trains: weights, or adapters beside quantised ones; or what the refusal says."""
    lora: Any = None
    try:
        sgo.training(path, loss="mse", folder=None)
    except sg.ArgumentError as error:
        if "whole numbers inside of operators such as QLinearConv; quantise in the form QDQ" in str(error):
            return [str(error)]
        if "the weights are quantised" in str(error):
            lora = {"weights": "*_quantized", "rank": 2}
    state = sgo.training(path, loss="mse", folder=None, lora=lora).manifest["state"]
    return [name for name, one in state.items() if one["kind"] == "parameter"]
