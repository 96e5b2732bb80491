"""Quantised files in training: scales are constants, gradients pass rounding, adapters learn beside."""

from __future__ import annotations

import json
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
from stopgrad.interop.onnx.operators.quantized_layers import LEVELS  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype(np.float32)
WHOLE = RNG.integers(-127, 127, size=(4, 3)).astype(np.int8)


def model(nodes: list[Any], stored: dict[str, Any], opset: int = 21, y: tuple[Any, ...] = ("n", 3)) -> Any:
    tensors = [
        array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(np.asarray(array), name)
        for name, array in stored.items()
    ]
    infos = [[h.make_tensor_value_info(*one)] for one in (("x", T.FLOAT, ["n", 4]), ("y", T.FLOAT, [*y]))]
    imports = [h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1)]
    return h.make_model(h.make_graph(nodes, "g", *infos, tensors), opset_imports=imports, ir_version=10)


def microsoft(kind: str, *args: Any, **how: Any) -> Any:
    return h.make_node(kind, *args, domain="com.microsoft", **how)


# ------------------------------------------------------------------------------------------------- scales


def qdq(per_channel: bool, relu: bool = False) -> Any:
    """Static quantisation, as ONNX Runtime writes it: activations, weights and biases."""
    scale = np.array([0.01, 0.02, 0.03], np.float32) if per_channel else np.array(0.02, np.float32)
    zero = np.zeros(3 if per_channel else (), np.int8)
    nodes = [
        h.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "qx"),
        h.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "dx"),
        h.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], "dw", axis=1),
        h.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], "db", axis=0),
        h.make_node("Gemm", ["xd", "wd", "bd"], ["y"], "gemm"),
    ]
    stored = {"xs": np.float32(0.015), "xz": np.uint8(120), "w": WHOLE, "ws": scale, "wz": zero}
    stored |= {"b": np.array([3, -5, 7], np.int32), "bs": (scale * 0.015).reshape(-1)}
    stored |= {"bz": np.zeros(3 if per_channel else 1, np.int32)}
    return model(nodes, stored)


@pytest.mark.parametrize("per_channel", [False, True])
def test_scales_are_constants_unless_asked_for(per_channel: bool) -> None:
    assert not sgo.load(qdq(per_channel)).parameters
    assert set(sgo.load(qdq(per_channel), parameters="*").parameters) == {"xs", "ws", "bs"}
    made = sgo.training(qdq(per_channel), loss="mse", folder=None, train="ws")
    fates = {name: one["use"] for name, one in made.manifest["tensors"].items()}
    assert fates == {"xs": "constant", "ws": "trained", "bs": "constant"}
    assert made.manifest["tensors"]["xs"]["why"] == "a scale of quantised numbers"


def test_scales_of_dynamic_quantisation_are_constants() -> None:
    nodes = [
        h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "q"),
        h.make_node("MatMulInteger", ["q", "w", "z"], ["whole"]),
        h.make_node("Cast", ["whole"], ["float"], to=T.FLOAT),
        h.make_node("Mul", ["s", "ws"], ["both"]),
        h.make_node("Mul", ["float", "both"], ["product"]),
        h.make_node("Add", ["product", "bias"], ["y"]),
    ]
    stored = {"w": WHOLE, "ws": np.array([0.01, 0.02, 0.03], np.float32), "bias": np.ones(3, np.float32)}
    assert list(sgo.load(model(nodes, stored)).parameters) == ["bias"]


def test_a_weight_that_is_quantised_itself_stays_a_weight() -> None:
    nodes = [
        h.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"]),
        h.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"]),
        h.make_node("MatMul", ["x", "wd"], ["y"]),
    ]
    stored = {"w": WHOLE * np.float32(0.1), "ws": np.float32(0.1), "wz": np.int8(0)}
    made = sgo.training(model(nodes, stored), loss="mse", folder=None)
    uses = {name: one["use"] for name, one in made.manifest["tensors"].items()}
    assert uses == {"w": "trained", "ws": "constant"}
    assert any("straight through the rounding" in note for note in made.notes)


def test_with_nothing_but_quantised_weights_the_error_says_what_can_be_done() -> None:
    with pytest.raises(sg.ArgumentError, match=r"quantised .*'w'.*lora"):
        sgo.training(qdq(False), loss="mse", folder=None)


# ------------------------------------------------------------------------------ gradients of QOperator forms


def input_gradient(proto: Any, x: Any = X) -> tuple[Any, Any]:
    loaded = sgo.load(proto, quantized="straight-through")
    with loaded.graph.as_default():
        y = loaded.outputs["y"]
        (found,) = sg.gradients(sg.reduce_sum(sg.square(y)), [loaded.inputs["x"]])
    with sg.Session(loaded.graph, engine="numpy") as session:
        return session.run(y, {loaded.inputs["x"]: x}), session.run(found, {loaded.inputs["x"]: x})


def runtime(proto: Any, x: Any = X) -> Any:
    return ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]


