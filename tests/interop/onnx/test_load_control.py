"""Branches, loops, scans, sequences and functions of ONNX models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

import stopgrad as sg
import stopgrad.onnx as sgo

F = np.float32


def load(text: str, known: Any = None, functions: str = "", more: str = "") -> Any:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21{more}]>\n{text}\n{functions}')
    return sgo.load(proto, known=known)


# ------------------------------------------------------------------------------------------------ branches

IF = """
g (float[n] x, bool c) => (y) <float[1] w = {3}>
{
    y = If (c) <
        then_branch = yes () => (float[n] a) { a = Mul(x, w) },
        else_branch = no () => (float[n] b) { b = Neg(x) }
    >
}
"""


def test_a_branch_is_chosen_when_the_model_runs() -> None:
    model = load(IF)
    x = np.array([1, 2], F)
    np.testing.assert_array_equal(model(x, np.array(True)), 3 * x)
    np.testing.assert_array_equal(model(x, np.array(False)), -x)
    for c, slope in ((True, 3), (False, -1)):
        found = sg.grad(lambda x, c=c: sg.reduce_sum(model(x, np.array(c))))(x)
        np.testing.assert_array_equal(found, [slope, slope])
    assert "Case" in {op.type for op in model.graph.operations}


def test_a_branch_whose_condition_is_known_is_built_alone() -> None:
    model = load(IF, known={"c": np.array(False)})
    assert "Case" not in {op.type for op in model.graph.operations}
    np.testing.assert_array_equal(model(np.array([1], F)), [-1])


def test_branches_of_other_shapes_need_a_known_condition() -> None:
    text = """
    g (float[2] x, bool c) => (y)
    {
        y = If (c) <
            then_branch = yes () => (float[2] a) { a = Neg(x) },
            else_branch = no () => (float[1] b) { b = ReduceSum<keepdims=1>(x) }
        >
    }"""
    with pytest.raises(sg.GraphError, match=r"If 'y': cond \('c'\) must be known .* its branches differ"):
        load(text)
    np.testing.assert_array_equal(load(text, {"c": np.array(False)})(np.array([1, 2], F)), [3])


# --------------------------------------------------------------------------------------------------- loops

LOOP = """
g (float[2] x, int64 m, bool c) => (y, ys)
{
    y, ys = Loop (m, c, x) <
        body = step (int64 i, bool going, float[2] s) => (bool again, float[2] next, float[2] row)
        {
            again = Identity(going)
            f = Cast<to = 1>(i)
            a = Mul(s, x)
            next = Add(a, f)
            row = Identity(s)
        }
    >
}
"""


def expected(x: Any, m: int) -> tuple[Any, Any]:
    s, rows = x, []
    for i in range(m):
        rows.append(s)
        s = s * x + i
    return s, np.array(rows)


def test_a_loop_of_so_many_steps_has_a_gradient() -> None:
    model = load(LOOP, {"m": np.int64(4), "c": np.bool_(True)})
    assert "Scan" in {op.type for op in model.graph.operations}
    x = np.array([0.5, 1.5], F)
    found = model(x)
    y, ys = expected(x, 4)
    np.testing.assert_allclose(found["y"], y, rtol=1e-6)
    np.testing.assert_allclose(found["ys"], ys, rtol=1e-6)
    slope = sg.grad(lambda x: sg.reduce_sum(model(x)["y"]))(x)
    h = 1e-3
    np.testing.assert_allclose(slope, (expected(x + h, 4)[0] - expected(x - h, 4)[0]) / (2 * h), rtol=1e-2)


def test_what_a_loop_stacks_needs_a_known_count() -> None:
    with pytest.raises(sg.GraphError, match=r"Loop 'y': cond \('c'\) must be known"):
        load(LOOP)
    with pytest.raises(sg.GraphError, match=r"Loop 'y': M \('m'\) must be known"):
        load(LOOP, {"c": np.bool_(True)})


WHILE = """
g (float x, int64 m) => (y)
<float limit = {100}, bool yes = {1}>
{
    y = Loop (m, yes, x) <
        body = step (int64 i, bool going, float s) => (bool again, float next)
        {
            next = Add(s, s)
            again = Less(next, limit)
        }
    >
}
"""


@pytest.mark.parametrize(("m", "y"), [(3, 24), (100, 192), (0, 3)])
def test_a_loop_runs_until_its_condition_fails(m: int, y: int) -> None:
    assert load(WHILE)(F(3), np.int64(m)) == y
    bounded = load(WHILE, {"m": np.int64(m)})
    assert bounded(F(3)) == y
    assert sg.grad(bounded)(F(3)) == y / 3  # So many doublings.


def test_a_loop_over_a_symbolic_size() -> None:
    model = load("""
    g (float[n, 2] x) => (y)
    <int64 at = {0}, float[2] start = {0, 0}>
    {
        s = Shape(x)
        n = Gather(s, at)
        y = Loop (n, , start) <
            body = step (int64 i, bool going, float[2] s) => (bool again, float[2] next)
            {
                again = Identity(going)
                row = Gather(x, i)
                next = Add(s, row)
            }
        >
    }""")
    x = np.arange(6, dtype=F).reshape(3, 2)
    np.testing.assert_array_equal(model(x), x.sum(0))
    np.testing.assert_array_equal(sg.grad(lambda x: sg.reduce_sum(model(x)))(x), np.ones((3, 2)))


def test_a_loop_whose_state_grows_is_built_step_by_step() -> None:
    model = load(
        """
    g (float[1] x) => (y)
    <int64 three = {3}>
    {
        y = Loop (three, , x) <
            body = step (int64 i, bool going, float[k] s) => (bool again, float[k2] next)
            {
                again = Identity(going)
                next = Concat<axis = 0>(s, x)
            }
        >
    }"""
    )
    np.testing.assert_array_equal(model(np.array([2], F)), [2, 2, 2, 2])


def test_a_scan_goes_along_axes_and_back() -> None:
    model = load(
        """
    g (float[2] start, float[2, n] x) => (last, ys)
    {
        last, ys = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                         scan_output_axes = [1], scan_output_directions = [1],
            body = step (float[2] s, float[2] x) => (float[2] next, float[2] row)
            {
                next = Add(s, x)
                row = Mul(next, next)
            }
        > (start, x)
    }"""
    )
    start, x = np.array([1, 2], F), np.arange(6, dtype=F).reshape(2, 3)
    found = model(start, x)
    sums = start[:, None] + np.cumsum(x[:, ::-1], axis=1)
    np.testing.assert_array_equal(found["last"], sums[:, -1])
    np.testing.assert_array_equal(found["ys"], (sums**2)[:, ::-1])


# ----------------------------------------------------------------------------------------------- sequences


def test_sequences_are_resolved_while_the_graph_is_built() -> None:
    model = load(
        """
    g (float[4, 2] x) => (y, n)
    <int64[2] parts = {1, 3}, int64 last = {-1}, int64 axis = {0}>
    {
        s = SplitToSequence <axis = 0>(x, parts)
        tail = SequenceAt(s, last)
        more = SequenceInsert(s, tail)
        n = SequenceLength(more)
        y = ConcatFromSequence <axis = 0>(more)
    }"""
    )
    x = np.arange(8, dtype=F).reshape(4, 2)
    found = model(x)
    np.testing.assert_array_equal(found["y"], np.concatenate([x, x[1:]]))
    assert found["n"] == 3


def test_a_loop_over_a_sequence() -> None:
    model = load(
        """
    g (float[3, 2] x) => (y)
    <int64 three = {3}>
    {
        s = SplitToSequence <axis = 0>(x)
        none = SequenceEmpty <dtype = 1>()
        made = Loop (three, , none) <
            body = step (int64 i, bool going, seq(float[k, 2]) so_far) => (bool again, seq(float[k, 2]) next)
            {
                again = Identity(going)
                part = SequenceAt(s, i)
                twice = Add(part, part)
                next = SequenceInsert(so_far, twice)
            }
        >
        y = ConcatFromSequence <axis = 1>(made)
    }"""
    )
    x = np.arange(6, dtype=F).reshape(3, 2)
    np.testing.assert_array_equal(model(x), 2 * x.reshape(1, 6))


def test_a_graph_of_an_operator_sees_the_names_around() -> None:
    model = load(
        """
    g (float[3, 2] x, float[1, 2] factor) => (y)
    {
        rows = SplitToSequence <axis = 0>(x)
        scaled = SequenceMap (rows) <
            body = each (float[1, 2] row) => (float[1, 2] z) { z = Mul(row, factor) }
        >
        y = ConcatFromSequence <axis = 0>(scaled)
    }"""
    )
    x, factor = np.arange(6, dtype=F).reshape(3, 2), np.array([[2, 3]], F)
    np.testing.assert_array_equal(model(x, factor), x * factor)


def test_scores_of_attention_see_the_names_around() -> None:
    graph = """
    g (float[1, 1, 2, 3] q, float[1, 1, 4, 3] k, float[1, 1, 4, 2] v, float[2, 4] bias) => (y)
    {
        y = ai.onnx.preview.FlexAttention (q, k, v) <
            score_mod = biased (float[1, 1, 2, 4] s) => (float[1, 1, 2, 4] z) { z = Add(s, bias) }
        >
    }"""
    q, k, v, bias = (np.cos(np.arange(n, dtype=F)) for n in (6, 12, 8, 8))
    q, k, v, bias = q.reshape(1, 1, 2, 3), k.reshape(1, 1, 4, 3), v.reshape(1, 1, 4, 2), bias.reshape(2, 4)
    scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(3) + bias)
    model = load(graph, more=', "ai.onnx.preview" : 1')
    np.testing.assert_allclose(model(q, k, v, bias), scores / scores.sum(-1, keepdims=True) @ v, 1e-5)


# ----------------------------------------------------------------------------------------------- functions


def test_functions_are_built_where_they_are_called() -> None:
    model = load(
        "g (float[n] x) => (y) { a = own.twice<by = 3.0>(x)\n y = own.twice(a) }",
        functions="""
        <domain: "own", opset_import: ["" : 21, "own" : 1]>
        twice <by: float = 2.0> (x) => (y)
        {
            f = Constant<value_float: float = @by>()
            y = own.scaled(x, f)
        }
        <domain: "own", opset_import: ["" : 21]>
        scaled (x, f) => (y) { y = Mul(x, f) }
        """,
        more=', "own" : 1',
    )
    np.testing.assert_array_equal(model(np.array([1, 2], F)), [6, 12])
    assert [op.name for op in model.graph.operations if op.type == "Mul"] == ["a/y/y/Mul", "y/y/y/Mul"]


def test_functions_that_call_themselves_are_refused() -> None:
    with pytest.raises(sg.FileError, match="more than 64 deep"):
        load(
            "g (float[n] x) => (y) { y = own.f(x) }",
            functions='<domain: "own", opset_import: ["" : 21, "own" : 1]>\nf (x) => (y) { y = own.f(x) }',
            more=', "own" : 1',
        )


def test_operators_that_are_functions_of_others() -> None:
    """MeanVarianceNormalization has no rule of its own."""
    model = load("g (float[2, 3, 4, 4] x) => (y) { y = MeanVarianceNormalization(x) }")
    x = np.random.default_rng(0).normal(2, 3, (2, 3, 4, 4)).astype(F)
    y = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(model(x), y, rtol=1e-4, atol=1e-5)
