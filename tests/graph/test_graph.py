"""Graphs: names as TensorFlow makes them, scopes, look-ups, reading operations, failed builds, threads."""

from __future__ import annotations

import inspect
import pickle
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from junk import JUNK
from together import together

import stopgrad as sg
from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import dtype_of
from stopgrad.graph.op import REGISTRY, Op


def names(graph: sg.Graph) -> list[str]:
    return [op.name for op in graph.operations]


# --------------------------------------------------------------------------------------------- names


def test_an_operation_without_a_name_has_its_type_made_unique_by_a_number() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2])
        for _ in range(3):
            x = sg.exp(x)
        sg.matmul(sg.ones([1, 2]), sg.ones([2, 1]))
    assert names(graph) == ["Placeholder", "Exp", "Exp_1", "Exp_2", "Const", "Fill", "Fill_1", "MatMul"]
    assert x.name == "Exp_2:0"


def test_a_name_asked_for_is_kept_and_made_unique() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        sg.exp(x, name="x")
        sg.exp(x, name="y")
        sg.exp(x, name="y")
        sg.exp(x, name="y_1")
    assert names(graph) == ["x", "x_1", "y", "y_1", "y_1_1"]


def test_a_name_like_a_generated_one_is_settled_in_the_order_of_building() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        sg.exp(x)
        sg.exp(x, name="Exp")
        sg.exp(x, name="Exp_5")
        sg.exp(x)
    assert names(graph) == ["x", "Exp", "Exp_1", "Exp_5", "Exp_2"]


NAMES = st.sampled_from([None, None, "Exp", "Exp_1", "y", "y_1", "a/Exp", "a"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.sampled_from([None, "a", "Exp"]), st.booleans()), max_size=12))
def test_names_are_unique_and_the_same_whenever_they_are_asked_for(
    steps: list[tuple[str | None, str | None, bool]],
) -> None:
    def build(ask: bool) -> list[str]:
        graph = sg.Graph()
        with graph.as_default():
            x = sg.placeholder(sg.float32, name="x")
            for name, scope, early in steps:
                if scope is None:
                    y = sg.exp(x, name=name)
                else:
                    with sg.name_scope(scope):
                        y = sg.exp(x, name=name)
                if ask and early:
                    assert y.op.name
        return names(graph)

    late = build(False)
    assert len(set(late)) == len(late)
    assert build(True) == late


def test_scopes_nest_and_are_made_unique() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        with sg.name_scope("layer"):
            sg.exp(x)
            with sg.name_scope("inner"):
                sg.exp(x, name="e")
            sg.exp(x)
        with sg.name_scope("layer"):
            sg.exp(x, name="e")
        sg.exp(x, name="layer")
        sg.exp(x)
    assert names(graph) == ["x", "layer/Exp", "layer/inner/e", "layer/Exp_1", "layer_1/e", "layer_2", "Exp"]


def test_scope_objects_as_tensorflows() -> None:
    graph = sg.Graph()
    scope = sg.Scope(graph)
    x = sg.ops.Placeholder.create(scope.with_name("x"), sg.float32)
    first, second = scope.with_sub_scope("net"), scope.with_sub_scope("net")
    a = sg.ops.Exp.create(first.with_name("a"), x)
    b = sg.ops.Exp.create(first, x)
    c = sg.ops.Exp.create(second.with_sub_scope("deep"), x)
    d = sg.ops.Exp.create(scope.with_name("d"), sg.ops.Exp.create(scope, x))
    assert [op.name for op in (x, a, b, c, d)] == ["x", "net/a", "net/Exp", "net_1/deep/Exp", "d"]
    assert graph.operation("Exp") is d.inputs[0].op
    with scope.with_sub_scope("block") as block:
        assert sg.constant(1.0, name="one").name == "block/one:0"
        assert block.graph is graph


def test_with_name_names_only_the_next_operation() -> None:
    graph = sg.Graph()
    with sg.Scope(graph).with_name("first"):
        sg.placeholder(sg.float32)
        sg.placeholder(sg.float32)
    assert names(graph) == ["first", "Placeholder"]


def test_a_scope_is_left_after_an_error() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2], name="x")
        with pytest.raises(sg.ShapeError), sg.name_scope("layer"):
            sg.reshape(x, [3])
        sg.exp(x)
    assert names(graph) == ["x", "Exp"]


