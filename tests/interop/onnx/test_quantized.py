"""Quantised models: gradients end at the rounding and say so, or go straight through where asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stopgrad as sg

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import stopgrad.onnx as sgo  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype(np.float32)
W = RNG.normal(size=(4, 3)).astype(np.float32)
SCALE, ZERO = 0.02, 7


def model(nodes: list[Any], stored: dict[str, Any]) -> Any:
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])]
        for name, size in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph(nodes, "g", *infos, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def quantised_and_back(x: str, scale: str, zero: str) -> list[Any]:
    return [
        helper.make_node("QuantizeLinear", [x, scale, zero], [f"{x}/q"], f"{x}/quantize"),
        helper.make_node("DequantizeLinear", [f"{x}/q", scale, zero], [f"{x}/d"], f"{x}/dequantize"),
    ]


QDQ = model(
    [
        *quantised_and_back("x", "x/scale", "x/zero"),
        *quantised_and_back("w", "w/scale", "w/zero"),
        helper.make_node("MatMul", ["x/d", "w/d"], ["y"]),
    ],
    {
        "w": W,
        "x/scale": np.float32(0.01),
        "x/zero": np.int8(0),
        "w/scale": np.float32(SCALE),
        "w/zero": np.int8(ZERO),
    },
)
WHOLE = np.clip(np.round(W / 0.02), -128, 127).astype(np.int8)
DYNAMIC = model(
    [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], "quantize"),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["scale", "w/scale"], ["both"]),
        helper.make_node("Mul", ["float", "both"], ["y"]),
    ],
    {"w": WHOLE, "w/scale": np.float32(0.02)},
)


def gradients(source: Any, *names: str, **how: Any) -> tuple[Any, list[Any]]:
    """The result, and the gradients of the sum of its weighted elements by the input and by weights."""
    loaded = sgo.load(source, **how)
    x, y = loaded.inputs["x"], loaded.outputs["y"]
    with loaded.graph.as_default():
        found = sg.gradients(sg.reduce_sum(y * y), [x, *[loaded.parameters[name] for name in names]])
    with sg.Session(loaded.graph, engine="numpy") as session:
        return session.run(y, {x: X}), [None if g is None else session.run(g, {x: X}) for g in found]


def test_gradients_straight_through_are_those_of_pytorchs_fake_quantisation() -> None:
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W, requires_grad=True)
    theirs = torch.fake_quantize_per_tensor_affine
    y = theirs(x, 0.01, 0, -128, 127) @ theirs(w, SCALE, ZERO, -128, 127)
    (y * y).sum().backward()
    assert (x.grad == 0).any(), "some numbers are beyond the range"
    found, (dx, dw) = gradients(QDQ, "w", quantized="straight-through")
    np.testing.assert_allclose(found, y.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dx, x.grad.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, w.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_a_dynamically_quantised_product_has_the_gradient_of_rounding_that_is_passed_through() -> None:
    x = torch.tensor(X, requires_grad=True)
    scale = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 255
    shares = x / scale
    zero = (-x.min().clamp(max=0) / scale).round().detach()
    rounded = shares + (shares.round() - shares).detach()
    y = (rounded @ torch.tensor(WHOLE, dtype=torch.float32)) * (scale * 0.02)
    (y * y).sum().backward()
    assert 0 < zero < 255
    found, (dx,) = gradients(DYNAMIC, quantized="straight-through")
    np.testing.assert_allclose(found, y.detach().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dx, x.grad.numpy(), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("source", [QDQ, DYNAMIC], ids=["QDQ", "dynamic"])
def test_values_are_the_same_with_and_without(source: Any) -> None:
    plain, straight = (sgo.load(source, quantized=how) for how in (None, "straight-through"))
    np.testing.assert_array_equal(plain(X), straight(X))


def test_without_being_asked_gradients_are_absent_with_the_reason() -> None:
    loaded = sgo.load(QDQ)
    x, w = loaded.inputs["x"], loaded.parameters["w"]
    flow = sg.explain(loaded.outputs["y"], [x, w])
    for one in (x, w):
        assert flow[one].status == "not differentiable"
        assert any("Quantize" in cut.location.source for cut in flow[one].cuts)


def test_a_quantised_layer_is_trained_straight_through() -> None:
    loaded = sgo.load(QDQ, quantized="straight-through")
    with loaded.graph.as_default():
        loss = sg.reduce_mean(sg.square(loaded.outputs["y"] - 1.0))
        update = sg.optimizers.sgd(loss, [loaded.parameters["w"]], 0.05)
    with sg.Session(loaded.graph, engine="numpy") as session:
        losses = [float(session.run([loss, update.run], {loaded.inputs["x"]: X})[0]) for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]


def test_another_word_is_refused() -> None:
    with pytest.raises(sg.ArgumentError, match="'straight-through' or None"):
        sgo.load(QDQ, quantized="ste")
