"""Control flow in every style: immediate, function and graph; both engines; text, files and rewrites.

What is expected is computed by plain Python loops over NumPy.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.body import bodies_in
from stopgrad.rewrite import prepare
from stopgrad.structure import flatten

Run = Callable[..., Any]
X = np.array([0.5, -1.0, 2.0], np.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) / 4


def graphs_of(graph: sg.Graph) -> list[sg.Graph]:
    """The graph, and those of all bodies in it."""
    found = [graph]
    for one in found:
        for op in one.operations:
            found += [body.graph for body in bodies_in(op.values) if body.graph not in found]
    return found


def everything(graph: sg.Graph) -> list[sg.Operation]:
    return [op for one in graphs_of(graph) for op in one.operations]


# ------------------------------------------------------------------------------------------- styles


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class State:
    value: Any
    count: Any


def scanned(x: Any, rows: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        total = carry.left + row * x
        return Pair(total, carry.right + 1), {"row": (row * 2.0, None), "count": carry.right}

    return sg.scan(step, Pair(x, 0), rows)


def scanned_by_hand(x: Any, rows: Any) -> Any:
    total = x.copy()
    for row in rows:
        total = total + row * x
    counts = np.arange(len(rows), dtype=np.int32)
    return Pair(total, np.int32(len(rows))), {"row": (rows * np.float32(2.0), None), "count": counts}


def reversed_scan(x: Any, rows: Any) -> Any:
    return sg.scan(lambda c, row: (c * 0.5 + row, c), x, rows, reverse=True, unroll=3)


def reversed_by_hand(x: Any, rows: Any) -> Any:
    ys = []
    for row in rows[::-1]:
        ys.append(x)
        x = x * np.float32(0.5) + row
    return x, np.stack(ys[::-1])


def counted_scan(x: Any, rows: Any) -> Any:
    return sg.scan(lambda c, nothing: ([c[0] * 2.0], c[0]), [x], length=3)


def counted_by_hand(x: Any, rows: Any) -> Any:
    return [x * np.float32(8.0)], np.stack([x, x * 2, x * 4])


def looped(x: Any, rows: Any) -> Any:
    def body(state: Any) -> Any:
        return State(state.value * 2.0 + rows[0], state.count + 1)

    return sg.while_loop(lambda s: sg.reduce_sum(s.value) < 50.0, body, State(x, 0), maximum_iterations=9)


def looped_by_hand(x: Any, rows: Any) -> Any:
    count = 0
    while x.sum() < 50.0 and count < 9:
        x, count = x * np.float32(2.0) + rows[0], count + 1
    return State(x, np.int32(count))


def spread_loop(x: Any, rows: Any) -> Any:
    def body(i: Any, tree: Any) -> Any:
        return i + 2, {"v": tree["v"] * 2.0}

    return sg.while_loop(lambda i, tree: i < 5, body, (0, {"v": x}), maximum_iterations=5)


def spread_by_hand(x: Any, rows: Any) -> Any:
    return np.int32(6), {"v": x * np.float32(8.0)}


def numbered(x: Any, rows: Any) -> Any:
    return sg.fori_loop(2, 5, lambda i, c: sg.where(i > 2, c + x, c * 2.0), x)


def numbered_by_hand(x: Any, rows: Any) -> Any:
    return x * np.float32(4.0)


def mapped(x: Any, rows: Any) -> Any:
    return sg.map_fn(lambda parts: [parts["a"] * x, sg.reduce_max(parts["b"])], {"a": rows, "b": rows + 1.0})


def mapped_by_hand(x: Any, rows: Any) -> Any:
    return [rows * x, rows.max(-1) + 1]


def chosen(x: Any, rows: Any) -> Any:
    first = sg.cond(
        sg.reduce_sum(x) > 0.0, lambda v: {"y": v + rows[1], "n": 1}, lambda v: {"y": v, "n": 2}, x
    )
    second = sg.cond(sg.reduce_sum(x) < 0.0, lambda: (x, x), lambda: (rows[0], rows[2]))
    return first, second


def chosen_by_hand(x: Any, rows: Any) -> Any:
    return {"y": x + rows[1], "n": np.int32(1)}, (rows[0], rows[2])


def switched(x: Any, rows: Any) -> Any:
    index = sg.cast(sg.reduce_sum(x), sg.int32)
    branches = [lambda v: (v, v > 0.0), lambda v: (v * rows[3], v > 1.0), lambda v: (-v, v > 2.0)]
    return sg.switch(index, branches, x)


def switched_by_hand(x: Any, rows: Any) -> Any:
    return x * rows[3], x > 1.0


def recomputed(x: Any, rows: Any) -> Any:
    return sg.checkpoint(lambda v, tree: {"y": sg.square(v) * tree["rows"]})(x, {"rows": rows})


def recomputed_by_hand(x: Any, rows: Any) -> Any:
    return {"y": x * x * rows}


def nested(x: Any, rows: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        def inner(_: Any, v: Any) -> Any:
            return sg.cond(sg.reduce_sum(v) > 1.0, lambda: v * 0.5, lambda: v + row)

        c = sg.fori_loop(0, 3, inner, c)
        return c, sg.map_fn(lambda element: element * c, rows)

    return sg.scan(outer, x, rows)


def nested_by_hand(x: Any, rows: Any) -> Any:
    ys = []
    for row in rows:
        for _ in range(3):
            x = x * np.float32(0.5) if x.sum() > 1.0 else x + row
        ys.append(rows * x)
    return x, np.stack(ys)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "scan": (scanned, scanned_by_hand),
    "scan in reverse": (reversed_scan, reversed_by_hand),
    "scan over a length": (counted_scan, counted_by_hand),
    "while_loop": (looped, looped_by_hand),
    "while_loop of several": (spread_loop, spread_by_hand),
    "fori_loop": (numbered, numbered_by_hand),
    "map_fn": (mapped, mapped_by_hand),
    "cond": (chosen, chosen_by_hand),
    "switch": (switched, switched_by_hand),
    "checkpoint": (recomputed, recomputed_by_hand),
    "nested": (nested, nested_by_hand),
}


def in_a_graph(f: Callable[..., Any], sizes: Any = (4, 3)) -> tuple[Any, Any, Any]:
    """The results of a case built in a graph, and its placeholders."""
    with sg.Graph().as_default():
        x, rows = (
            sg.placeholder(sg.float32, sizes[1:], name="x"),
            sg.placeholder(sg.float32, sizes, name="rows"),
        )
        return f(x, rows), x, rows


def agree(got: Any, want: Any) -> None:
    """Same structure, dtypes and shapes; and the same values, but for rounding."""
    some, others = flatten(got), flatten(want)
    assert some[1] == others[1]
    for a, b in zip(some[0], others[0], strict=True):
        assert isinstance(a, np.ndarray)
        assert a.dtype == np.asarray(b).dtype
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_at_once(name: str) -> None:
    f, by_hand = CASES[name]
    agree(f(X, ROWS), by_hand(X, ROWS))


@pytest.mark.parametrize("name", CASES)
def test_as_a_function(name: str, engine: str) -> None:
    f, by_hand = CASES[name]
    agree(sg.function(f, engine=engine)(X, ROWS), by_hand(X, ROWS))


@pytest.mark.parametrize("sizes", [(4, 3), ("n", 3)], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_in_a_graph(name: str, run: Run, sizes: Any) -> None:
    f, by_hand = CASES[name]
    results, x, rows = in_a_graph(f, sizes)
    agree(run(results, {x: X, rows: ROWS}), by_hand(X, ROWS))


@pytest.mark.parametrize("name", CASES)
def test_gradients_agree_in_every_style(name: str, engine: str) -> None:
    f = CASES[name][0]

    def loss(x: Any, rows: Any) -> Any:
        floats = [y for y in flatten(f(x, rows))[0] if "float" in str(y.dtype)]
        return sg.add_n([sg.reduce_sum(sg.sin(y)) for y in floats])

    at_once = sg.grad(loss, (0, 1))(X, ROWS)
    agree(sg.function(sg.grad(loss, (0, 1)), engine=engine)(X, ROWS), at_once)
    y, x, rows = in_a_graph(loss)
    found = tuple(sg.gradients(y, [x, rows], unconnected_gradients="zero"))
    with sg.Session(y.graph, engine=engine) as session:
        agree(session.run(found, {x: X, rows: ROWS}), at_once)
    numeric = np.zeros_like(X, np.float64)
    for i in range(3):
        step = np.zeros(3)
        step[i] = 1e-6
        ends = [float(loss(X.astype(np.float64) + s, ROWS.astype(np.float64))) for s in (step, -step)]
        numeric[i] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(at_once[0], numeric, rtol=2e-3, atol=2e-3)


# ------------------------------------------------------------------------------------- text and files


def with_gradients(f: Callable[..., Any]) -> tuple[sg.Graph, list[str]]:
    """The graph of a case and of its gradients, with the names of what may be fetched."""

    def all_of_it(x: Any, rows: Any) -> list[Any]:
        results = flatten(f(x, rows))[0]
        floats = [y for y in results if y.dtype is sg.float32]
        loss = sg.add_n([sg.reduce_sum(sg.sin(y)) for y in floats])
        first = [g for g in sg.gradients(loss, [x, rows]) if g is not None]
        second = sg.gradients(sg.reduce_sum(sg.square(first[0])), [x])
        return [*results, *first, *[g for g in second if g is not None]]

    fetched, _, _ = in_a_graph(all_of_it)
    return fetched[0].graph, [y.name for y in fetched]


@pytest.mark.parametrize("name", CASES)
def test_text_reads_back(name: str, engine: str) -> None:
    graph, fetched = with_gradients(CASES[name][0])
    written = graph.to_text()
    again = sg.Graph.from_text(written)
    assert again.to_text() == written
    with sg.Session(graph, engine=engine) as one, sg.Session(again, engine=engine) as other:
        feeds = {"x:0": X, "rows:0": ROWS}
        for a, b in zip(one.run(fetched, feeds), other.run(fetched, feeds), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_files_read_back_and_can_be_differentiated(name: str, tmp_path: Path) -> None:
    graph, fetched = with_gradients(CASES[name][0])
    graph.save(tmp_path / "graph")
    again = sg.Graph.load(tmp_path / "graph")
    assert again.to_text() == graph.to_text()
    found = []
    for one in (graph, again):
        y, x = one.output(fetched[-1]), one.output("x:0")
        (g,) = sg.gradients(y, [x], unconnected_gradients="zero")
        with sg.Session(one, engine="numpy") as session:
            found.append(session.run([*fetched, g], {"x:0": X, "rows:0": ROWS}))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_large_arrays_inside_a_body_are_in_the_file(tmp_path: Path) -> None:
    numbers = np.linspace(0.0, 1.0, 300)
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [300], name="x")
        y, _ = sg.scan(lambda c, _: (c * numbers, None), x, length=2)
        y = sg.identity(y, name="y")
    graph.save(tmp_path / "graph")
    with sg.Session(sg.Graph.load(tmp_path / "graph"), engine="numpy") as session:
        np.testing.assert_allclose(session.run("y:0", {"x:0": np.ones(300)}), numbers**2)


def test_what_a_block_inside_a_body_hides_stays_hidden(tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, name="x")

        def step(c: Any, _: Any) -> Any:
            with sg.no_gradient():
                hidden = c * c
            return hidden + c, None

        y = sg.identity(sg.scan(step, x, length=2)[0], name="y")
    graph.save(tmp_path / "graph")
    for one in (graph, sg.Graph.from_text(graph.to_text()), sg.Graph.load(tmp_path / "graph")):
        (dx,) = sg.gradients(one.output("y:0"), [one.output("x:0")])
        with sg.Session(one, engine="numpy") as session:
            assert session.run(dx, {"x:0": 3.0}) == 1.0
    assert y.graph is graph


# --------------------------------------------------------------------------------------- names, scopes


def test_names_and_scopes_inside_a_body_are_its_own(graph: sg.Graph) -> None:
    with sg.name_scope("model"):
        x = sg.placeholder(sg.float32, name="x")

        def step(c: Any, _: Any) -> Any:
            with sg.name_scope("cell"):
                return sg.exp(c, name="gate"), None

        sg.exp(x, name="gate")
        y, _ = sg.scan(step, x, length=2)
        after = sg.exp(y, name="gate")
    assert after.name == "model/gate_1:0"
    inside = [op.name for op in everything(graph) if op.graph is not graph]
    assert "cell/gate" in inside
    with sg.name_scope("cell"):
        assert sg.constant(1.0, name="gate").name == "cell/gate:0"


def test_operations_inside_a_body_know_their_line(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32)

    def step(c: Any, _: Any) -> Any:
        return sg.tanh(c), None

    y, _ = sg.scan(step, x, length=2)
    sg.gradients(y, [x])
    line = step.__code__.co_firstlineno + 1
    tanh = next(op for op in everything(graph) if op.type == "Tanh")
    assert (tanh.location.file, tanh.location.line) == (__file__, line)
    made = [op for op in everything(graph) if op.type == "TanhGrad"]
    assert [op.origin.type for op in made] == ["Tanh"]
    assert made[0].origin.location.line == line


def test_gradient_operations_stand_below_their_scope(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32)
    y, _ = sg.scan(lambda c, _: (sg.sin(c), None), x, length=2)
    before = len(graph)
    sg.gradients(y, [x], name="slopes")
    assert {op.name.split("/")[0] for op in graph.operations[before:]} == {"slopes"}


# ---------------------------------------------------------------------------------------- parameters


def test_a_parameter_read_inside_changes_between_runs(run: Run, graph: sg.Graph) -> None:
    w = sg.parameter(np.float32(2.0), name="w")
    x = sg.placeholder(sg.float32)
    y, _ = sg.scan(lambda c, _: (c * w, None), x, length=3)
    (dw,) = sg.gradients(y, [w])
    step = sg.assign(w, w + 1.0)
    with sg.Session(graph, engine="numpy") as session:
        assert session.run([y, dw, step], {x: 1.0}) == [8.0, 12.0, 3.0]
        assert session.run([y, dw], {x: 1.0}) == [27.0, 27.0]
    assert run([y, dw, step], {x: 1.0}) == [8.0, 12.0, 3.0]


def test_training_through_a_loop(engine: str, graph: sg.Graph) -> None:
    """Find the factor with which three steps from 1 give 8."""
    w = sg.parameter(np.float64(1.0), name="w")
    y = sg.fori_loop(0, 3, lambda i, c: c * w, np.float64(1.0))
    loss = sg.square(y - 8.0)
    (dw,) = sg.gradients(loss, [w])
    update = sg.assign(w, w - 0.002 * dw)
    with sg.Session(graph, engine=engine) as session:
        for _ in range(200):
            value, _ = session.run([loss, update])
        assert value < 1e-12
        np.testing.assert_allclose(session.run(w), 2.0)


# ------------------------------------------------------------------------------------------- rewrites


def test_rewriting_goes_into_bodies() -> None:
    """Gates are erased, dead and repeated operations are gone, sizes are bound."""
    with sg.Graph().as_default():
        x, xs = sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, ["n"])

        def step(c: Any, v: Any) -> Any:
            sg.tanh(c)  # Dead.
            once, twice = sg.sin(c), sg.sin(c)
            return sg.stop_gradient(once) + twice * sg.probe(v, "here"), sg.cond(
                v > 0.0, lambda: c, lambda: v
            )

        end, ys = sg.scan(step, x, xs)
    ready = prepare([end, ys], [x, xs], {"n": 4})
    types = [op.type for op in everything(ready.outputs[0].graph)]
    assert "Tanh" not in types
    assert types.count("Sin") == 1
    assert not {"StopGradient", "Probe", "Identity"} & set(types)
    assert ready.outputs[1].shape == (4,)
    assert "n" not in {
        str(size) for op in everything(ready.outputs[0].graph) for y in op.outputs for size in y.shape
    }


def test_what_the_gradient_keeps_is_handed_out_by_one_loop() -> None:
    """The forward steps run once, also where their gradient, and its gradient, need what they computed."""
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [])
        end, _ = sg.scan(lambda c, _: (sg.sin(c * c), None), x, length=5)
        (dx,) = sg.gradients(end, [x])
    ready = prepare([end, dx], [x], {})
    scans = [op for op in ready.outputs[0].graph.operations if op.type == "Scan"]
    assert len(scans) == 2
    assert [op.attributes["reverse"] for op in scans] == [False, True]


# -------------------------------------------------------------------------------------------- explain


def test_each_result_of_a_loop_is_explained_by_itself(graph: sg.Graph) -> None:
    a, b, k = (sg.placeholder(sg.float32, [], name=name) for name in "abk")

    def step(carry: Any, _: Any) -> Any:
        a, b, n = carry
        return (sg.sin(a), sg.stop_gradient(b) * 2.0, n + 1), {"both": a * b, "round": sg.round(a * k)}

    (end_a, end_b, n), ys = sg.scan(step, (a, b, 0), length=4)

    def statuses(y: Any) -> list[str]:
        return [str(sg.explain(y, [x])[x].status) for x in (a, b, k)]

    assert statuses(end_a) == ["flows", "disconnected", "disconnected"]
    assert statuses(end_b) == ["disconnected", "stopped", "disconnected"]
    assert statuses(ys["both"]) == ["flows", "partly stopped", "disconnected"]
    assert statuses(ys["round"]) == ["not differentiable", "disconnected", "not differentiable"]
    assert statuses(n) == ["disconnected"] * 3
    for y in (end_a, end_b, *ys.values(), n):
        found = sg.gradients(y, [a, b, k])
        for x, g in zip((a, b, k), found, strict=True):
            assert (g is not None) == (sg.explain(y, [x])[x].status in ("flows", "partly stopped"))


def test_a_stop_that_acts_in_the_second_round_only(graph: sg.Graph) -> None:
    """a leads to b, and b through a stop to c: what reaches c in the second round is stopped."""
    a, b, c = (sg.placeholder(sg.float32, [], name=name) for name in "abc")

    def step(carry: Any, _: Any) -> Any:
        a, b, _ = carry
        return (a, sg.exp(a), sg.stop_gradient(b)), None

    (_, end_b, end_c), _ = sg.scan(step, (a, b, c), length=3)
    assert sg.explain(end_b, [a])[a].status == "flows"
    assert sg.explain(end_c, [a])[a].status == "stopped"
    assert sg.gradients(end_c, [a, b, c]) == [None, None, None]


def test_branches_are_explained_together(graph: sg.Graph) -> None:
    p, x, y = sg.placeholder(sg.bool, []), sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, [])
    first, second = sg.cond(p, lambda: (x, sg.stop_gradient(x)), lambda: (sg.stop_gradient(x), sg.floor(y)))
    assert sg.explain(first, [x])[x].status == "partly stopped"
    assert sg.explain(second, [x])[x].status == "stopped"
    assert sg.explain(second, [y])[y].status == "not differentiable"
    assert sg.explain(first, [p])[p].status == "not differentiable"
    assert sg.gradients(second, [x, y]) == [None, None]
    cut = sg.explain(second, [x])[x].cuts[0]
    assert cut.operation.type == "StopGradient"
    assert cut.location.file == __file__


def test_an_unused_argument_of_a_function_is_explained_through_loops() -> None:
    def f(params: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return sg.tanh(c * params["w"] + x), sg.stop_gradient(c) * params["v"]

        end, ys = sg.scan(step, params["h"], xs)
        return sg.reduce_sum(end) + sg.reduce_sum(ys)

    flow = sg.explain(f, {"w": X, "v": X, "h": X, "unused": X}, ROWS)
    assert {key: str(found.status) for key, found in flow.items()} == {
        "params.h": "partly stopped",
        "params.unused": "disconnected",
        "params.v": "flows",
        "params.w": "partly stopped",
        "xs": "partly stopped",
    }


def test_a_selective_stop_inside_a_body(run: Run, graph: sg.Graph) -> None:
    a, b = sg.placeholder(sg.float32, []), sg.placeholder(sg.float32, [])

    def step(c: Any, _: Any) -> Any:
        return sg.stop_gradient(c * a, wrt=[a]) + b * a, None

    end, _ = sg.scan(step, sg.constant(1.0), length=2)
    # ((a + ba) a) + ba = a² + ba² + ba; with the gate, a is held inside of it.
    da, db = sg.gradients(end, [a, b])
    assert run([end, da, db], {a: 3.0, b: 5.0}) == [69.0, 5.0, 12.0]
    assert sg.explain(end, [a])[a].status == "partly stopped"
    assert sg.explain(end, [b])[b].status == "flows"


@pytest.mark.parametrize("closed", [True, False])
def test_a_stop_inside_a_body_that_can_be_switched(run: Run, graph: sg.Graph, closed: bool) -> None:
    p, x = sg.placeholder(sg.bool, []), sg.placeholder(sg.float32, [])
    end, _ = sg.scan(lambda c, _: (sg.stop_gradient(c, when=p) * c, None), x, length=2)
    (dx,) = sg.gradients(end, [x])
    assert run([end, dx], {p: closed, x: 3.0}) == [81.0, 27.0 if closed else 108.0]


def test_a_stop_at_every_second_step(run: Run, graph: sg.Graph) -> None:
    """Truncated back-propagation through time: the gate's condition is computed from the step."""
    x = sg.placeholder(sg.float64, [])

    def step(c: Any, i: Any) -> Any:
        return sg.stop_gradient(c, when=sg.equal(i % 2, 0)) * x, None

    end, _ = sg.scan(step, np.float64(1.0), np.arange(5, dtype=np.int32))
    assert run([end, *sg.gradients(end, [x])], {x: 2.0}) == [32.0, 16.0]


