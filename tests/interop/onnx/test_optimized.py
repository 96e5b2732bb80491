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
from stopgrad.interop.onnx.operators import blocked  # noqa: E402

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
    proto, path = MODELS[name], tmp_path / "m.onnx"
    session = optimized(proto, level, path)
    fused = {node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft"}
    if level != BASIC and (name in FUSED or fused) and (name, level) != ("convolutions", ALL):
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


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions that the level ``all`` has laid out for this processor."""
    path = tmp_path_factory.mktemp("all") / "m.onnx"
    optimized(MODELS["convolutions"], ALL, path)
    if all(node.domain != "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("this processor has no such layout")
    return path


def test_the_layout_of_another_processor_is_refused_with_the_level_to_take(
    laid_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "block_size", lambda: 0)
    with pytest.raises(sg.GraphError, match=r"nchwc|Conv(.|\n)*ORT_ENABLE_EXTENDED"):
        sgo.load(laid_out)


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


BILINEAR = {"coordinate_transformation_mode": "asymmetric"}


def test_pools_and_enlarging_in_blocks() -> None:
    if not blocked.block_size():
        pytest.skip("this processor has no such layout")
    x = np.random.default_rng(3).normal(size=(2, 20, 9, 9)).astype(np.float32)
    proto, results = pools("com.microsoft.nchwc"), []
    for source in (proto, pools("")):
        loaded = sgo.load(source)
        y = loaded.outputs["y"]
        with loaded.graph.as_default():
            (asked,) = sg.gradients(sg.reduce_sum(sg.square(y)), [loaded.inputs["x"]])
        with sg.Session(loaded.graph, engine="numpy") as run:
            results.append(run.run([y, asked], {loaded.inputs["x"]: x}))
    (theirs,) = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(results[0][0], theirs, rtol=1e-5, atol=1e-6)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def test_layers_on_channels_in_blocks(tmp_path: Path) -> None:
    proto, path = images(), tmp_path / "m.onnx"
    session = optimized(proto, ALL, path)
    x = np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)
    found = {node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft.nchwc"}
    if not found:
        pytest.skip("this processor has no such layout")
    assert found >= {"Conv", "ReorderInput", "ReorderOutput"}
    values, gradients = [], []
    for source in (path, proto):
        loaded = sgo.load(source)
        y = loaded.outputs["y"]
        places = [loaded.inputs["x"], *loaded.parameters.values()]
        with loaded.graph.as_default():
            asked = sg.gradients(sg.reduce_sum(sg.square(y)), places)
        with sg.Session(loaded.graph, engine="numpy") as run:
            value, *made = run.run([y, *asked], {loaded.inputs["x"]: x})
        values.append(value)
        gradients.append(dict(zip(["x", *loaded.parameters], made, strict=True)))
    np.testing.assert_allclose(values[0], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
    scale = np.abs(gradients[1]["x"]).max()
    np.testing.assert_allclose(gradients[0]["x"], gradients[1]["x"], rtol=1e-4, atol=1e-5 * scale)
    for dx in [one for name, one in gradients[1].items() if name not in ("x", "lb", "kb")]:
        laid = next(one for one in gradients[0].values() if near(one, dx))
        assert laid is not None  # The same numbers, in another order.


def near(a: Any, b: Any) -> bool:
    """Whether the numbers of b that are not 0 are those of a, in any order."""
    one, other = (np.sort(x[np.abs(x) > 1e-9].ravel()) for x in (a, b))
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(b).max()))


def test_an_unknown_activation_is_refused_by_name() -> None:
    node = h.make_node("FusedGemm", ["x", "w"], ["y"], "n", domain="com.microsoft", activation="Nope")
    with pytest.raises(sg.GraphError, match="activation 'Nope' is unknown"):
        sgo.load(model([node], weights(w=(4, 2)), (4,)))
