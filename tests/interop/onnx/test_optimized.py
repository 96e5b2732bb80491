"""What stock ONNX Runtime's optimiser writes is read, with its values, its gradients and its weights."""

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

import stopgrad.onnx as sgo  # noqa: E402

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


def differences(session: Any, x: Any) -> Any:
    """The gradient of the sum of the outputs' squares, as differences of what the runtime computes."""

    def loss(at: Any) -> float:
        y = session.run(None, {"x": at.astype(np.float32)})[0].astype(float)
        return float((y * y).sum())

    found, step = np.zeros(x.shape), 1e-2
    for at in np.ndindex(x.shape):
        moved = x.astype(float)
        moved[at] += step
        up = loss(moved)
        moved[at] -= 2 * step
        found[at] = (up - loss(moved)) / (2 * step)
    return found


@pytest.mark.parametrize("level", [BASIC, EXTENDED, ALL], ids=["basic", "extended", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_values_gradients_and_weights(name: str, level: Any, tmp_path: Path) -> None:
    if name == "convolutions" and level == ALL:
        pytest.skip("the layout of one kind of processor; the next test")
    proto, path = MODELS[name], tmp_path / "m.onnx"
    session = optimized(proto, level, path)
    fused = {node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft"}
    if level != BASIC and (name in FUSED or fused):
        assert fused >= FUSED.get(name, {"FusedGemm"})
    sizes = [d.dim_value or 2 for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(3).normal(size=sizes).astype(np.float32)
    loaded = sgo.load(path)
    with loaded.graph.as_default():
        y = loaded.outputs["y"]
        (gradient,) = sg.gradients(sg.reduce_sum(sg.square(y)), [loaded.inputs["x"]])
    with sg.Session(loaded.graph, engine="numpy") as run:
        value, found = (run.run(one, {loaded.inputs["x"]: x}) for one in (y, gradient))
    np.testing.assert_allclose(value, session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
    expected = differences(session, x)
    close = np.isclose(found, expected, rtol=0.05, atol=0.02 * np.abs(expected).max())
    assert close.mean() > 0.9, "but for steps across a kink"
    trained = {
        key
        for key, one in sgo.training(path, loss="mse", folder=None).manifest["state"].items()
        if one["kind"] == "parameter"
    }
    assert len(trained) == {"convolutions": 6, "products": 1, "gelus": 5}.get(name, 4)


def test_the_layout_of_one_processor_is_refused_with_the_level_to_take(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    optimized(MODELS["convolutions"], ALL, path)
    if all(node.domain != "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("this processor has no such layout")
    with pytest.raises(sg.GraphError, match=r"nchwc::Conv(.|\n)*ORT_ENABLE_EXTENDED"):
        sgo.load(path)


def test_an_unknown_activation_is_refused_by_name() -> None:
    node = h.make_node("FusedGemm", ["x", "w"], ["y"], "n", domain="com.microsoft", activation="Nope")
    with pytest.raises(sg.GraphError, match="activation 'Nope' is unknown"):
        sgo.load(model([node], weights(w=(4, 2)), (4,)))