# ----------------------------------------------------------------------------------------------- cost


def built(n: int, order: int) -> int:
    with sg.Graph().as_default() as graph:
        w, xs = sg.placeholder(sg.float32, [3, 3]), sg.placeholder(sg.float32, [n, 3])
        end, ys = sg.scan(lambda c, x: ((h := sg.tanh(c @ w + x)), sg.sin(h)), sg.zeros([1, 3]), xs)
        y = sg.reduce_sum(end) + sg.reduce_sum(ys)
        for _ in range(order):
            y = sg.reduce_sum(sg.gradients(y, [w])[0])
    return len(everything(graph))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_what_is_built_does_not_depend_on_the_number_of_steps(order: int) -> None:
    assert built(10, order) == built(1000, order) == built(100_000, order)


def test_a_scan_keeps_what_its_gradient_needs_and_no_more(graph: sg.Graph) -> None:
    """Of tanh its result; of a sum nothing; what is the same for every step is not kept for each."""
    n, width = 7, 5
    w, xs = sg.placeholder(sg.float32, [width]), sg.placeholder(sg.float32, [n, width])

    def step(c: Any, x: Any) -> Any:
        return sg.tanh(c + x) * sg.exp(w) + x, None

    end, _ = sg.scan(step, sg.zeros([width]), xs)
    before = len(graph)
    sg.gradients(end, [xs])
    kept = [
        y
        for op in graph.operations[before:]
        if op.type == "Scan" and not op.reverse
        for y in op.outputs
        if y.ndim > 1
    ]
    assert [y.shape for y in kept] == [(n, width)]


