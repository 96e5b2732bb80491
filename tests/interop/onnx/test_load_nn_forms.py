"""Layers of ONNX models: symbolic sizes, older forms, gradients as operators, dropout, what is refused."""

from __future__ import annotations

import importlib
import math
import pkgutil
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx_layers import LAYERS, Layer, fed, floats, ints, model_of, sizes

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx import operators

TRAINING = "ai.onnx.preview.training"


def _listed(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else [found]


def _model(nodes: list[Any], inputs: dict[str, tuple[int, ...]], outputs: list[str], **stored: Any) -> Any:
    """A model of float32 inputs."""
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()]
    tensors = [onnx.numpy_helper.from_array(x, name) for name, x in stored.items()]
    graph = helper.make_graph(
        nodes, "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs], tensors
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_no_operator_stands_in_two_tables() -> None:
    seen: dict[str, str] = {}
    for module in pkgutil.iter_modules(operators.__path__):
        table = getattr(
            importlib.import_module(f"{operators.__name__}.{module.name}"), module.name.upper(), {}
        )
        for name in table:
            assert name not in seen, f"{name} stands in {seen[name]} and {module.name}"
            seen[name] = module.name
    assert set(seen) == set(operators.OPERATORS)


# ------------------------------------------------------------------------------------------ symbolic sizes

FIXED = {
    "convolutions-ConvTransposeShape",
    "convolutions-ConvTransposeSame",
    "pooling-MaxPool",
    "pooling-MaxPoolColumns",
    "pooling-MaxPool1d",
    "pooling-MaxPool3d",
    "pooling-MaxPoolCeil",
    "pooling-AveragePoolCeil",
    "images-ResizeSmooth",
    "images-ResizeSmoothCubic",
    "images-ResizeScales",
    "images-MaxRoiPool",
    "images-CenterCropPad",
}
"""Those that need spatial sizes that are numbers, and say so."""

SPATIAL = [
    name
    for name, layer in LAYERS.items()
    if name.split("-")[0] in ("convolutions", "pooling", "normalizations", "images")
    and len(layer.inputs[0].shape if layer.inputs[0] is not None else ()) > 2
    and not name.endswith("Col2Im")
]


def _opened(model: Any, inputs: dict[str, int], axes: Any) -> Any:
    """A model some axes of whose inputs have names instead of sizes."""
    for x in model.graph.input:
        if x.name in inputs:
            for axis in axes(inputs[x.name]):
                x.type.tensor_type.shape.dim[axis].dim_param = f"size{axis}"
    return model


@pytest.mark.parametrize("name", SPATIAL)
def test_spatial_sizes_may_be_symbolic(name: str) -> None:
    layer = LAYERS[name]
    first = layer.inputs[0]
    assert first is not None
    model = _opened(model_of(layer, np.float32), {"x0": first.ndim}, lambda ndim: range(2, ndim))
    if name in FIXED:
        with pytest.raises(sg.GraphError, match=r"cannot be translated"):
            sgo.load(model)
        return
    values = fed(layer, np.float32)
    found, expected = sgo.load(model)(**values), sgo.load(model_of(layer, np.float32))(**values)
    for y, same in zip(_listed(found), _listed(expected), strict=True):
        np.testing.assert_allclose(y, same, 1e-5, 1e-6)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("recurrent")])
def test_time_and_batch_may_be_symbolic(name: str) -> None:
    layer = LAYERS[name]
    first = 1 if layer.attributes.get("layout") else 0
    model = _opened(model_of(layer, np.float32), {"x0": 3}, lambda ndim: (0, 1) if not first else (1,))
    for x in model.graph.input[1:]:
        dims = x.type.tensor_type.shape.dim
        if x.name in ("x4", "x5", "x6"):
            dims[0 if len(dims) == 1 else 1].dim_param = "size1"
    values = fed(layer, np.float32)
    found, expected = sgo.load(model)(**values), sgo.load(model_of(layer, np.float32))(**values)
    for y, same in zip(_listed(found), _listed(expected), strict=True):
        np.testing.assert_allclose(y, same, 1e-6, 1e-6)


