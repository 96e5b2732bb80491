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
from onnx import helper as h  # noqa: E402
from onnx_forms import (  # noqa: E402
    ALL,
    BASIC,
    EXTENDED,
    FUSED,
    MODELS,
    images,
    model,
    odd_channels,
    optimized,
    pools,
    weights,
)

import stopgrad.onnx as sgo  # noqa: E402
from stopgrad.interop.onnx.operators import blocked  # noqa: E402


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


@pytest.mark.parametrize("activation", ["Sigmoid", "HardSigmoid", "Tanh"])
def test_what_fills_up_blocks_of_channels_is_not_trained(activation: str, tmp_path: Path) -> None:
    proto, path = odd_channels(activation), tmp_path / "m.onnx"
    session = optimized(proto, ALL, path)
    if all(node.domain != "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("this processor has no such layout")
    x = np.random.default_rng(3).normal(size=(1, 3, 6, 6)).astype(np.float32)
    found: list[Any] = []
    for source in (path, proto):
        loaded = sgo.load(source)
        y = loaded.outputs["y"]
        with loaded.graph.as_default():
            asked = sg.gradients(
                sg.reduce_sum(sg.square(y)), [loaded.inputs["x"], *loaded.parameters.values()]
            )
        with sg.Session(loaded.graph, engine="numpy") as run:
            found.append(run.run([y, *asked], {loaded.inputs["x"]: x}))
        if source is path:
            held = [loaded.values()[name] for name in loaded.parameters]
    np.testing.assert_allclose(found[0][0], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(found[0][:2], found[1][:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())
    filled = [gradient[value == 0] for value, gradient in zip(held, found[0][2:], strict=True)]
    assert sum(one.size for one in filled) > 1000
    assert not any(one.any() for one in filled)
    for gradient in found[1][2:]:
        assert any(near(one, gradient) for one in found[0][2:])


def near(a: Any, b: Any) -> bool:
    """Whether the numbers of b that are not 0 are those of a, in any order."""
    one, other = (np.sort(x[np.abs(x) > 1e-9].ravel()) for x in (a, b))
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(b).max()))


def test_an_unknown_activation_is_refused_by_name() -> None:
    node = h.make_node("FusedGemm", ["x", "w"], ["y"], "n", domain="com.microsoft", activation="Nope")
    with pytest.raises(sg.GraphError, match="activation 'Nope' is unknown"):
        sgo.load(model([node], weights(w=(4, 2)), (4,)))


@pytest.mark.parametrize("op", ["GroupNorm", "SkipGroupNorm"])
def test_a_norm_of_groups_in_float16_with_a_scale_of_float32(op: str) -> None:
    """As the converter of ``onnxruntime.transformers`` leaves it, for kernels of GPUs."""
    rng = np.random.default_rng(3)
    x, skip = (rng.normal(size=(2, 3, 3, 8)).astype(np.float16) for _ in range(2))
    stored = {"scale": rng.normal(size=8).astype(np.float32), "shift": rng.normal(size=8).astype(np.float32)}
    operands = ["x", "scale", "shift", *(["skip"] if op == "SkipGroupNorm" else [])]
    node = h.make_node(op, operands, ["n"], domain="com.microsoft", groups=2, activation=1)
    nodes = [node, h.make_node("MatMul", ["n", "w"], ["y"])]
    stored |= {"w": rng.normal(size=(8, 4)).astype(np.float16)} | (
        {"skip": skip} if len(operands) > 3 else {}
    )
    info = [
        h.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, s) for n, s in (("x", x.shape), ("y", None))
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = h.make_graph(nodes, "g", info[:1], info[1:], tensors)
    imports = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
    y = sgo.load(h.make_model(graph, opset_imports=imports, ir_version=8))(x=x)
    total = x.astype(float) + (skip if len(operands) > 3 else 0.0)
    parts = total.reshape(2, 9, 2, 4)
    parts = parts - parts.mean((1, 3), keepdims=True)
    parts /= np.sqrt((parts**2).mean((1, 3), keepdims=True) + 1e-5)
    normed = parts.reshape(x.shape) * stored["scale"] + stored["shift"]
    expected = normed / (1 + np.exp(-normed)) @ stored["w"].astype(float)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(float), expected, atol=0.01 * np.abs(expected).max())