def steps_of(n: int, checkpointed: bool) -> Callable[[Any], Any]:
    """n · n steps in n blocks of n."""

    def step(c: Any, _: Any) -> Any:
        for _ in range(3):
            c = sg.sin(c) * 1.01
        return c, None

    def block(c: Any) -> Any:
        return sg.scan(step, c, length=n)[0]

    block = sg.checkpoint(block) if checkpointed else block
    return lambda x: sg.reduce_sum(sg.scan(lambda c, _: (block(c), None), x, length=n)[0])


def peak(f: Callable[[], Any]) -> tuple[Any, int]:
    """The value of a call, and the most bytes that it held."""
    f()  # What is remembered for later calls does not count.
    tracemalloc.start()
    try:
        value = f()
        return value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_checkpoints_bring_the_memory_of_a_long_loop_to_its_square_root() -> None:
    n, x = 30, np.linspace(0.1, 0.9, 512)
    plain_gradient, again_gradient = (
        sg.function(sg.grad(steps_of(n, checkpointed)), engine="numpy") for checkpointed in (False, True)
    )
    plain, much = peak(lambda: plain_gradient(x))
    again, little = peak(lambda: again_gradient(x))
    np.testing.assert_allclose(plain, again, rtol=1e-12)
    assert much > n * n * x.nbytes
    assert little < 12 * n * x.nbytes


