"""ONNX models as graphs: values, names, sizes, gates, gradients."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper

import stopgrad as sg
import stopgrad.onnx as sgo

F = np.float32


def model_of(text: str, opset: int = 21, more: str = "", functions: str = "") -> Any:
    """A model from the text of a graph in ONNX's syntax, with ``__`` for / and ``_dot_`` for . in names."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}{more}]>\n{text}\n{functions}'
    )

    def real(name: str) -> str:
        return name.replace("__", "/").replace("_dot_", ".")

    for t in proto.graph.initializer:
        t.name = real(t.name)
    for node in proto.graph.node:
        node.name = real(node.name)
        node.input[:] = map(real, node.input)
    return proto


def tensor(*values: float) -> np.ndarray[Any, Any]:
    return np.asarray(values, F)


MLP = """
mlp (float[batch, 3] x) => (float[batch, 2] y)
<float[3, 4] l1_dot_weight = {1,2,3,4,5,6,7,8,9,1,2,3}, float[4] l1_dot_bias = {0.1,0.2,0.3,0.4},
 float[4, 2] l2_dot_weight = {1,-1,2,-2,0.5,0.25,3,1}>
{
    [l1__MatMul] a = MatMul(x, l1_dot_weight)
    [l1__Add] b = Add(a, l1_dot_bias)
    [act__Tanh] c = Tanh(b)
    [l2__MatMul] y = MatMul(c, l2_dot_weight)
}
"""


def test_a_model_is_loaded_from_a_path_from_bytes_and_as_it_is(tmp_path: Path) -> None:
    proto = model_of(MLP)
    onnx.save(proto, tmp_path / "mlp.onnx")
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(F)
    held = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    expected = np.tanh(x @ held["l1.weight"] + held["l1.bias"]) @ held["l2.weight"]
    for source in (proto, proto.SerializeToString(), tmp_path / "mlp.onnx", str(tmp_path / "mlp.onnx")):
        model = sgo.load(source)
        assert list(model.inputs) == ["x"]
        assert list(model.outputs) == ["y"]
        assert list(model.parameters) == ["l1.weight", "l1.bias", "l2.weight"]
        np.testing.assert_allclose(model(x), expected, rtol=1e-6)
        np.testing.assert_allclose(model(x=x), expected, rtol=1e-6)


def test_names_are_scopes_and_parameters_keep_theirs() -> None:
    model = sgo.load(model_of(MLP))
    names = [op.name for op in model.graph.operations]
    assert {"l1.weight", "l1.bias", "l2.weight", "x"} <= set(names)
    assert [n for n in names if "/" in n] == [
        "l1/MatMul/MatMul",
        "l1/Add/AddV2",
        "act/Tanh/Tanh",
        "l2/MatMul/MatMul",
    ]


def test_a_symbolic_size_is_one_size_wherever_its_name_stands() -> None:
    model = sgo.load(
        model_of(
            "g (float[batch, n] x, float[batch, m] y) => (float[batch, k] z) { z = Concat<axis=1>(x, y) }"
        )
    )
    x, y = model.inputs.values()
    assert x.shape[0] is y.shape[0] is sg.dim("batch")
    assert repr(model.outputs["z"].shape) == "(batch, m + n)"
    assert model(np.ones((2, 3), F), np.ones((2, 1), F)).shape == (2, 4)
    with pytest.raises(sg.FeedError, match="batch"):
        model(np.ones((2, 3), F), np.ones((3, 1), F))


def test_sizes_whose_names_are_none_here_get_others() -> None:
    proto = model_of("g (float[a, b, c] x) => (float[a, b, c] y) { y = Exp(x) }")
    for d, name in zip(
        proto.graph.input[0].type.tensor_type.shape.dim, ("batch size", "batch_size", "max"), strict=True
    ):
        d.dim_param = name
    shape = sgo.load(proto).inputs["x"].shape
    assert len(set(shape)) == 3
    assert repr(shape[0]) == "batch_size"


def test_shape_computations_become_sizes() -> None:
    model = sgo.load(
        model_of("""
        g (float[batch, time, 6] x) => (y)
        {
            s = Shape(x)
            zero = Constant<value_ints=[0]>()
            one = Constant<value_ints=[1]>()
            two = Constant<value_ints=[2]>()
            b = Slice(s, zero, one, zero)
            t = Gather(s, one)
            heads = Constant<value_ints=[2, 3]>()
            bt = Mul(b, t)
            to = Concat<axis=0>(bt, heads)
            y = Reshape(x, to)
        }""")
    )
    assert repr(model.outputs["y"].shape) == "(batch*time, 2, 3)"
    kinds = {op.type for op in model.graph.subgraph_to(list(model.outputs.values()))}
    assert kinds == {"Placeholder", "Reshape"}
    assert model(np.zeros((2, 5, 6), F)).shape == (10, 2, 3)