def test_the_gradient_has_a_scope_of_its_own() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        y = sg.exp(x)
        with sg.name_scope("train"):
            sg.gradients(y, [x])
        sg.gradients(y, [x], name="slopes")
        before = len(graph)
        sg.gradients(sg.tanh(y), [x])
    made = [name for name in names(graph)[2:] if name != "Tanh"]
    assert {name.rpartition("/")[0] for name in made} == {"train/gradients", "slopes", "gradients"}
    assert [name for name in names(graph)[before:] if name.startswith("gradients/")]


# ------------------------------------------------------------------------------------------- look-ups


def test_operations_and_outputs_are_found_by_name() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [4], name="x")
        a, b = sg.split(x, 2, name="halves")
    assert graph.operation("x") is x.op is graph.operation_or_raise("x")
    assert graph.operation("y") is None
    assert graph.output("x") is graph.output("x:0") is x
    assert (graph.output("halves:0"), graph.output("halves:1")) == (a, b)
    assert a.op.output(1) is b
    for wrong in ("halves", "halves:2", "halves:-1", "halves:a", "y:0", ""):
        with pytest.raises(sg.GraphError):
            graph.output(wrong)


def test_a_scope_is_no_operation() -> None:
    with sg.Graph().as_default() as graph, sg.name_scope("layer"):
        sg.constant(1.0, name="one")
    assert graph.operation("layer") is None
    assert graph.operation("layer/one") is not None


def test_subgraphs() -> None:
    with sg.Graph().as_default() as graph:
        a, b = sg.placeholder(sg.float32, name="a"), sg.placeholder(sg.float32, name="b")
        c = sg.exp(a, name="c")
        d = sg.add(c, b, name="d")
        e = sg.add(d, c, name="e")
        f = sg.exp(b, name="f")
    assert [op.name for op in graph.subgraph_to([d])] == ["a", "b", "c", "d"]
    assert [op.name for op in graph.subgraph_to([c.op, f])] == ["a", "b", "c", "f"]
    assert [op.name for op in graph.subgraph_from([c])] == ["c", "d", "e"]
    assert [op.name for op in graph.subgraph_from([b])] == ["b", "d", "e", "f"]
    assert [op.name for op in graph.subgraph_from([a, b])] == ["a", "b", "c", "d", "e", "f"]
    assert graph.subgraph_to([]) == graph.subgraph_from([]) == []
    stranger = sg.Graph()
    for read in (stranger.subgraph_to, stranger.subgraph_from):
        with pytest.raises(sg.GraphError, match="another graph"):
            read([e])


def test_a_long_chain_needs_no_recursion() -> None:
    import sys

    limit = sys.getrecursionlimit()
    with sg.Graph().as_default() as graph:
        x = y = sg.placeholder(sg.float32, name="x")
        for _ in range(3000):
            y = sg.sin(y)
        try:
            sys.setrecursionlimit(len(inspect.stack()) + 60)
            assert len(graph.subgraph_to([y])) == len(graph.subgraph_from([x])) == 3001
            assert sg.gradients(y, [x])[0] is not None
        finally:
            sys.setrecursionlimit(limit)


# -------------------------------------------------------------------------------- operations and outputs


def test_reading_an_operation() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n", 3], name="x")
        y = sg.reduce_sum(x, axis=1, keepdims=True, name="total")
    op = y.op
    assert (op.type, op.name, op.id, op.graph) == ("Sum", "total", 1, graph)
    assert op.inputs == (x,)
    assert op.outputs == (y,)
    assert dict(op.attributes) == {"axis": (1,), "keepdims": True}
    assert (op.x, op.axis, op.keepdims, op.result) == (x, (1,), True, y)
    assert op.as_output() is op.output() is y.as_output() is y
    assert (y.index, y.dtype, y.ndim, repr(y.shape)) == (0, sg.float32, 2, "(n, 1)")
    assert isinstance(op, sg.Operand)
    assert isinstance(y, sg.Operand)
    assert not isinstance(3.0, sg.Operand)
    assert repr(op) == "<Sum 'total'>"
    assert repr(y) == "<total:0 float32[n, 1]>"
    assert repr(graph) == "<Graph of 2 operations>"
    with pytest.raises(AttributeError, match="Sum has no 'perm'"):
        _ = op.perm
    assert {"x", "axis", "keepdims", "result", "inputs", "name"} <= {*dir(op)}
    assert "perm" not in dir(op)
    with pytest.raises(TypeError):
        op.attributes["axis"] = (0,)  # type: ignore[index]
    with pytest.raises(sg.GraphError, match=r"Graph\.save"):
        pickle.dumps(op)


