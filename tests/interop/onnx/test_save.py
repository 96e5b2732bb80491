"""Graphs written as ONNX: gradients on the stock runtime, what the models look like, and the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_programs import PROGRAMS, assert_close, built, counted, session_of
from stopgrad.errors import ArgumentError, EngineError, FileError

import stopgrad as sg
import stopgrad.onnx as sgo

VARIANTS = [
    pytest.param(name, second, dtype, id=f"{name}-{'second' if second else 'first'}-{dtype}", marks=marks)
    for name in PROGRAMS
    for second, dtype, marks in (
        (False, "float32", []),
        (True, "float32", pytest.mark.nightly),
        (True, "float64", []),
    )
]


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize(("name", "second", "dtype"), VARIANTS)
def test_gradients_equal_numpys_at_several_batch_sizes(name: str, second: bool, dtype: str) -> None:
    program = built(name, second, dtype)
    model = sgo.to_model(program.outputs, program.inputs)
    onnx.checker.check_model(model, full_check=True)
    session = session_of(model)
    for batch in program.batches:
        found = session.run(list(program.outputs), batch)
        assert_close(found, program.on_numpy(batch), 1e-9 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("opset", [18, pytest.param(20, marks=pytest.mark.nightly), 23, 26])
def test_every_opset_is_written(name: str, opset: int) -> None:
    program = built(name)
    model = sgo.to_model(program.outputs, program.inputs, opset=opset)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", opset)]
    onnx.checker.check_model(model, full_check=True)
    batch = program.batches[-1]
    assert_close(session_of(model).run(list(program.outputs), batch), program.on_numpy(batch), 1e-4)


def test_each_opset_has_the_format_of_its_time() -> None:
    for opset in range(18, 27):
        model = sgo.to_model(*_layer(2), opset=opset)
        assert model.ir_version == onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])


# ---------------------------------------------------------------------------------- what is written


def test_symbolic_sizes_have_their_names_and_need_no_shapes() -> None:
    program = built("attention")
    model = sgo.to_model({"loss": program.outputs["loss"]}, program.inputs)
    sizes = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["batch", "time", 16]
    # Only the mean asks how many elements there are.
    assert counted(model)["Shape"] <= 2


def test_composites_are_operators() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 6], name="x")
        scale, offset = sg.parameter(np.ones(6, np.float32)), sg.parameter(np.zeros(6, np.float32))
        y = sg.gelu(sg.layer_norm(x, scale, offset))
        z = sg.relu(sg.softmax(y)) + sg.log_softmax(y) * sg.sigmoid(y)
    model = sgo.to_model({"y": y, "z": z})
    expected = {"LayerNormalization", "Gelu", "Softmax", "Relu", "LogSoftmax", "Sigmoid", "Mul", "Add"}
    assert counted(model) == dict.fromkeys(expected, 1)


def test_transposes_around_convolutions_vanish() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 8, 8, 3], name="x")
        h = x
        for i in range(3):
            filters = sg.parameter(np.ones((3, 3, h.shape[-1], 4), np.float32), name=f"filters{i}")
            bias = sg.parameter(np.ones(4, np.float32), name=f"bias{i}")
            h = sg.relu(sg.conv(h, filters, padding="SAME") + bias)
        y = sg.reduce_mean(sg.max_pool(h, 2, 2, "VALID"), axis=(1, 2))
    found = counted(sgo.to_model({"y": y}))
    # One for the input, and one for each parameter; biases are the convolutions'.
    assert found["Transpose"] == 4
    assert found["Conv"] == 3
    assert found["Add"] == 0


SIZES = {
    "relu(x @ w + b)": (3, lambda x: sg.relu(x @ np.ones((4, 4), np.float32) + np.ones(4, np.float32))),
    "mean square": (2, lambda x: sg.reduce_mean(sg.square(x), axis=1)),
    "x[:, 1:3]": (1, lambda x: x[:, 1:3]),
    "reshape": (1, lambda x: sg.reshape(x, [x.shape[0], 2, 2])),
    "batched product": (2, lambda x: sg.matmul(sg.transpose(x), x)),
    "concat, pad": (2, lambda x: sg.pad(sg.concat([x, x], 1), [[0, 0], [1, 1]])),
    "cond": (5, lambda x: sg.cond(sg.reduce_sum(x) > 0, lambda: sg.exp(x), lambda: x * 2.0)),
    "cumsum": (1, lambda x: sg.cumsum(x, 1)),
    "rows by number": (1, lambda x: sg.gather(x, np.array([0, 2], np.int32), axis=1)),
    "top_k": (7, lambda x: sg.top_k(x, 2)[0]),
}


@pytest.mark.parametrize("name", SIZES)
def test_models_are_as_small_as_written_by_hand(name: str) -> None:
    most, function = SIZES[name]
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 4], name="x")
        y = function(x)
    found = counted(sgo.to_model({"y": y}))
    assert found.total() <= most, dict(found)


def test_constants_are_nodes_and_parameters_initializers() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 4], name="x")
        w = sg.parameter(np.full((4, 4), 0.5, np.float32), name="w")
        y = sg.maximum(x @ w, np.float32(0.25)) * np.arange(4, dtype=np.float32)
    model = sgo.to_model({"y": y})
    assert [one.name for one in model.graph.initializer] == ["w"]
    back = sgo.load(model)
    assert list(back.parameters) == ["w"]


def test_nodes_are_called_as_operations() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 8, 8, 3], name="x")
        with sg.name_scope("block"):
            h = sg.conv(x, np.ones((3, 3, 3, 4), np.float32), padding="SAME", name="conv")
            h = sg.tanh(h, name="act")
        y = sg.reduce_sum(h, axis=(1, 2), name="total")
    names = {node.name for node in sgo.to_model({"y": y}).graph.node}
    assert {"block/conv", "block/act", "y"} <= names


def test_names_of_bodies_are_their_own() -> None:
    program = built("loops", second=True)
    model = sgo.to_model(program.outputs, program.inputs)
    names: list[str] = []
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        names += [x.name for x in graph.input] + [y for node in graph.node for y in node.output]
        graphs += [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    assert len(names) == len(set(names))


def test_what_stands_before_a_loop_is_not_moved_into_it() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 8, 8, 3], name="x")
        scale = sg.parameter(np.ones(4, np.float32))
        h = sg.conv(x, np.ones((3, 3, 3, 4), np.float32), padding="SAME")
        normal = sg.layer_norm(sg.reduce_sum(h, axis=(1, 2)))
        carry, _ = sg.scan(
            lambda c, _: (c + sg.reduce_sum(normal * scale) + sg.reduce_sum(sg.exp(h)), c), 0.0, length=3
        )
    model = sgo.to_model({"y": carry})
    assert {node.op_type for node in model.graph.node} >= {"LayerNormalization", "Transpose", "Conv"}
    (body,) = [a.g for node in model.graph.node for a in node.attribute if a.name == "body"]
    assert not {node.op_type for node in body.node} & {"LayerNormalization", "Transpose"}


def test_what_is_not_needed_is_not_written() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", 4], name="x")
        kept, left = sg.parameter(np.ones(4, np.float32), name="kept"), sg.parameter(np.ones(4), name="left")
        y = sg.stop_gradient(x) * kept
        sg.exp(left)
        (dx,) = sg.gradients(y, [kept])
    model = sgo.to_model({"dx": dx})
    assert not {w.name for w in model.graph.initializer} & {"kept", "left"}
    assert "Exp" not in counted(model)


def test_equal_gates_stay_apart() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch"], name="x")
        y = sg.stop_gradient(x) * 2.0 + sg.stop_gradient(x)
    assert counted(sgo.to_model({"y": y}))["StopGradient"] == 2


# ----------------------------------------------------------------------------- functions and models


def test_a_function_is_written() -> None:
    def f(params: dict[str, Any], x: Any) -> dict[str, Any]:
        return {"loss": sg.reduce_sum(sg.square(x @ params["w"])), "more": (x * 2.0,)}

    given = [{"w": np.ones((3, 2), np.float32)}, np.ones((4, 3), np.float32)]
    model = sgo.to_model(f, given)
    assert [x.name for x in model.graph.input] == ["params.w", "x"]
    assert [y.name for y in model.graph.output] == ["loss", "more.0"]
    found = session_of(model).run(None, {"params.w": given[0]["w"], "x": given[1]})
    expected = f(*given)
    assert_close(found, [expected["loss"], expected["more"][0]], 1e-6)


def test_a_function_of_open_sizes_is_written() -> None:
    f = sg.function(sg.grad(lambda x: sg.reduce_sum(x**3)), shapes={"x": ["n", 2]})
    model = sgo.to_model(f, [np.ones((4, 2))])
    for n in (1, 5):
        x = np.random.default_rng(n).normal(size=(n, 2))
        assert_close(session_of(model).run(["output"], {"x": x}), [3 * x**2], 1e-12)


def test_an_imported_model_is_written_with_its_names() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[b, 2] x) => (float[b, 2] y) <float[2] w = {1, 2}>'
    )
    back = sgo.load(onnx.parser.parse_model(text + "{ h = Mul(x, w) \n y = Exp(h) }"))
    model = sgo.to_model(back)
    assert [x.name for x in model.graph.input] == ["x"]
    assert [w.name for w in model.graph.initializer] == ["w"]
    assert counted(model) == {"Mul": 1, "Exp": 1}


# ---------------------------------------------------------------------------------------- the files


def _layer(size: int) -> tuple[dict[str, sg.Output], dict[str, sg.Output]]:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", size], name="x")
        w = sg.parameter(np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size), name="w")
        return {"y": sg.tanh(x @ w)}, {"x": x}


def test_large_arrays_are_kept_beside(tmp_path: Path) -> None:
    outputs, inputs = _layer(64)
    path = tmp_path / "model.onnx"
    x = np.ones((2, 64), np.float32)
    sgo.save(path, outputs, inputs)
    expected = session_of(str(path)).run(None, {"x": x})
    for _ in range(3):  # Each time the old pair is whole until the new one is.
        sgo.save(path, outputs, inputs, external=True)
        assert len(list(tmp_path.iterdir())) == 2
        onnx.checker.check_model(str(path), full_check=True)
        assert_close(session_of(str(path)).run(None, {"x": x}), expected, 0)
    assert path.stat().st_size < 1000
    assert_close([sgo.load(path)(x)], expected, 1e-6)


@pytest.mark.nightly
def test_more_than_protobuf_takes_goes_beside_by_itself(tmp_path: Path) -> None:
    size = 24_000
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, ["batch", size], name="x")
        w = sg.parameter(np.ones((size, size), np.float32), name="w")
        outputs, inputs = {"y": x @ w}, {"x": x}
    path = tmp_path / "model.onnx"
    with pytest.raises(EngineError, match="external=True"):
        sgo.save(path, outputs, inputs, external=False)
    assert not list(tmp_path.iterdir())
    sgo.save(path, outputs, inputs)
    assert (tmp_path / "model.onnx.data").stat().st_size == 4 * size * size
    found = session_of(str(path)).run(None, {"x": np.ones((1, size), np.float32)})[0]
    assert found.min() == found.max() == size


def test_values_of_parameters(tmp_path: Path) -> None:
    outputs, inputs = _layer(2)
    x = np.ones((1, 2), np.float32)
    w = np.zeros((2, 2), np.float32)
    found = session_of(sgo.to_model(outputs, inputs, values={"w": w})).run(None, {"x": x})[0]
    assert not found.any()
    with pytest.raises(ArgumentError, match=r"parameter 'w' is float32\[2, 2\], not float64\[3\]"):
        sgo.to_model(outputs, inputs, values={"w": np.zeros(3)})


def test_the_model_says_who_made_it() -> None:
    model = sgo.to_model(*_layer(2))
    assert (model.producer_name, model.producer_version) == ("stopgrad", sg.__version__)


def test_mistakes(tmp_path: Path) -> None:
    outputs, inputs = _layer(2)
    y, x = outputs["y"], inputs["x"]
    for wrong, cure in (
        (lambda: sgo.to_model({}), "at least one output"),
        (lambda: sgo.to_model(outputs, {}), "not among the inputs"),
        (lambda: sgo.to_model(outputs, opset=17), "from 18 to 26"),
        (lambda: sgo.to_model({"x": y}, {"x": x}), "called 'x'"),
        (lambda: sgo.to_model(3), "outputs are outputs"),
        (lambda: sgo.to_model({"y": 3}), "outputs are outputs of a graph"),
        (lambda: sgo.to_model(sg.exp), "list of arrays like its arguments"),
        (lambda: sgo.save(tmp_path / "m.onnx", outputs, inputs, external="yes"), "external"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError, match=cure):
            wrong()
    with pytest.raises(FileError):
        sgo.save(tmp_path / "none" / "m.onnx", outputs, inputs, external=True)
    assert not list(tmp_path.iterdir())


def test_what_has_no_form_is_named_with_its_line() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3, 3], name="x")
        y = sg.svd(x)[0]
    with pytest.raises(EngineError, match=r"(?s)Svd.*test_save\.py.*no form in ONNX"):
        sgo.to_model({"y": y})


# --------------------------------------------------------------------------------------------- branches


def op_types(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The types of nodes, also in bodies."""
    for node in nodes:
        yield node.op_type
        for attribute in node.attribute:
            yield from op_types(attribute.g.node)