def test_sizes_that_are_results_are_computed_when_the_model_runs() -> None:
    model = sgo.load(
        model_of("""
        g (float[batch, 3] x) => (int64[2] s, float n)
        {
            s = Shape(x)
            c = Size(x)
            n = Cast<to=1>(c)
        }""")
    )
    found = model(np.zeros((4, 3), F))
    assert list(found) == ["s", "n"]
    np.testing.assert_array_equal(found["s"], [4, 3])
    assert found["s"].dtype == np.int64
    assert found["n"] == 12.0


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        (  # What PyTorch's exporters write for interpolation by a factor.
            """s = Shape(x)
            f = Cast<to = 1>(s)
            k = Constant<value = float[2] {1.0, 2.0}>()
            m = Mul(f, k)
            r = Floor(m)
            to = Cast<to = 7>(r)
            y = ConstantOfShape(to)""",
            "(batch, 2*n)",
        ),
        (  # And for expand, where -1 keeps a size.
            """s = Shape(x)
            given = Constant<value_ints = [-1, 5]>()
            one = Constant<value_ints = [-1, -1]>()
            asked = Equal(given, one)
            to = Where(asked, s, given)
            y = ConstantOfShape(to)""",
            "(batch, 5)",
        ),
        (
            """s = Shape(x)
            first, second = Split<num_outputs = 2>(s)
            two = Constant<value_ints = [2]>()
            half = Div(first, two)
            rest = Mod(first, two)
            more = Sub(second, two)
            low = Constant<value_ints = [0]>()
            most = Max(more, low)
            to = Concat<axis = 0>(half, rest, most)
            y = ConstantOfShape(to)""",
            "(batch//2, batch - 2*(batch//2), max(n - 2, 0))",
        ),
    ],
)
def test_sizes_are_computed_with_symbols(nodes: str, shape: str) -> None:
    model = sgo.load(model_of(f"g (float[batch, n] x) => (y) {{ {nodes} }}"))
    assert repr(model.outputs["y"].shape) == shape


def test_initializers_that_are_inputs_too_are_parameters() -> None:
    """As all were before IR version 4."""
    proto = model_of("g (float[n] x, float[1] w) => (y) { y = Mul(x, w) }")
    proto.ir_version = 3
    proto.graph.initializer.append(numpy_helper.from_array(tensor(2), "w"))
    model = sgo.load(proto)
    assert list(model.inputs) == ["x"]
    assert list(model.parameters) == ["w"]
    np.testing.assert_array_equal(model(tensor(1, 3)), [2, 6])


def test_a_long_chain_needs_no_deep_stack() -> None:
    count = 5000
    nodes = [helper.make_node("Add", [f"v{i}", "w"], [f"v{i + 1}"]) for i in range(count)]
    proto = model_of("g (float[n] v0) => (y) <float[1] w = {1}> { y = Identity(v0) }")
    proto.graph.node[0].input[0] = f"v{count}"
    proto.graph.node.extend(nodes)
    proto.graph.node.append(proto.graph.node[0])
    del proto.graph.node[0]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 120)
    try:
        model = sgo.load(proto)
    finally:
        sys.setrecursionlimit(limit)
    np.testing.assert_array_equal(model(tensor(1)), [count + 1])


def test_what_reads_an_initializer_only_to_know_it_needs_no_parameter() -> None:
    model = sgo.load(
        model_of("""
        g (float[2, 2] x) => (y, z)
        <float[1] w = {2}, int64[1] to = {-1}, int64[2] table = {5, 7}>
        {
            a = Mul(x, w)
            y = Reshape(a, to)
            z = Identity(table)
        }""")
    )
    assert list(model.parameters) == ["w"]
    found = model(np.ones((2, 2), F))
    np.testing.assert_array_equal(found["y"], [2, 2, 2, 2])
    np.testing.assert_array_equal(found["z"], [5, 7])


def test_known_inputs_decide_about_sizes() -> None:
    proto = model_of("g (float[n] x, int64[2] to) => (y) { y = Reshape(x, to) }")
    with pytest.raises(sg.GraphError, match=r"shape \('to'\) must be known.*known=\{name: value\}"):
        sgo.load(proto)
    model = sgo.load(proto, known={"to": np.array([2, -1])})
    assert list(model.inputs) == ["x"]
    assert model(np.zeros(6, F)).shape == (2, 3)