def test_the_operations_are_a_snapshot() -> None:
    with sg.Graph().as_default() as graph:
        sg.placeholder(sg.float32)
        seen = graph.operations
        sg.placeholder(sg.float32)
    assert len(seen) == 1
    assert len(graph) == len(graph.operations) == 2


def test_equality_of_outputs_is_elementwise_and_hashing_by_identity() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2])
        y = sg.placeholder(sg.float32, [2])
        same, other, number = x == y, x != y, x == 3.0
    assert {x: 1, y: 2}[y] == 2
    assert (x == None) is False  # noqa: E711 - what is no tensor is another thing
    assert x != "x"
    with sg.Session(graph) as session:
        found = session.run([same, other, number], {x: [1.0, 3.0], y: [1.0, 2.0]})
    assert [v.tolist() for v in found] == [[True, False], [False, True], [False, True]]
    with pytest.raises(sg.GraphError, match=r"truth value.*sg\.where"):
        bool(x == y)


def test_an_output_is_iterated_along_its_first_axis() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2, 3])
        a, b = x
    assert len(x) == 2
    with sg.Session(graph, engine="numpy") as session:
        got = session.run([a, b], {x: [[1, 2, 3], [4, 5, 6]]})
    np.testing.assert_array_equal(got, [[1, 2, 3], [4, 5, 6]])


# ----------------------------------------------------------------------------------- constants, graphs


def test_numbers_in_the_users_text_are_built_once() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        a, b, c = x * 2.0, x + 2.0, x * 2
        d = sg.cast(x, sg.float64) * 2.0
        named = sg.constant(2.0, name="two")
    assert a.op.inputs[1] is b.op.inputs[1] is c.op.inputs[1]
    assert d.op.inputs[1] is not a.op.inputs[1]
    assert named is not a.op.inputs[1]
    assert sum(op.type == "Const" for op in graph.operations) == 3


def test_a_negative_zero_is_another_number() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        y = sg.stack([sg.divide(1.0, x + 0.0), sg.divide(1.0, x + (-0.0))])
    with sg.Session(graph, engine="numpy") as session:
        np.testing.assert_array_equal(session.run(y, {x: -0.0}), [np.inf, -np.inf])


def test_a_constant_keeps_its_value_when_the_array_changes() -> None:
    array = np.ones(2, np.float32)
    with sg.Graph().as_default() as graph:
        x = sg.constant(array)
        w = sg.parameter(array)
    array[:] = 5.0
    with sg.Session(graph, engine="numpy") as session:
        np.testing.assert_array_equal(session.run([x, w]), np.ones((2, 2)))


def test_two_graphs_are_built_side_by_side() -> None:
    one, two = sg.Graph(), sg.Graph()
    with one.as_default():
        x = sg.placeholder(sg.float32, name="x")
        with two.as_default():
            y = sg.placeholder(sg.float32, name="x")
        z = sg.constant(1.0)
    u = y * 2.0  # its operand says where it belongs, whatever the default
    assert x.graph is z.graph is one
    assert u.graph is two
    assert names(one) == ["x", "Const"]
    assert names(two) == ["x", "Const", "Mul"]


def test_an_empty_graph_is_a_graph() -> None:
    graph, other = sg.Graph(), sg.Graph()
    with other.as_default():
        sg.placeholder(sg.float32)
        assert sg.Session(graph, engine="numpy").graph is graph