# ----------------------------------------------------------------------------------------------- size


KINDS = ("scan", "cond", "while_loop", "checkpoint", "map_fn", "switch")


def deep(kinds: tuple[str, ...], depth: int, x: Any) -> Any:
    """Constructs inside each other, the kinds taking turns; the sine is innermost."""
    if depth == 0:
        return sg.sin(x)

    def f(v: Any) -> Any:
        return deep(kinds, depth - 1, v)

    match kinds[depth % len(kinds)]:
        case "scan":
            return sg.scan(lambda c, _: (f(c), None), x, length=1)[0]
        case "cond":
            return sg.cond(sg.constant(True), f, lambda v: v, x)
        case "while_loop":
            return sg.while_loop(lambda v: sg.constant(True), f, x, maximum_iterations=1)
        case "map_fn":
            return sg.map_fn(f, sg.expand_dims(x, 0))[0]
        case "switch":
            return sg.switch(sg.constant(1), [lambda v: v, f], x)
    return sg.checkpoint(f)(x)


DEEP = pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), KINDS], ids="+".join)


def nested_bodies(kinds: tuple[str, ...], depth: int, order: int) -> int:
    """Build, differentiate, run, write and read back; how many operations there are then."""
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, [], name="x")
        found = [deep(kinds, depth, x)]
        assert sg.explain(found[0], [x])[x].status in ("flows", "partly stopped")
        for _ in range(order):
            found += sg.gradients(found[-1], [x])
    with sg.Session(graph, engine="numpy") as session:
        values = session.run(found, {x: 0.5})
    np.testing.assert_allclose(values, [np.sin(0.5), np.cos(0.5), -np.sin(0.5)][: order + 1])
    with sg.Session(sg.Graph.from_text(graph.to_text()), engine="numpy") as session:
        np.testing.assert_array_equal(session.run([y.name for y in found], {"x:0": 0.5}), values)
    return len(everything(graph))