@pytest.mark.parametrize(
    ("known", "error", "match"),
    [
        ({"z": 1}, sg.ArgumentError, "'z', which is no input"),
        ({"x": np.zeros((2, 3), np.float64)}, sg.DTypeError, "float32, not float64"),
        ({"x": np.zeros((2, 4), F)}, sg.ShapeError, r"\[None, 3\], not \[2, 4\]"),
        ([1], sg.ArgumentError, "dict of arrays"),
    ],
)
def test_known_values_fit_their_inputs(known: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        sgo.load(model_of(MLP), known=known)


def test_arguments_that_are_not_the_models() -> None:
    model = sgo.load(model_of(MLP))
    with pytest.raises(sg.ArgumentError, match="'x' is missing"):
        model()
    with pytest.raises(sg.ArgumentError, match="'z' is no input"):
        model(np.ones((1, 3), F), z=1)
    with pytest.raises(sg.ArgumentError, match="'x' is given twice"):
        model(np.ones((1, 3), F), x=1)
    with pytest.raises(sg.ArgumentError, match="takes 1 inputs"):
        model(1, 2)
    with pytest.raises(sg.DTypeError, match="float32"):
        model(np.ones((1, 3)))


# ----------------------------------------------------------------------------------------------- gradients


def test_gradients_of_parameters_and_inputs() -> None:
    model = sgo.load(model_of(MLP))
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(F) / 9

    def loss(parameters: Any, x: Any) -> Any:
        return sg.reduce_sum(sg.square(model.apply(parameters, x)))

    p = model.values()
    dp, dx = sg.grad(loss, argnums=(0, 1))(p, x)
    h = np.tanh(x @ p["l1.weight"] + p["l1.bias"])
    g = 2 * (h @ p["l2.weight"])
    gh = (g @ p["l2.weight"].T) * (1 - h * h)
    np.testing.assert_allclose(dp["l2.weight"], h.T @ g, rtol=1e-4)
    np.testing.assert_allclose(dp["l1.weight"], x.T @ gh, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(dp["l1.bias"], gh.sum(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(dx, gh @ p["l1.weight"].T, rtol=1e-3, atol=1e-3)


def test_gradients_for_the_parameters_of_the_graph_are_built_into_it() -> None:
    model = sgo.load(model_of(MLP))
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(F) / 9

    def loss(parameters: Any) -> Any:
        return sg.reduce_sum(sg.square(model.apply(parameters, x)))

    with sg.Session(model.graph) as session:
        found = session.run(sg.grad(loss)(model.parameters))
    expected = sg.grad(loss)(model.values())
    assert found.keys() == expected.keys()
    for name, g in expected.items():
        np.testing.assert_allclose(found[name], g, rtol=1e-5, atol=1e-6)


def test_second_derivatives_equal_closed_forms() -> None:
    model = sgo.load(
        model_of("""
        g (double[n] x) => (y) <double[1] a = {3}>
        {
            s = Sin(x)
            cube = Constant<value = double {3}>()
            p = Pow(x, cube)
            q = Mul(p, a)
            r = Mul(s, q)
            y = ReduceSum<keepdims=0>(r)
        }""")
    )
    x = np.linspace(0.5, 2, 5)
    np.testing.assert_allclose(
        np.diag(sg.hessian(model)(x)),
        3 * (6 * x * np.sin(x) + 6 * x**2 * np.cos(x) - x**3 * np.sin(x)),
        rtol=1e-12,
    )
    # The mixed derivative by the parameter and the input.
    mixed = sg.grad(lambda a: sg.reduce_sum(sg.grad(lambda x: model.apply({"a": a}, x))(x)))
    np.testing.assert_allclose(
        mixed(np.array([3.0])), [np.sum(3 * x**2 * np.sin(x) + x**3 * np.cos(x))], rtol=1e-12
    )


def test_batches_of_models() -> None:
    model = sgo.load(model_of(MLP))
    xs = np.random.default_rng(2).normal(size=(4, 5, 3)).astype(F)
    np.testing.assert_allclose(sg.vmap(model)(xs), np.stack([model(x) for x in xs]), rtol=1e-6)


# --------------------------------------------------------------------------------------------------- gates

GATES = """
<domain: "stopgrad", opset_import: ["" : 21]>
StopGradient (x) => (y) { y = Identity(x) }
<domain: "stopgrad", opset_import: ["" : 21]>
PreventGradient <message> (x) => (y) { y = Identity(x) }
"""


def test_gates_are_gates_again() -> None:
    model = sgo.load(
        model_of(
            """
            g (float[n] x) => (y) <float[1] w = {2}>
            {
                a = Mul(x, w)
                [encoder__stop] b = stopgrad.StopGradient(a)
                y = Mul(b, x)
            }""",
            more=', "stopgrad": 1',
            functions=GATES,
        )
    )
    (stop,) = [op for op in model.graph.operations if op.type == "StopGradient"]
    assert stop.name == "encoder/stop"
    x = tensor(1, 2, 3)
    np.testing.assert_array_equal(model(x), 2 * x * x)
    np.testing.assert_array_equal(sg.grad(lambda x: sg.reduce_sum(model(x)))(x), 2 * x)
    report = sg.explain(lambda w: sg.reduce_sum(model.apply({"w": w}, x)), tensor(2))
    assert "StopGradient 'encoder/stop' (a)" in str(report)


def test_attributes_of_gates_are_kept() -> None:
    model = sgo.load(
        model_of(
            'g (float[n] x) => (y) { y = stopgrad.PreventGradient<message = "not here">(x) }',
            more=', "stopgrad": 1',
            functions=GATES,
        )
    )
    assert model(tensor(1)) == 1
    with pytest.raises(sg.GradientError, match="not here"):
        sg.grad(lambda x: sg.reduce_sum(model(x)))(tensor(1))


def test_a_line_of_a_report_says_the_node() -> None:
    model = sgo.load(
        model_of("""
        head (float[n] x) => (y)
        {
            [block__Floor] a = Floor(x)
            [block__Mul] y = Mul(a, a)
        }""")
    )
    report = str(sg.explain(lambda x: sg.reduce_sum(model(x)), tensor(1, 2)))
    assert "Floor 'block/Floor' (x)" in report


def test_the_body_of_an_operator_goes_by_the_operators_name() -> None:
    model = sgo.load(model_of("g (float[2] x) => (y) { [act] y = Swish<alpha = 1.3>(x) }", 24))
    inside = [op for op in model.graph.operations if op.type in ("Mul", "Sigmoid")]
    assert len(inside) > 2
    assert {op.name.partition("/")[0] for op in inside} == {"act"}
    assert {op.location.source for op in inside} == {"Swish 'act' (x)"}
    with pytest.raises(sg.GraphError, match=r"(?s)1 node .*CenterCropPad 'crop': pads"):
        sgo.load(model_of("g (float[a] x, int64[1] size) => (y) { [crop] y = CenterCropPad(x, size) }"))


def test_errors_when_it_runs_say_the_node() -> None:
    model = sgo.load(model_of("g (float[a] x, float[b] y) => (z) { [sum] z = Add(x, y) }"))
    with pytest.raises(sg.StopgradError, match=r"Add 'sum' \(x, y\)"):
        model(tensor(1, 2), tensor(1, 2, 3))


# ------------------------------------------------------------------------------------- parameters and data


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    proto = model_of(MLP)
    x = np.ones((1, 3), F)
    expected = sgo.load(proto)(x)
    for t in proto.graph.initializer:  # Only raw bytes are put outside.
        t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t), t.name))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").exists()
    np.testing.assert_array_equal(sgo.load(tmp_path / "m.onnx")(x), expected)
    content = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(sg.FileError, match="came without a folder"):
        sgo.load(content)


def test_sparse_initializers() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [5.0, 7.0])
    places = helper.make_tensor("places", TensorProto.INT64, [2], [1, 5])
    pairs = helper.make_tensor("pairs", TensorProto.INT64, [2, 2], [0, 1, 1, 2])
    for indices in (places, pairs):
        proto = model_of("g (float[2, 3] x) => (y) { y = Identity(x) }")
        proto.graph.node[0].CopyFrom(helper.make_node("Mul", ["x", "w"], ["y"]))
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
        np.testing.assert_array_equal(sgo.load(proto)(np.ones((2, 3), F)), [[0, 5, 0], [0, 0, 7]])


def test_random_numbers_come_from_a_key() -> None:
    model = sgo.load(
        model_of(
            "g (float[n] x) => (y) { a = RandomNormalLike(x)\n b = RandomUniformLike(x)\n y = Add(a, b) }"
        )
    )
    assert list(model.parameters) == ["random_key"]
    x = np.zeros(100, F)
    np.testing.assert_array_equal(model(x), model(x))
    other = model.apply({"random_key": sg.random_key(7)}, x)
    assert np.all(other != model(x))
    seeded = sgo.load(model_of("g (float[n] x) => (y) { y = RandomNormalLike<seed = 3.0>(x) }"))
    assert not seeded.parameters
    assert abs(seeded(x).std() - 1) < 0.3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double", "uint8", "bool", "complex64"])
def test_initializers_of_other_types(dtype: str) -> None:
    kind = sg.float64 if dtype == "double" else sg.DType if dtype is None else getattr(sg, dtype, sg.bool_)
    value = np.array([1, 0, 1]).astype(kind.numpy)
    proto = model_of("g (float[3] x) => (y) { y = Identity(w) }")
    proto.graph.initializer.append(numpy_helper.from_array(value, "w"))
    found = sgo.load(proto)(np.zeros(3, F))
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)