def test_threads_build_graphs_of_their_own() -> None:
    graphs: dict[int, sg.Graph] = {}
    together = threading.Barrier(4)

    def build(i: int) -> None:
        graph = graphs[i] = sg.Graph()
        together.wait()
        with graph.as_default():
            x = y = sg.placeholder(sg.float32, name=f"x{i}")
            for _ in range(100 + i):
                y = sg.exp(y) * float(i)
            sg.gradients(y, [x])

    threads = [threading.Thread(target=build, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(graphs) == 4
    for i, graph in graphs.items():
        assert names(graph)[0] == f"x{i}"
        assert all(
            op.graph is graph and all(x.op.graph is graph for x in op.inputs) for op in graph.operations
        )
        assert sum(op.type == "Exp" for op in graph.operations) == 100 + i


# ------------------------------------------------------------------------------------- failed builds


def test_atomic_leaves_no_trace() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        sg.exp(x)
        kept = x * 2.0

        def fail() -> None:
            with sg.name_scope("lost"), sg.no_gradient():
                sg.exp(x, name="y")
                sg.exp(x, name="Exp")
                inner = sg.exp(x) * 3.0
            assert (inner * 1.5).op.name  # with the exit of the no_gradient block
            raise RuntimeError

        for _ in range(2):
            with pytest.raises(RuntimeError), graph.atomic():
                fail()
        again = x * 3.0
        with sg.name_scope("lost"):
            sg.exp(x, name="y")
        sg.exp(x)
    assert names(graph) == ["x", "Exp", "Const", "Mul", "Const_1", "Mul_1", "lost/y", "Exp_1"]
    assert kept.op.inputs[1].op.graph is again.op.inputs[1].op.graph is graph
    assert sg.gradients(sg.exp(again), [x])[0] is not None  # nothing is stopped by the block that failed


def test_atomic_keeps_what_ends_well() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        with graph.atomic():
            sg.exp(x)
    assert names(graph) == ["x", "Exp"]


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<i4"])
def test_an_array_as_an_operand_is_a_constant_of_the_common_dtype_in_the_machines_order(dtype: str) -> None:
    array = np.array([1, 2], dtype)
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [2])
        for like in (np.ones(2, np.float32), array):  # Whatever an array of x's type was before.
            y = x * like
    found = next(op for op in reversed(graph.operations) if op.type == "Const").values[0].array
    assert found.dtype.isnative
    assert found.dtype == y.dtype.numpy == np.result_type(np.float32, dtype)
    np.testing.assert_array_equal(found, [1, 2])


def test_a_failed_gradient_takes_no_names() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")
        y = sg.exp(sg.prevent_gradient(x, "no"))
        z = sg.exp(x)
        both = z + y
        before = names(graph)
        with pytest.raises(sg.GradientError):
            sg.gradients(both, [x])
        assert names(graph) == before
        (g,) = sg.gradients(z, [x])
    assert g is not None
    assert g.name.startswith("gradients/")


# --------------------------------------------------------------------- every operation: class and function

CALLS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "Size": lambda a: {"out_type": a["dtype"]},
    "StridedSlice": lambda a: {"begin": [0] * len(a["spans"]), "end": [1] * len(a["spans"])},
    "Split": lambda a: {"num_or_size_splits": a["sizes"], "axis": a["axis"]},
    "Probe": lambda a: {},
    "Argsort": lambda a: {"axis": a["axis"], "direction": "DESCENDING" if a["descending"] else "ASCENDING"},
    "Sort": lambda a: {"axis": a["axis"], "direction": "DESCENDING" if a["descending"] else "ASCENDING"},
    "Range": lambda a: {
        "start": a["start"],
        "limit": a["start"] + a["delta"] * a["size"],
        "delta": a["delta"],
        "dtype": a["dtype"],
    },
    "Const": lambda a: {"value": a["value"].array},
    "Parameter": lambda a: {"value": a["value"].array},
    "RavelMultiIndex": lambda a: {"dims": a["sizes"]},
    "SearchSorted": lambda a: {"side": "right" if a["right"] else "left", "out_type": a["dtype"]},
    "Fft": lambda a: {"axes": a["axes"], "norm": a["norm"]},
    "VectorNorm": lambda a: {"ord": a["order"], "axis": a["axis"], "keepdims": a["keepdims"]},
}
"""How the functions are called whose parameters are not the attributes themselves."""

SAMPLED = [
    pytest.param(definition, definition.samples[0], id=name)
    for name, definition in REGISTRY.items()
    if definition.samples
]


def operands(graph: sg.Graph, definition: type[Op], sample: Sample) -> list[Any]:
    generator = np.random.default_rng(zlib.crc32(repr(sample).encode()))
    arrays = [o.draw(generator, {"n": 3}) if isinstance(o, Values) else o for o in sample.operands]
    with graph.as_default():
        xs: list[Any] = [sg.placeholder(dtype_of(a.dtype), a.shape) for a in arrays]
        if definition.type == "Assign":
            xs[0] = sg.parameter(arrays[0])
        if definition.type == "Size":
            xs = [sg.placeholder(sg.float32, [2, 3])]
    return xs