@DEEP
def test_bodies_nested_fifty_deep(kinds: tuple[str, ...]) -> None:
    assert nested_bodies(kinds, 50, order=1) < 2.5 * nested_bodies(kinds, 25, order=1)


@DEEP
def test_second_derivatives_of_nested_bodies(kinds: tuple[str, ...]) -> None:
    """Every body holds its own derivatives: their number grows with the square of the depth, no faster."""
    assert nested_bodies(kinds, 16, order=2) < 5 * nested_bodies(kinds, 8, order=2)


LONG = """
    import sys
    sys.setrecursionlimit(200)
    import numpy as np
    import stopgrad as sg

    length = {length}

    def step(c, _):
        for _ in range(length):
            c = sg.sin(c)
        return c, None

    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, name="x")
        y, _ = sg.scan(step, x, length=2)
        (dx,) = sg.gradients(y, [x])
        assert sg.explain(y, [x])[x].status == "flows"
        assert sg.explain(sg.stop_gradient(y), [x])[x].status == "stopped"
    again = sg.Graph.from_text(graph.to_text())
    found = []
    for one in (graph, again):
        with sg.Session(one, engine="numpy") as session:
            found.append(session.run([y.name, dx.name], {{"x:0": 1.0}}))
    assert found[0] == found[1]
    v, s = 1.0, 1.0
    for _ in range(2 * length):
        s, v = s * np.cos(v), np.sin(v)
    assert np.isclose(found[0][0], v), (found, v)
    assert np.isclose(found[0][1], s, rtol=1e-6), (found, s)
    assert sys.getrecursionlimit() == 200
    print("done")
"""


@pytest.mark.parametrize("length", [5_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_a_long_body_at_a_recursion_limit_of_200(length: int) -> None:
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LONG.format(length=length))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stdout.strip() == "done", made.stderr[-3000:]