def summed(x: sg.Output, chosen: Callable[[sg.Output], Any]) -> Any:
    """A loop whose body has a branch."""
    return sg.scan(lambda h, v: (h + chosen(v), h), sg.constant(0.0), x)[0]


CHOICES: dict[str, Callable[[], Any]] = {
    "a stopped constant": lambda: sg.stop_gradient(sg.constant(2.0)),
    "a number of a large constant": lambda: sg.reduce_max(sg.reshape(sg.zeros([3000]), [3, -1]) + 2.0),
    "a parameter": lambda: sg.parameter(np.float32(2.0), name="w") * 1.0,
    "the end of a loop": lambda: sg.fori_loop(0, 3, lambda i, v: v + 1.0, sg.constant(-1.0)),
    "a branch": lambda: sg.cond(sg.stop_gradient(sg.constant(True)), lambda: 2.0, lambda: -2.0),
}


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("make", CHOICES.values(), ids=CHOICES)
def test_a_branch_that_the_model_decides_is_written_alone(make: Callable[[], Any], loop: bool) -> None:
    """Where ONNX Runtime 1.32.0 would decide it, it may crash."""
    with sg.Graph().as_default():
        x, y = sg.placeholder(sg.float32, [3], name="x"), make()
        pick = lambda v: sg.cond(sg.greater(y, 1.0), lambda: v * 3.0, lambda: v)
        decided = sgo.to_model({"y": summed(x, pick) if loop else pick(x)})
        asked = sgo.to_model({"y": sg.cond(sg.reduce_sum(x) > 1.0, lambda: x * 3.0, lambda: x)})
    fed = np.array([1, 2, 4], np.float32)
    (found,) = session_of(decided).run(None, {"x": fed})
    np.testing.assert_array_equal(found, 21.0 if loop else fed * 3.0)
    assert "If" not in op_types(decided.graph.node)
    assert "If" in op_types(asked.graph.node)