SCALES = {"xs": np.float32(0.015), "xz": np.uint8(120), "ys": np.float32(0.05), "yz": np.uint8(130)}
SCALES |= {"w": WHOLE, "ws": np.float32(0.02), "wz": np.int8(0), "b": np.array([3, -5, 7], np.int32)}
KERNEL = np.ascontiguousarray(WHOLE.T).reshape(3, 1, 2, 2)
IN = h.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"])
OUT = h.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"])
FORMS = {
    "QLinearMatMul": [h.make_node("QLinearMatMul", ["xq", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["yq"])],
    "QGemm": [microsoft("QGemm", ["xq", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"])],
    "moved": [
        h.make_node("Reshape", ["xq", "shape"], ["r"]),
        h.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        h.make_node("Reshape", ["t", "back"], ["f"]),
        microsoft("QGemm", ["f", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearAdd": [
        microsoft("QLinearAdd", ["xq", "xs", "xz", "xq", "xs", "xz", "ys", "yz"], ["sum"]),
        microsoft("QGemm", ["sum", "ys", "yz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearMul": [
        microsoft("QLinearMul", ["xq", "xs", "xz", "xq", "xs", "xz", "ys", "yz"], ["sum"]),
        microsoft("QGemm", ["sum", "ys", "yz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearSigmoid": [
        microsoft("QLinearSigmoid", ["xq", "xs", "xz", "ys", "yz"], ["s"]),
        microsoft("QGemm", ["s", "ys", "yz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearLeakyRelu": [
        microsoft("QLinearLeakyRelu", ["xq", "xs", "xz", "ys", "yz"], ["s"], alpha=0.2),
        microsoft("QGemm", ["s", "ys", "yz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearSoftmax": [
        microsoft("QLinearSoftmax", ["xq", "xs", "xz", "ps", "pz"], ["s"], axis=1, opset=13),
        microsoft("QGemm", ["s", "ps", "pz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearGlobalAveragePool": [
        h.make_node("Reshape", ["xq", "images"], ["r"]),
        microsoft("QLinearGlobalAveragePool", ["r", "xs", "xz", "ms", "yz"], ["m"]),
        h.make_node("Expand", ["m", "twice"], ["e"]),
        h.make_node("Reshape", ["e", "back"], ["s"]),
        microsoft("QGemm", ["s", "ms", "yz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
    "QLinearConv": [
        h.make_node("Reshape", ["xq", "image"], ["r"]),
        h.make_node("QLinearConv", ["r", "xs", "xz", "k", "ws", "wz", "ys", "yz", "b"], ["c"]),
        h.make_node("Reshape", ["c", "three"], ["yq"]),
    ],
    "QLinearConcat": [
        microsoft("QLinearConcat", ["xs", "xz", "xq", "xs", "xz", "xq", "xs", "xz"], ["s"], axis=0),
        microsoft("QGemm", ["s", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"], ["yq"]),
    ],
}


def fake(x: Any, scale: float, zero: int) -> Any:
    torch = pytest.importorskip("torch")
    return torch.fake_quantize_per_tensor_affine(x.float(), scale, zero, 0, 255).double()


def reference(form: str, x: Any) -> tuple[Any, Any]:
    """The value and the gradient with PyTorch's fake quantisation."""
    torch = pytest.importorskip("torch")
    t = torch.tensor(x, requires_grad=True)
    held, by = fake(t, 0.015, 120), 0.015
    w = torch.tensor(WHOLE).double() * np.float32(0.02)
    if form == "moved":
        held = held.reshape(-1, 2, 2).transpose(1, 2).reshape(-1, 4)
    if form == "QLinearConcat":
        held = torch.cat([held, held])
    steps = {"QLinearAdd": lambda a: a + a, "QLinearMul": lambda a: a * a, "QLinearSigmoid": torch.sigmoid}
    steps["QLinearLeakyRelu"] = lambda a: torch.nn.functional.leaky_relu(a, 0.2)
    if form in steps:
        held, by = fake(steps[form](held), 0.05, 130), 0.05
    if form == "QLinearGlobalAveragePool":
        means = held.reshape(-1, 2, 2).mean(2, True).expand(-1, 2, 2).flatten(1)
        held, by = fake(means, 0.0483, 130), 0.0483
    if form == "QLinearSoftmax":
        held, by = fake(held.softmax(1), 1 / 256, 0), 1 / 256
    bias = 0.0 if form == "QLinearMatMul" else torch.tensor([3.0, -5.0, 7.0]).double() * by * 0.02
    y = fake(held @ w + bias, 0.05, 130)
    (y * y).sum().backward()
    return y.detach().numpy(), t.grad.numpy()


@pytest.mark.parametrize("form", FORMS)
def test_operators_on_quantised_numbers_have_the_gradient_of_fake_quantisation(form: str) -> None:
    stored = SCALES | {"shape": np.array([-1, 2, 2]), "back": np.array([-1, 4])}
    stored |= {"images": np.array([-1, 2, 1, 2]), "twice": np.array([5, 2, 1, 2])}
    stored |= {"image": np.array([-1, 1, 2, 2]), "three": np.array([-1, 3]), "k": KERNEL}
    stored |= {"ps": np.float32(1 / 256), "pz": np.uint8(0), "ms": np.float32(0.0483)}
    proto = model([IN, *FORMS[form], OUT], stored)
    y, gradient = input_gradient(proto)
    np.testing.assert_allclose(y, runtime(proto), atol=1e-6)
    value, expected = reference(form, X)
    np.testing.assert_allclose(y, value, atol=0.051)  # One step of rounding, where a sum lies in between.
    np.testing.assert_allclose(gradient, expected, rtol=0.05, atol=0.4)
    assert np.abs(expected).max() > 1


WINDOW = {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [1, 0, 0, 1]}
LAST = {"channels_last": 1}
INTO, OUT_OF = {"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]}
PAIRS: dict[str, tuple[list[Any], list[Any]]] = {
    "QLinearAveragePool": (
        [microsoft("QLinearAveragePool", ["xq", "xs", "xz", "ys", "yz"], ["yq"], **WINDOW)],
        [h.make_node("AveragePool", ["xf"], ["yf"], **WINDOW)],
    ),
    "QLinearAveragePool, channels last": (
        [microsoft("QLinearAveragePool", ["xq", "xs", "xz", "ys", "yz"], ["yq"], **WINDOW, **LAST)],
        [
            h.make_node("Transpose", ["xf"], ["xt"], **INTO),
            h.make_node("AveragePool", ["xt"], ["yt"], **WINDOW),
            h.make_node("Transpose", ["yt"], ["yf"], **OUT_OF),
        ],
    ),
    "QLinearWhere": (
        [
            h.make_node("Greater", ["x", "half"], ["on"]),
            microsoft("QLinearWhere", ["on", "xq", "xs", "xz", "xq", "ts", "xz", "ys", "yz"], ["yq"]),
        ],
        [
            h.make_node("Greater", ["x", "half"], ["on"]),
            h.make_node("Mul", ["xf", "more"], ["xm"]),
            h.make_node("Where", ["on", "xf", "xm"], ["yf"]),
        ],
    ),
    "NhwcMaxPool": (
        [
            microsoft("NhwcMaxPool", ["xq"], ["m"], **WINDOW),
            microsoft("QLinearMul", ["m", "xs", "xz", "m", "xs", "xz", "ys", "yz"], ["yq"]),
        ],
        [
            h.make_node("Transpose", ["xf"], ["xt"], **INTO),
            h.make_node("MaxPool", ["xt"], ["yt"], **WINDOW),
            h.make_node("Transpose", ["yt"], ["m"], **OUT_OF),
            h.make_node("Mul", ["m", "m"], ["yf"]),
        ],
    ),
    "QLinearConv, channels last": (
        [microsoft("QLinearConv", ["xq", "xs", "xz", "k", "ws", "wz", "ys", "yz", "b"], ["yq"], **LAST)],
        [
            h.make_node("Transpose", ["xf"], ["xt"], **INTO),
            h.make_node("Conv", ["xt", "kf", "bf"], ["yt"]),
            h.make_node("Transpose", ["yt"], ["yf"], **OUT_OF),
        ],
    ),
}


@pytest.mark.parametrize("form", PAIRS)
def test_operators_on_quantised_images_have_the_gradient_of_what_they_join(form: str) -> None:
    x = np.random.default_rng(4).normal(size=(2, 4, 3, 3)).astype(np.float32)
    stored = SCALES | {"half": np.float32(0.1), "ts": np.float32(0.03), "more": np.float32(2)}
    k = np.random.default_rng(5).integers(-90, 90, size=(3, 3, 2, 2)).astype(np.int8)
    stored |= {"k": k, "kf": (k * np.float32(0.02)).astype(np.float32)}
    stored |= {"bf": (SCALES["b"] * np.float32(0.015 * 0.02)).astype(np.float32)}
    apart = [
        h.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        *PAIRS[form][1],
        h.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["yq"]),
    ]
    found = []
    for nodes in (PAIRS[form][0], apart):
        proto = model([IN, *nodes, OUT], stored)
        proto.graph.input[0].CopyFrom(h.make_tensor_value_info("x", T.FLOAT, list(x.shape)))
        proto.graph.output[0].CopyFrom(h.make_tensor_value_info("y", T.FLOAT, None))
        found.append(input_gradient(proto, x))
        np.testing.assert_allclose(found[-1][0], runtime(proto, x), atol=0.051)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=0.051)
    assert np.abs(found[0][1]).max() > 0.1


def test_attention_on_quantised_numbers_has_the_gradient_of_attention_on_floats() -> None:
    w = np.random.default_rng(6).integers(-90, 90, size=(4, 12)).astype(np.int8)
    bias = np.linspace(-1, 1, 12).astype(np.float32)
    stored = SCALES | {"w": w, "wf": (w * np.float32(0.02)).astype(np.float32), "bias": bias}
    together = microsoft("QAttention", ["xq", "w", "bias", "xs", "ws", "", "xz", "wz"], ["y"], num_heads=2)
    apart = [
        h.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        microsoft("Attention", ["xf", "wf", "bias"], ["y"], num_heads=2),
    ]
    x = np.random.default_rng(4).normal(size=(2, 3, 4)).astype(np.float32)
    found = []
    for nodes in ([together], apart):
        proto = model([IN, *nodes], stored)
        proto.graph.input[0].CopyFrom(h.make_tensor_value_info("x", T.FLOAT, list(x.shape)))
        proto.graph.output[0].CopyFrom(h.make_tensor_value_info("y", T.FLOAT, None))
        found.append(input_gradient(proto, x))
    np.testing.assert_allclose(found[0][0], runtime(proto, x), rtol=1e-3, atol=1e-4)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


def test_a_dynamic_product_of_the_runtime() -> None:
    nodes = [microsoft("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "bias"], ["y"])]
    proto = model(nodes, SCALES | {"bias": np.ones(3, np.float32)})
    y, gradient = input_gradient(proto)
    np.testing.assert_allclose(y, runtime(proto), rtol=1e-5, atol=1e-5)
    w = WHOLE.astype(float) * 0.02
    # The scale itself depends on the largest and smallest numbers, so that these have a share more.
    inner = (X.max() != X) & (X.min() != X)
    np.testing.assert_allclose(gradient[inner], (2 * y @ w.T)[inner], rtol=1e-4)


def test_a_convolution_of_integers_has_the_gradient_of_fake_quantisation() -> None:
    nodes = [
        IN,
        h.make_node("Reshape", ["xq", "image"], ["r"]),
        h.make_node("ConvInteger", ["r", "k", "xz"], ["whole"]),
        h.make_node("Cast", ["whole"], ["float"], to=T.FLOAT),
        h.make_node("Mul", ["float", "both"], ["scaled"]),
        h.make_node("Reshape", ["scaled", "three"], ["y"]),
    ]
    stored = SCALES | {"image": np.array([-1, 1, 2, 2]), "three": np.array([-1, 3]), "k": KERNEL}
    proto = model(nodes, stored | {"both": np.float32(0.015 * 0.02)})
    y, gradient = input_gradient(proto)
    np.testing.assert_allclose(y, runtime(proto), rtol=1e-6, atol=1e-6)
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    expected = fake(x, 0.015, 120) @ (torch.tensor(WHOLE).double() * 0.02)
    (expected * expected).sum().backward()
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_weights_of_float8_are_read_and_quantising_to_it_is_refused_by_name() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    eight = WHOLE.astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    nodes = [
        h.make_node("DequantizeLinear", ["w8", "ws"], ["wf"]),
        h.make_node("MatMul", ["x", "wf"], ["y"]),
    ]
    w8 = h.make_tensor("w8", T.FLOAT8E4M3FN, [4, 3], eight.astype(np.float32).ravel().tolist())
    proto = model(nodes, SCALES)
    proto.graph.initializer.append(w8)
    y, gradient = input_gradient(proto)
    np.testing.assert_allclose(y, runtime(proto), rtol=1e-6)
    weights = eight.astype(np.float32) * np.float32(0.02)
    np.testing.assert_allclose(gradient, 2 * y @ weights.T, rtol=1e-5)
    zero = h.make_tensor("z8", T.FLOAT8E4M3FN, [], [0.0])
    rounding = [
        h.make_node("QuantizeLinear", ["x", "ws", "z8"], ["q"], "rounds"),
        h.make_node("DequantizeLinear", ["q", "ws", "z8"], ["xf"]),
        h.make_node("MatMul", ["xf", "wf"], ["y"]),
    ]
    proto = model([nodes[0], *rounding], SCALES)
    proto.graph.initializer.extend([w8, zero])
    with pytest.raises(sg.GraphError, match="'rounds': there is no element type float8_e4m3fn here"):
        sgo.load(proto)


# ------------------------------------------------------------------------------------------------ adapters


def blocks(rows: int, columns: int, size: int) -> tuple[Any, Any, Any]:
    """Weights of 4 bits in blocks, as LLM exporters write them, and the matrix that they are."""
    numbers = RNG.integers(0, 16, size=(rows, columns)).astype(np.uint8)
    scales = RNG.uniform(0.01, 0.1, size=(rows, columns // size)).astype(np.float32)
    packed = (numbers[:, 0::2] | (numbers[:, 1::2] << 4)).reshape(rows, columns // size, size // 2)
    whole = (numbers.astype(np.float64) - 8) * np.repeat(scales, size, 1)
    return packed, scales, whole.T


def linear(form: str) -> tuple[Any, Any, str]:
    """A layer with a quantised weight, the float matrix, and the name of the weight."""
    if form == "bits":
        packed, scales, w = blocks(3, 32, 16)
        nodes = [microsoft("MatMulNBits", ["h", "w", "ws"], ["y"], "p", K=32, N=3, bits=4, block_size=16)]
        spread = RNG.normal(size=(4, 32)).astype(np.float32)
        nodes.insert(0, h.make_node("MatMul", ["x", "spread"], ["h"]))
        return model(nodes, {"w": packed, "ws": scales.reshape(-1), "spread": spread}), (spread, w), "w"
    if form == "levels":
        numbers = RNG.integers(0, 16, size=(3, 32)).astype(np.uint8)
        largest = RNG.uniform(0.1, 0.5, size=6).astype(np.float32)
        packed = (numbers[:, 0::2] << 4 | numbers[:, 1::2]).reshape(-1)
        how = {"K": 32, "N": 3, "block_size": 16, "quant_type": 1}
        spread = RNG.normal(size=(4, 32)).astype(np.float32)
        nodes = [h.make_node("MatMul", ["x", "spread"], ["h"])]
        nodes.append(microsoft("MatMulBnb4", ["h", "w", "most"], ["y"], "p", **how))
        w = LEVELS[1][numbers].astype(float) * np.repeat(largest, 16).reshape(3, 32)
        return model(nodes, {"w": packed, "most": largest, "spread": spread}), (spread, w.T), "w"
    scale = {"tensor": np.float32(0.02), "channel": np.array([0.01, 0.02, 0.03], np.float32)}
    if form == "int4":
        tensor = h.make_tensor("w", T.INT4, [4, 3], list((WHOLE // 16).reshape(-1)))
        stored: dict[str, Any] = {"w": tensor, "ws": np.float32(0.2)}
        w = (WHOLE // 16).astype(float) * np.float64(np.float32(0.2))
    else:
        stored = {"w": WHOLE, "ws": scale[form]}
        w = WHOLE.astype(float) * scale[form].astype(float)
    nodes = [h.make_node("DequantizeLinear", ["w", "ws"], ["wd"], "dw", axis=1)]
    nodes.append(h.make_node("MatMul", ["x", "wd"], ["y"]))
    return model(nodes, stored), (np.eye(4), w), "w"


@pytest.mark.parametrize("form", ["tensor", "channel", "int4", "bits", "levels"])
def test_adapters_beside_quantised_weights_have_the_gradient_of_the_arithmetic(
    form: str, tmp_path: Path
) -> None:
    proto, (spread, w), name = linear(form)
    made = sgo.training(
        proto,
        loss="mse",
        optimizer="sgd",
        folder=tmp_path / "t",
        lora={"weights": name, "rank": 2, "alpha": 4},
    )
    trained = [n for n, one in made.manifest["state"].items() if one["kind"] == "parameter"]
    assert trained == ["w/lora_a", "w/lora_b"]
    session = ort.InferenceSession(str(tmp_path / "t" / "gradients.onnx"))
    inner = w.shape[0]
    a = RNG.normal(size=(inner, 2)).astype(np.float32)
    b = RNG.normal(size=(2, 3)).astype(np.float32)
    target = RNG.normal(size=(5, 3)).astype(np.float32)
    feeds = {"x": X, "w/lora_a": a, "w/lora_b": b}
    label = next(x.name for x in session.get_inputs() if x.name not in feeds)
    loss, *gradients = session.run(None, feeds | {label: target})
    held = X.astype(float) @ spread.astype(float)
    a, b = a.astype(float), b.astype(float)
    off = held @ w + 2 * held @ a @ b - target
    np.testing.assert_allclose(loss, (off**2).mean(), rtol=1e-5)
    up = 2 * off / off.size
    np.testing.assert_allclose(gradients[0], 2 * held.T @ up @ b.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[1], 2 * (held @ a).T @ up, rtol=1e-4, atol=1e-5)


def test_adapters_beside_a_matrix_whose_operand_is_quantised_as_it_comes(tmp_path: Path) -> None:
    node = microsoft("DynamicQuantizeMatMul", ["x", "w", "ws", "wz"], ["y"])
    proto = model([node], {"w": WHOLE, "ws": np.float32(0.02), "wz": np.int8(0)})
    how: Any = {"loss": "mse", "optimizer": "sgd", "folder": tmp_path / "t"}
    sgo.training(proto, lora={"weights": "w", "rank": 2, "alpha": 4}, **how)
    session = ort.InferenceSession(str(tmp_path / "t" / "gradients.onnx"))
    a, b = (RNG.normal(size=size).astype(np.float32) for size in ((4, 2), (2, 3)))
    target = RNG.normal(size=(5, 3)).astype(np.float32)
    feeds = {"x": X, "w/lora_a": a, "w/lora_b": b}
    label = next(x.name for x in session.get_inputs() if x.name not in feeds)
    loss, *gradients = session.run(None, feeds | {label: target})
    low, high = min(X.min(), 0), max(X.max(), 0)
    step = np.float32((high - low) / 255)
    zero = np.clip(np.round(-low / step), 0, 255)
    held = (np.clip(np.round(X / step) + zero, 0, 255) - zero).astype(float) * float(step)
    off = held @ (WHOLE * 0.02) + 2 * held @ a @ b - target
    up = 2 * off / off.size
    np.testing.assert_allclose(loss, (off**2).mean(), rtol=1e-4)
    np.testing.assert_allclose(gradients[0], 2 * held.T @ up @ b.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[1], 2 * (held @ a).T @ up, rtol=1e-4, atol=1e-5)


INSIDE = {
    "QLinearMatMul": FORMS["QLinearMatMul"],
    "QGemm": FORMS["QGemm"],
    "QGemm, transposed": [
        microsoft("QGemm", ["xq", "xs", "xz", "wt", "ws", "wz", "b", "ys", "yz"], ["yq"], transB=1)
    ],
    "MatMulIntegerToFloat": [
        microsoft("MatMulIntegerToFloat", ["xq", "w", "xs", "ws", "xz", "wz"], ["float"]),
        h.make_node("QuantizeLinear", ["float", "ys", "yz"], ["yq"]),
    ],
}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", INSIDE)
def test_adapters_beside_a_matrix_inside_an_operator_on_quantised_numbers(
    form: str, per_channel: bool, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    scale = np.array([0.01, 0.02, 0.03], np.float32) if per_channel else np.float32(0.02)
    stored = SCALES | {"wt": np.ascontiguousarray(WHOLE.T), "ws": scale}
    stored["wz"] = np.zeros(np.shape(scale), np.int8)
    proto = model([IN, *INSIDE[form], OUT], stored)
    how: Any = {"loss": "mse", "optimizer": "sgd", "folder": tmp_path / "t"}
    with pytest.raises(sg.ArgumentError, match="the weights are quantised"):
        sgo.training(proto, **how)
    made = sgo.training(proto, lora={"weights": "w*", "rank": 2, "alpha": 4}, **how)
    names = [n for n, one in made.manifest["state"].items() if one["kind"] == "parameter"]
    session = ort.InferenceSession(str(tmp_path / "t" / "gradients.onnx"))
    shapes = {x.name: x.shape for x in session.get_inputs() if x.name in names}
    rng = np.random.default_rng(9)
    feeds: dict[str, Any] = {n: rng.normal(size=s).astype(np.float32) * 0.3 for n, s in shapes.items()}
    (label,) = (x.name for x in session.get_inputs() if x.name not in {*feeds, "x"})
    target = rng.normal(size=(5, 3)).astype(np.float32)
    loss, *gradients = session.run(None, {"x": X, label: target, **feeds})
    a, b = (torch.tensor(feeds[name].astype(float), requires_grad=True) for name in names)
    added = 2 * a @ b
    w = torch.tensor(WHOLE.astype(float) * scale) + added
    bias = torch.tensor(SCALES["b"] * 0.015 * scale) if "QGemm" in form else 0.0
    y = fake(fake(torch.tensor(X), 0.015, 120) @ w + bias, 0.05, 130)
    expected = ((y - torch.tensor(target)) ** 2).mean()
    expected.backward()
    np.testing.assert_allclose(loss, expected.item(), rtol=0.02)
    for found, one in zip(gradients, (a, b), strict=True):
        assert np.linalg.norm(found - one.grad.numpy()) < 0.02 * np.linalg.norm(one.grad.numpy())
    # What is shipped computes what is trained: the file's operators have no form for floats.
    trainer = sgo.Trainer(tmp_path / "t")
    trainer.step({"x": X, label: target}, learning_rate=0.1)
    trainer.export(tmp_path / "shipped.onnx")
    shipped = runtime(onnx.load(tmp_path / "shipped.onnx"))
    assert np.abs(shipped - runtime(proto)).max() > 0.01
    after = trainer.evaluate({"x": X, label: target})["loss"]
    assert float(np.mean((shipped - target) ** 2)) == pytest.approx(after, rel=1e-3)


def tied(form: str) -> Any:
    """A model of language in small: a table of 6 tokens, whose rows are looked up, and a product with it."""
    table = RNG.integers(-99, 99, size=(6, 4)).astype(np.int8)
    nodes = [
        h.make_node("Gather", ["table/d", "ids"], ["rows"], "lookup"),
        h.make_node("MatMul", ["rows", "v/d"], ["hidden"], "hidden"),
        h.make_node("Transpose", ["table/d"], ["turned"], "turned", perm=[1, 0]),
        h.make_node("MatMul", ["hidden", "turned"], ["y"], "head"),
    ]
    if form == "lookup alone":
        nodes = [nodes[0], h.make_node("Gemm", ["hidden", "v/d"], ["y"], "head")]
        nodes.insert(1, h.make_node("ReduceSum", ["rows", "axis"], ["hidden"], keepdims=0))
    for name in ("table", "v"):
        nodes.insert(
            0, h.make_node("DequantizeLinear", [name, f"{name}/s"], [f"{name}/d"], f"{name}/dequantize")
        )
    stored = {"table": table, "table/s": np.float32(0.01), "v/s": np.float32(0.02)}
    stored |= {"v": RNG.integers(-99, 99, size=(4, 4)).astype(np.int8), "axis": np.array([1])}
    made = model(nodes, stored, y=("n", None))
    made.graph.input[0].CopyFrom(h.make_tensor_value_info("ids", T.INT64, ["n", 3]))
    made.graph.output[0].CopyFrom(h.make_tensor_value_info("y", T.FLOAT, None))
    return made


@pytest.mark.parametrize("form", ["tied", "lookup alone"])
def test_adapters_beside_a_quantised_table_whose_rows_are_looked_up(form: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    proto = tied(form)
    how: Any = {"loss": "mse", "optimizer": "sgd", "folder": tmp_path / "t"}
    made = sgo.training(proto, lora={"weights": "*", "rank": 2, "alpha": 4}, **how)
    trained = [n for n, one in made.manifest["state"].items() if one["kind"] == "parameter"]
    assert {name.partition("/")[0] for name in trained} == {"table", "v"}
    session = ort.InferenceSession(str(tmp_path / "t" / "gradients.onnx"))
    shapes = {x.name: x.shape for x in session.get_inputs() if x.name in trained}
    feeds: dict[str, Any] = {n: RNG.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    ids = np.array([[0, 5, 2], [2, 2, 1]])
    label = next(x.name for x in session.get_inputs() if x.name not in {*feeds, "ids"})
    target = RNG.normal(size=(2, 3, 6) if form == "tied" else (2, 4)).astype(np.float32)
    names = [x.name for x in session.get_outputs()]
    found = dict(zip(names, session.run(None, {**feeds, "ids": ids, label: target}), strict=True))
    held = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    theirs = {n: torch.tensor(x.astype(float), requires_grad=True) for n, x in feeds.items()}

    def whole(name: str) -> Any:
        a, b = theirs[f"{name}/lora_a"], theirs[f"{name}/lora_b"]
        added = 2 * (a @ b)
        w = torch.tensor(held[name].astype(float) * float(held[f"{name}/s"]))
        return w + (added.T if added.shape != w.shape else added)

    rows = whole("table")[torch.tensor(ids)]
    y = rows @ whole("v") @ whole("table").T if form == "tied" else rows.sum(1) @ whole("v")
    loss = ((y - torch.tensor(target)) ** 2).mean()
    loss.backward()
    np.testing.assert_allclose(found.pop(names[0]), loss.item(), rtol=1e-4)
    for name, one in theirs.items():
        (gradient,) = [g for n, g in found.items() if name in n]
        np.testing.assert_allclose(gradient, one.grad.numpy(), rtol=1e-3, atol=1e-5)


def looked_up(form: str) -> Any:
    """Rows of quantised tables, and a product with floats, [2, 3, 4]."""
    byte = np.uint8
    rng = np.random.default_rng(7)
    stored: dict[str, Any] = {"v": rng.normal(size=(32, 4)).astype(np.float32)}
    if form.startswith("GatherBlockQuantized"):
        bits = int(form[-1])
        stored |= {"w": rng.integers(0, 255, size=(6, 32 * bits // 8)).astype(byte)}
        stored |= {"ws": rng.uniform(0.1, 1, size=(6, 2)).astype(np.float32)}
        zeros = rng.integers(100, 140, size=(6, 2)) if bits == 8 else rng.integers(0, 255, size=(6, 1))
        stored["wz"] = zeros.astype(byte)
        nodes = [
            microsoft("GatherBlockQuantized", ["w", "ids", "ws", "wz"], ["rows"], bits=bits, block_size=16)
        ]
    else:
        tables = {"w": (6, 32), "position": (5, 32), "segment": (2, 32), "gamma": (32,), "beta": (32,)}
        stored |= {name: rng.integers(0, 255, size=shape).astype(byte) for name, shape in tables.items()}
        scales, zeros = [f"{name}_s" for name in tables], [f"{name}_z" for name in tables]
        stored |= {
            name: np.float32(x) for name, x in zip(scales, (0.01, 0.02, 0.03, 0.02, 0.01), strict=True)
        }
        stored |= {name: byte(x) for name, x in zip(zeros, (3, 128, 99, 7, 200), strict=True)}
        stored["segments"] = np.array([[0, 1, 1], [1, 0, 0]], np.int32)
        nodes = [
            h.make_node("Cast", ["ids"], ["words"], to=T.INT32),
            microsoft(
                *("QEmbedLayerNormalization", ["words", "segments", *tables, "", *scales, *zeros]),
                ["rows", "lengths"],
            ),
        ]
    proto = model([*nodes, h.make_node("MatMul", ["rows", "v"], ["y"])], stored)
    proto.graph.input[0].CopyFrom(h.make_tensor_value_info("ids", T.INT64, [2, 3]))
    proto.graph.output[0].CopyFrom(h.make_tensor_value_info("y", T.FLOAT, [2, 3, 4]))
    return proto


IDS = np.array([[0, 5, 2], [2, 2, 1]])
LOOKUPS = ["GatherBlockQuantized4", "GatherBlockQuantized8", "QEmbedLayerNormalization"]


@pytest.mark.parametrize("form", LOOKUPS)
def test_scales_of_quantised_tables_have_the_gradient_of_the_runtimes_differences(form: str) -> None:
    proto, c = looked_up(form), np.cos(np.arange(24)).reshape(2, 3, 4)
    loaded = sgo.load(proto, parameters="*")
    scales = {"ws"} if "Gather" in form else {f"{n}_s" for n in ("w", "position", "segment", "gamma", "beta")}
    assert set(loaded.parameters) == scales | {"v"}
    with loaded.graph.as_default():
        made = sg.gradients(sg.reduce_sum(loaded.outputs["y"] * c), list(loaded.parameters.values()))
    with sg.Session(loaded.graph, engine="numpy") as session:
        found = dict(zip(loaded.parameters, session.run(made, {loaded.inputs["ids"]: IDS}), strict=True))
    stored = {t.name: t for t in proto.graph.initializer}

    def total(name: str, value: Any) -> float:
        kept = numpy_helper.to_array(stored[name])
        stored[name].CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))
        y = ort.InferenceSession(proto.SerializeToString()).run(["y"], {"ids": IDS})[0]
        stored[name].CopyFrom(numpy_helper.from_array(kept, name))
        return float((y.astype(float) * c).sum())

    for name, gradient in found.items():
        value = numpy_helper.to_array(stored[name]).astype(float)
        step = 0.01 * np.abs(value).max() * np.cos(np.arange(value.size) + 1).reshape(value.shape)
        slope = (total(name, value + step) - total(name, value - step)) / 2
        assert slope == pytest.approx(float((gradient * step).sum()), rel=2e-3, abs=1e-5)
        assert abs(slope) > 1e-4


@pytest.mark.parametrize("form", LOOKUPS)
def test_nothing_flows_to_quantised_tables_and_what_is_trained_is_the_rest(form: str) -> None:
    loaded = sgo.load(looked_up(form), quantized="straight-through")
    assert set(loaded.parameters) == {"v"}
    flow = sg.explain(loaded.outputs["y"], [loaded.inputs["ids"], loaded.parameters["v"]])
    assert flow[loaded.inputs["ids"]].status == "not differentiable"
    assert flow[loaded.parameters["v"]].status == "flows"
    made = sgo.training(looked_up(form), loss="mse", folder=None)
    uses = {name: one["use"] for name, one in made.manifest["tensors"].items()}
    assert uses.pop("v") == "trained"
    assert set(uses.values()) == {"constant"}


@pytest.mark.parametrize("form", LOOKUPS)
def test_an_adapter_beside_a_quantised_table_changes_its_rows(form: str, tmp_path: Path) -> None:
    proto = looked_up(form)
    how: Any = {"loss": "mse", "optimizer": "sgd", "folder": tmp_path / "t"}
    sgo.training(proto, lora={"weights": "w", "rank": 2}, **how)
    session = ort.InferenceSession(str(tmp_path / "t" / "gradients.onnx"))
    names = [x.name for x in session.get_inputs() if "lora" in x.name]
    rng = np.random.default_rng(9)
    feeds: dict[str, Any] = {
        x.name: (rng.normal(size=x.shape) * 0.3).astype(np.float32)
        for x in session.get_inputs()
        if x.name in names
    }
    (label,) = (x.name for x in session.get_inputs() if x.name not in {*feeds, "ids"})
    feeds |= {"ids": IDS, label: rng.normal(size=(2, 3, 4)).astype(np.float32)}
    loss, *gradients = session.run(None, feeds)
    assert np.isfinite(loss)
    for name, gradient in zip(names, gradients, strict=True):
        step = 0.01 * np.cos(np.arange(gradient.size) + 1).reshape(gradient.shape).astype(np.float32)
        up, down = (session.run(None, feeds | {name: feeds[name] + sign * step})[0] for sign in (1, -1))
        assert float(up - down) / 2 == pytest.approx(float((gradient * step).sum()), rel=1e-2)
    trainer = sgo.Trainer(tmp_path / "t")
    batch = {"ids": IDS, label: feeds[label]}
    for _ in range(2):
        trainer.step(batch, learning_rate=0.1)
    trainer.export(tmp_path / "shipped.onnx")
    (shipped,) = ort.InferenceSession(tmp_path / "shipped.onnx").run(None, {"ids": IDS})
    after = trainer.evaluate(batch)["loss"]
    assert float(np.mean((shipped - feeds[label]) ** 2)) == pytest.approx(after, rel=1e-3)


def test_a_scope_of_quantised_weights_makes_no_parameters_of_their_scales() -> None:
    made = sgo.training(tied("tied"), loss="mse", folder=None, lora={"weights": ["table", "v"], "rank": 2})
    trained = [n for n, one in made.manifest["state"].items() if one["kind"] == "parameter"]
    assert sorted(trained) == ["table/lora_a", "table/lora_b", "v/lora_a", "v/lora_b"]


def test_of_what_a_pattern_matches_that_gets_an_adapter_beside_which_one_fits() -> None:
    how: Any = {"loss": "mse", "optimizer": "sgd", "folder": None}
    made = sgo.training(tied("tied"), lora={"weights": "*", "rank": 4}, **how)
    assert len(made.manifest["state"]) >= 4
    stored = {
        "w": np.ones((4, 3), np.float32),
        "small": np.ones((1, 3), np.float32),
        "b": np.ones(3, np.float32),
    }
    nodes = [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Add", ["a", "small"], ["c"])]
    proto = model([*nodes, h.make_node("Add", ["c", "b"], ["y"])], stored)
    made = sgo.training(proto, lora={"weights": "*", "rank": 2}, **how)
    assert [n for n, one in made.manifest["state"].items() if one["kind"] == "parameter"] == [
        "w/lora_a",
        "w/lora_b",
    ]
    assert any("'small' has no adapter: the rank 2 is larger" in note for note in made.notes)
    with pytest.raises(sg.ArgumentError, match="'small' cannot have an adapter: the rank 2 is larger"):
        sgo.training(proto, lora={"weights": ["w", "small"], "rank": 2}, **how)
    with pytest.raises(
        sg.ArgumentError, match=r"lora: 's\*' matches no matrix that fits; 'small': the rank 2"
    ):
        sgo.training(proto, lora={"weights": "s*", "rank": 2}, **how)


@pytest.mark.parametrize("form", ["tensor", "channel", "bits", "levels"])
def test_what_is_shipped_has_the_adapters_in_its_weights(form: str, tmp_path: Path) -> None:
    proto, (spread, w), name = linear(form)
    how: Any = {"loss": "mse", "optimizer": "adamw", "folder": tmp_path / "t"}
    sgo.training(proto, lora={"weights": name, "rank": 1}, **how)
    (label,) = [
        one["name"]
        for one in json.loads((tmp_path / "t" / "manifest.json").read_text())["graphs"]["eval"]["inputs"]
        if one["role"] == "labels"
    ]
    trainer = sgo.Trainer(tmp_path / "t")
    trainer.export(tmp_path / "before.onnx")
    before = runtime(onnx.load(tmp_path / "before.onnx"))
    np.testing.assert_allclose(before, X @ spread @ w, rtol=1e-4, atol=1e-4)
    # The runtime quantises activations, too, where it meets quantised weights.
    np.testing.assert_allclose(before, runtime(proto), atol=0.05)
    target = RNG.normal(size=(5, 3)).astype(np.float32)
    for _ in range(3):
        trainer.step({"x": X, label: target}, learning_rate=0.1)
    trainer.export(tmp_path / "after.onnx")
    shipped = runtime(onnx.load(tmp_path / "after.onnx"))
    assert np.abs(shipped - runtime(proto)).max() > 0.01
    loss = float(np.mean((shipped - target) ** 2))
    np.testing.assert_allclose(loss, trainer.evaluate({"x": X, label: target})["loss"], rtol=1e-4)