def test_a_resize_to_the_size_of_another_tensor() -> None:
    nodes = [
        helper.make_node("Shape", ["skip"], ["size"], start=2),
        helper.make_node("Shape", ["x"], ["lead"], end=2),
        helper.make_node("Concat", ["lead", "size"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    model = _model(nodes, {"x": (1, 2, 3, 4), "skip": (1, 5, 7, 6)}, ["y"])
    opened = _opened(onnx.ModelProto.FromString(model.SerializeToString()), {"x": 4}, lambda n: (0, 2, 3))
    dims = opened.graph.input[1].type.tensor_type.shape.dim
    dims[2].dim_param, dims[3].dim_param = "height", "width"
    x, skip = floats(1, 2, 3, 4).astype(np.float32), np.zeros((1, 5, 7, 6), np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x, "skip": skip})[0]
    np.testing.assert_allclose(sgo.load(opened)(x, skip), expected, 1e-5, 1e-6)


def test_a_resize_of_a_part_that_is_cut_out() -> None:
    nodes = [helper.make_node("Resize", ["x", "part", "", "sizes"], ["y"], mode="linear",
             coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0)]  # fmt: skip
    stored = {
        "part": np.array([0, 0, 0.1, 0.3, 1, 1, 0.6, 1.2], np.float32),  # The starts, then the ends.
        "sizes": np.array([1, 2, 5, 4]),
    }
    model = _model(nodes, {"x": (1, 2, 6, 7)}, ["y"], **stored)
    x = floats(1, 2, 6, 7).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(sgo.load(model)(x), expected, 1e-5, 1e-6)


def test_factors_of_a_product() -> None:
    a, b, c = floats(2, 3), floats(3, 4, seed=1), floats(4, seed=2)
    for factor in (0.5, 2.0):
        layer = Layer("Gemm", [a, b, c], {"alpha": factor, "beta": factor})
        found = sgo.load(model_of(layer, np.float32))(**fed(layer, np.float32))
        np.testing.assert_allclose(found, factor * (a @ b + c), 1e-5, 1e-5)


# ------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("seen", [False, True], ids=["numbers", "booleans"])
@pytest.mark.parametrize("missing", [1, 2])
def test_keys_beyond_the_end_of_a_mask_are_not_looked_at(missing: int, seen: bool) -> None:
    q, k, v = floats(1, 2, 3, 4), floats(1, 2, 5, 4, seed=1), floats(1, 2, 5, 4, seed=2)
    mask = floats(3, 5 - missing) > 0.0 if seen else floats(3, 5 - missing)
    padded = np.pad(mask, ((0, 0), (0, missing)), constant_values=False if seen else -np.inf)
    found, expected = [
        sgo.load(model_of(layer, np.float32))(**fed(layer, np.float32))
        for layer in [Layer("Attention", [q, k, v, m], opset=23) for m in (mask, padded)]
    ]
    np.testing.assert_allclose(found, expected, 1e-6, 1e-6)


# --------------------------------------------------------------------------------------------- older forms


def test_before_opset_14_batch_normalization_trains_where_it_has_more_results() -> None:
    x, rest = floats(3, 2, 5), [floats(2, seed=i, low=0.5, high=2) for i in range(4)]
    old = Layer("BatchNormalization", [x, *rest], {"momentum": 0.8}, outputs=5, opset=13)
    new = Layer("BatchNormalization", [x, *rest], {"momentum": 0.8, "training_mode": 1}, outputs=3, opset=15)
    found, expected = (
        [*_listed(sgo.load(model_of(m, np.float64))(**fed(m, np.float64)))] for m in (old, new)
    )
    for y, same in zip(found[:3], expected, strict=True):
        np.testing.assert_allclose(y, same, 1e-12)
    np.testing.assert_allclose(found[3], x.mean(axis=(0, 2)), 1e-12)
    np.testing.assert_allclose(found[4], x.var(axis=(0, 2)), 1e-12)


def test_running_statistics_have_no_gradient() -> None:
    layer = LAYERS["normalizations-BatchNormalizationTraining"]
    model, values = sgo.load(model_of(layer, np.float64)), fed(layer, np.float64)

    def moved(x: Any) -> Any:
        return sg.reduce_sum(_listed(model(**(values | {"x0": x})))[1])

    assert not sg.grad(moved)(values["x0"]).any()
    sg.assert_blocked(moved, values["x0"])


def test_stored_running_statistics_are_not_trained() -> None:
    layer = LAYERS["normalizations-BatchNormalization"]._replace(known=(1, 2, 3, 4))
    model = sgo.load(model_of(layer, np.float64))
    flow = sg.explain(model.outputs["y0"], list(model.parameters.values()))
    found = {name: flow[x].status for name, x in model.parameters.items()}
    assert found == {"x1": "flows", "x2": "flows"}


def test_stored_bounds_of_a_clip_are_constants() -> None:
    assert not sgo.load(model_of(LAYERS["activations-Clip"], np.float32)).parameters


def test_bias_split_gelu_and_group_norm() -> None:
    layer = LAYERS["contrib-BiasSplitGelu"]
    x, bias = fed(layer, np.float64).values()
    left, right = np.split(x + bias, 2, -1)
    gelu = right * 0.5 * (1 + np.vectorize(math.erf)(right / math.sqrt(2)))
    np.testing.assert_allclose(sgo.load(model_of(layer, np.float64))(x, bias), left * gelu, 1e-9)
    layer = LAYERS["contrib-GroupNorm"]
    x, scale, bias = fed(layer, np.float64).values()
    split = x.reshape(2, 9, 2, 4)
    deviation = np.sqrt(split.var(axis=(1, 3), keepdims=True) + 1e-5)
    y = ((split - split.mean(axis=(1, 3), keepdims=True)) / deviation).reshape(x.shape) * scale + bias
    np.testing.assert_allclose(
        sgo.load(model_of(layer, np.float64))(x, scale, bias), y / (1 + np.exp(-y)), 1e-9
    )


def _leaky(x: Any) -> Any:
    return np.where(x > 0, x, 0.3 * x)


def _normal(x: Any, axes: Any, epsilon: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def _fast_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _nhwc_convolved(x: Any, w: Any, b: Any) -> Any:
    x = np.pad(x, [(0, 0), (1, 0), (0, 1), (0, 0)])  # pads are the begins of both axes, then their ends.
    rows, columns = (x.shape[1] - 2) // 2 + 1, x.shape[2] - 1
    y = np.zeros((2, rows, columns, 6))
    for i, j in np.ndindex(rows, columns):
        y[:, i, j] = np.tensordot(x[:, 2 * i : 2 * i + 2, j : j + 2], w, ([1, 2, 3], [1, 2, 3])) + b
    return y


def _skip_group_norm(x: Any, scale: Any, shift: Any, skip: Any, bias: Any) -> Any:
    total = x + skip[:, None, None] + bias
    y = _normal(total.reshape(2, 9, 2, 4), (1, 3)).reshape(x.shape) * scale + shift
    return y / (1 + np.exp(-y)), total


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return _normal(x, -1) * scale + bias, x.mean(-1, keepdims=True), 1 / spread


def _rms_norm(x: Any, scale: Any) -> Any:
    root = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x / root * scale, 1 / root


BY_SCHEMA: dict[str, Any] = {
    "BiasAdd": lambda x, bias, skip: x + bias + skip,
    "GemmFastGelu": lambda x, w, bias: _fast_gelu(x @ w + bias),
    "FusedMatMulActivation": lambda a, b: _leaky(0.3 * a @ b.swapaxes(-1, -2)),
    "NhwcConv": _nhwc_convolved,
    "SkipGroupNorm": _skip_group_norm,
    "LayerNormalization": _layer_norm,
    "SimplifiedLayerNormalization": _rms_norm,
}


@pytest.mark.parametrize("name", BY_SCHEMA)
def test_fused_layers_without_a_kernel_compute_what_their_schema_says(name: str) -> None:
    layer = LAYERS[f"contrib-{name}"]
    values = fed(layer, np.float64)
    wanted = BY_SCHEMA[name](*values.values())
    found = _listed(sgo.load(model_of(layer, np.float64))(**values))
    for y, expected in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        np.testing.assert_allclose(y, expected, 1e-6, 1e-9)


def test_local_response_of_an_even_size_looks_one_channel_further_ahead() -> None:
    layer = LAYERS["normalizations-LRNEven"]
    x = fed(layer, np.float64)["x0"]
    squares = np.concatenate([x**2, np.zeros_like(x[:, :1])], 1)
    expected = x / (1 + 0.15 * (squares[:, :-1] + squares[:, 1:])) ** 0.75
    np.testing.assert_allclose(sgo.load(model_of(layer, np.float64))(x), expected, 1e-7)


# ---------------------------------------------------------------------------------- gradients as operators


def _gradient(operands: list[str], results: list[str], xs: list[str], y: str, zs: list[str]) -> Any:
    told = {"zs": zs} if zs else {}
    return helper.make_node("Gradient", operands, results, domain=TRAINING, xs=xs, y=y, **told)


def _products() -> list[Any]:
    return [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Mul", ["c", "a"], ["d"])]


A, B = (floats(2, 2, seed=i).astype(np.float32) for i in range(2))


def test_gradient_of_the_graph_that_it_stands_in() -> None:
    nodes = [*_products(), _gradient(["a", "b"], ["da", "db"], ["a", "b"], "d", [])]
    found = sgo.load(_model(nodes, {"a": (2, 2), "b": (2, 2)}, ["da", "db"]))(A, B)
    np.testing.assert_allclose(found["da"], 2 * A + B, 1e-6)
    np.testing.assert_allclose(found["db"], A, 1e-6)


def test_gradient_at_other_values_and_of_a_tensor_between() -> None:
    nodes = [
        *_products(),
        _gradient(["e", "b"], ["da"], ["a"], "d", ["b"]),
        _gradient(["c", "a"], ["dc"], ["c"], "d", ["a"]),
    ]
    model = sgo.load(_model(nodes, {"a": (2, 2), "b": (2, 2), "e": (2, 2)}, ["da", "dc", "d"]))
    found = model(A, B, 3 * A)
    np.testing.assert_allclose(found["da"], 6 * A + B, 1e-6)
    np.testing.assert_allclose(found["dc"], A, 1e-6)
    np.testing.assert_allclose(found["d"], (A + B) * A, 1e-6)


def test_gradient_of_a_gradient() -> None:
    nodes = [
        *_products(),
        _gradient(["a", "b"], ["da"], ["a"], "d", ["b"]),
        _gradient(["a", "b"], ["daa", "dab"], ["a", "b"], "da", []),
    ]
    found = sgo.load(_model(nodes, {"a": (2, 2), "b": (2, 2)}, ["daa", "dab"]))(A, B)
    np.testing.assert_allclose(found["daa"], np.full((2, 2), 2.0), 1e-6)
    np.testing.assert_allclose(found["dab"], np.ones((2, 2)), 1e-6)


def test_gradient_of_what_there_is_not_is_refused() -> None:
    nodes = [*_products(), _gradient(["a"], ["da"], ["a"], "elsewhere", [])]
    with pytest.raises(sg.GraphError, match="'elsewhere', which is no tensor"):
        sgo.load(_model(nodes, {"a": (2, 2), "b": (2, 2)}, ["da"]))


# ------------------------------------------------------------------------------------------------- dropout


def _dropout(ratio: float, training: bool = True) -> Any:
    nodes = [
        helper.make_node("Dropout", ["x", "ratio", "training"], [f"y{i}", f"mask{i}"], f"drop{i}")
        for i in range(2)
    ]
    stored = {"ratio": np.array(ratio, np.float32), "training": np.array(training)}
    return sgo.load(_model(nodes, {"x": (40, 50)}, ["y0", "mask0", "y1"], **stored))


def test_dropout_in_training_scales_what_it_keeps_and_draws_for_each_node() -> None:
    x = floats(40, 50).astype(np.float32)
    found = _dropout(0.3)(x)
    kept = found["mask0"]
    assert 0.6 < kept.mean() < 0.8
    np.testing.assert_allclose(found["y0"], np.where(kept, x / np.float32(0.7), 0), 1e-6)
    assert ((found["y1"] != 0) != kept).any()


def test_the_gradient_of_dropout_is_its_mask() -> None:
    model, x = _dropout(0.3), floats(40, 50).astype(np.float32)
    slope = sg.grad(lambda x: sg.reduce_sum(model(x)["y0"]))(x)
    np.testing.assert_allclose(slope, model(x)["mask0"] / np.float32(0.7), 1e-6)


def test_dropout_of_everything_and_in_inference() -> None:
    x = floats(40, 50).astype(np.float32)
    model = _dropout(1.0)
    assert not model(x)["y0"].any()
    assert not sg.grad(lambda x: sg.reduce_sum(model(x)["y0"]))(x).any()
    still = _dropout(0.3, training=False)(x)
    np.testing.assert_array_equal(still["y0"], x)
    assert still["mask0"].all()


def test_dropout_may_be_switched_as_the_model_runs() -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])
    model = _model([node], {"x": (40, 50)}, ["y"], ratio=np.array(0.25, np.float32))
    model.graph.input.append(helper.make_tensor_value_info("training", onnx.TensorProto.BOOL, []))
    loaded, x = sgo.load(model), floats(40, 50).astype(np.float32)
    np.testing.assert_array_equal(loaded(x, np.array(False)), x)
    dropped = loaded(x, np.array(True))
    np.testing.assert_allclose(dropped[dropped != 0], (x / np.float32(0.75))[dropped != 0], 1e-6)
    assert 0.65 < (dropped != 0).mean() < 0.85


# ----------------------------------------------------------------------------------------------- quantised


@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn])
def test_stored_weights_of_few_bits(kind: Any) -> None:
    w, s = (np.arange(16).reshape(4, 4) % 7).astype(kind), np.array([0.5, 0.25, 2, 1], np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x = floats(2, 4).astype(np.float32)
    found = sgo.load(_model(nodes, {"x": (2, 4)}, ["y"], w=w, s=s))(x)
    np.testing.assert_allclose(found, x @ (w.astype(np.float32) * s), 1e-6)


def test_reports_name_what_quantises() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "to_bytes"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "from_bytes"),
    ]
    stored = {"s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)}
    model = sgo.load(_model(nodes, {"x": (2, 4)}, ["y"], **stored))
    flow = sg.explain(model.outputs["y"], [model.inputs["x"]])
    reach = flow[model.inputs["x"]]
    assert reach.status == "not differentiable"
    assert any("to_bytes" in cut.operation.name for cut in reach.cuts)


# ------------------------------------------------------------------------------------------------- refused


X = floats(1, 1, 3, 3)
REFUSED = {
    "'NONSENSE' is unknown": Layer("Conv", [floats(1, 2, 5), floats(3, 2, 2)], {"auto_pad": "NONSENSE"}),
    "pads has 3 numbers": Layer("Conv", [floats(1, 2, 5), floats(3, 2, 2)], {"pads": [1, 1, 1]}),
    "strides has 2 numbers": Layer("MaxPool", [floats(1, 2, 5)], {"kernel_shape": [2], "strides": [1, 1]}),
    "the weights' window": Layer("Conv", [floats(1, 2, 5), floats(3, 2, 2)], {"kernel_shape": [3]}),
    "one to three axes": Layer("Conv", [floats(1, 1, 2, 2, 2, 2), floats(1, 1, 1, 1, 1, 1)]),
    "activation 'Cosine' is unknown": Layer(
        "RNN",
        [floats(2, 1, 3), floats(1, 4, 3), floats(1, 4, 4)],
        {"hidden_size": 4, "activations": ["Cosine"]},
    ),
    "direction='sideways'": Layer(
        "GRU",
        [floats(2, 1, 3), floats(1, 12, 3), floats(1, 12, 4)],
        {"hidden_size": 4, "direction": "sideways"},
    ),
    "reduction='most'": Layer(
        "SoftmaxCrossEntropyLoss", [floats(4, 5), ints(4, high=5)], {"reduction": "most"}
    ),
    "reduction='least'": Layer(
        "NegativeLogLikelihoodLoss", [floats(4, 5), ints(4, high=5)], {"reduction": "least"}
    ),
    "mode='curved'": Layer("Resize", [floats(1, 1, 3), None, None, sizes(1, 1, 4)], {"mode": "curved"}, (3,)),
    "neither scales nor sizes": Layer("Resize", [floats(1, 1, 3)]),
    "'mirror' is unknown": Layer(
        "GridSample", [floats(1, 1, 3, 3), floats(1, 2, 2, 2)], {"padding_mode": "mirror"}
    ),
    "the regions decide about sizes": Layer("RoiAlign", [floats(1, 1, 3, 3), floats(1, 4), sizes(0)]),
    "q_num_heads": Layer("Attention", [floats(1, 2, 4)] * 3, opset=23),
    "so large a size": Layer(
        "Resize", [floats(1, 1, 3), None, None, sizes(1, 1, 2**40)], {"mode": "linear"}, (3,)
    ),
    "so small a scale": Layer(
        "Resize",
        [floats(1, 1, 3), None, np.array([1, 1, 1e-12], np.float32)],
        {"mode": "cubic", "antialias": 1},
        (2,),
    ),
    "the places of windows": Layer(
        "MaxPool", [floats(1, 1, 3)], {"kernel_shape": [2**40], "pads": [2**40, 2**40]}, outputs=2
    ),
    "windows as columns": Layer("Col2Im", [floats(1, 2, 3), sizes(2**40, 2), sizes(1, 2)], known=(1, 2)),
    "so many parts": Layer("MaxRoiPool", [X, np.zeros((1, 5))], {"pooled_shape": [2**20, 2**20]}, (1,)),
    "so many samples": Layer(
        "RoiAlign", [X, floats(1, 4), sizes(0)], {"output_height": 2**40, "sampling_ratio": 1}
    ),
    "so many frequencies": Layer(
        "MelWeightMatrix",
        [np.array(2**20), np.array(2**20), np.array(8000), np.array(0, np.float32), np.array(9, np.float32)],
        known=(0, 1, 2, 3, 4),
    ),
    "so many axes": Layer("GridSample", [floats(*[1] * 9), floats(*[1] * 8, 7)], opset=20),
    "so large a window": Layer(
        "DeformConv", [X, floats(1, 1, 400, 400), floats(1, 2, 1, 1)], {"pads": [400] * 4}
    ),
    "boxes .* must be known": Layer("NonMaxSuppression", [floats(1, 3, 4), floats(1, 1, 3)]),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_translated_is_refused_with_its_node(reason: str) -> None:
    with pytest.raises(sg.GraphError, match=f"(?s)'layer'.*{reason}"):
        sgo.load(model_of(REFUSED[reason], np.float32))


def test_boxes_are_chosen_where_they_are_known() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.6]]], np.float32)
    layer = Layer("NonMaxSuppression", [boxes, scores, np.array(3), np.array(0.5, np.float32)])
    model = model_of(layer, np.float32)
    found = sgo.load(model, known=fed(layer, np.float32))()
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, fed(layer, np.float32))[0]
    np.testing.assert_array_equal(found, expected)