RENAMED = {
    "PadV2": {"value": "constant_values"},
    "ArgMax": {"dtype": "output_type"},
    "ArgMin": {"dtype": "output_type"},
    "Fill": {"shape": "dims"},
    "Polygamma": {"n": "a"},
    "TopKV2": {"x": "input", "dtype": "index_type"},
    "MatrixBandPart": {"x": "input", "low": "num_lower", "high": "num_upper"},
    "MatrixDiagPart": {"x": "input", "offset": "k"},
    "MatrixDiag": {"offset": "k", "rows": "num_rows", "columns": "num_cols"},
    "SearchSorted": {"sequence": "sorted_sequence", "x": "values"},
    "RandomSplit": {"n": "num"},
    "DynamicSlice": {"x": "operand", "starts": "start_indices", "sizes": "slice_sizes"},
}


def arguments(definition: type[Op], sample: Sample, xs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Operands and attributes as the function takes them: by name, but for those that are several."""
    keywords = CALLS.get(definition.type, dict)(dict(sample.attributes))
    keywords = {RENAMED.get(definition.type, {}).get(name, name): value for name, value in keywords.items()}
    parameters = inspect.signature(definition.function).parameters
    if definition.variadic:
        fixed = len(definition.operands)
        several = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        first = [keywords.pop(name) for name in list(parameters)[:1] if several and name in keywords]
        return [*first, *xs] if several else [*xs[:fixed], xs[fixed:]], keywords
    named = [RENAMED.get(definition.type, {}).get(name, name) for name in definition.operands]
    positional = [x for name, x in zip(named, xs, strict=False) if name not in parameters] + xs[len(named) :]
    return positional, keywords | {name: x for name, x in zip(named, xs, strict=False) if name in parameters}


@together(("definition", "sample"), SAMPLED)
def test_every_operation_is_a_class_and_a_function(definition: type[Op], sample: Sample) -> None:
    as_function, as_class = sg.Graph(), sg.Graph()
    xs, attributes = arguments(definition, sample, operands(as_function, definition, sample))
    name = "probed" if definition.type == "Probe" else "made"
    with as_function.as_default():
        made = definition.function(*xs, name=name, **attributes)
    while isinstance(made, (tuple, list)):
        made = made[0]
    xs, attributes = arguments(definition, sample, operands(as_class, definition, sample))
    op = definition.create(sg.Scope(as_class), *xs, name=name, **attributes)
    assert isinstance(op, sg.Operation)
    assert op.graph is as_class
    assert op.type == made.op.type
    assert op.name == made.op.name
    assert [y.type for y in op.outputs] == [y.type for y in made.op.outputs]
    assert repr(dict(op.attributes)) == repr(dict(made.op.attributes))
    assert getattr(sg.ops, definition.type) is definition
    assert op.type == definition.type
    for i, operand in enumerate(definition.operands):
        assert getattr(op, operand) is op.inputs[i]
    for attribute in definition.attributes:
        assert getattr(op, attribute) is op.attributes[attribute]
    if definition.variadic:
        assert getattr(op, definition.variadic) == op.inputs[len(definition.operands) :]


@together(("definition", "sample"), SAMPLED, parts=2)
def test_whatever_an_argument_is_errors_are_ours_and_nothing_is_half_built(
    definition: type[Op], sample: Sample
) -> None:
    graph = sg.Graph()
    xs, attributes = arguments(definition, sample, operands(graph, definition, sample))
    calls = [([*xs[:i], junk, *xs[i + 1 :]], attributes) for i in range(len(xs)) for junk in JUNK]
    calls += [(xs, attributes | {name: junk}) for name in attributes for junk in JUNK]
    length = len(graph)
    refused = []
    for operand, attribute in calls:
        try:
            with graph.as_default():
                definition.function(*operand, **attribute)
        except sg.StopgradError as error:
            assert not isinstance(error, sg.InternalError)  # noqa: PT017 - of many, any may raise
            refused.append((len(graph) - length, str(error)))
        graph.truncate(length)
    assert all(left == 0 for left, _ in refused)
    assert all(f"{__file__}:" in message for _, message in refused)
    assert refused or not calls or definition.type in HANDS_THROUGH


# They return untouched what is no tensor.
HANDS_THROUGH = {"PreventGradient", "StopGradient", "ZeroGradient"}
