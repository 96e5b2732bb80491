"""Control flow in every style: immediate, function and graph; both engines; text, files and rewrites.

What is expected is computed by plain Python loops over NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import stopgrad as sg
from stopgrad.base.structure import flatten
from stopgrad.graph.body import bodies_in
from stopgrad.rewrite import prepare

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


def test_while_loop_takes_one_carry_as_jax_does() -> None:
    expected = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, 1.0))
    for carry in ((0, 1.0), [0, 1.0]):
        made = sg.while_loop(lambda c: c[0] < 3, lambda c: type(c)([c[0] + 1, c[1] * 2.0]), carry)
        assert type(made) is type(carry)
        assert [float(x) for x in made] == [float(x) for x in expected]
    assert sg.while_loop(lambda c: c < 3, lambda c: c + 1, 0) == 3
    assert sg.while_loop(lambda c: c < 3, lambda c: (c + 1,), (0,)) == (3,)  # TensorFlow's
    spread = sg.while_loop(lambda *c: c[0] < 3, lambda i, x: (i + 1, x * 2.0), (0, 1.0))
    assert [float(x) for x in spread] == [3.0, 8.0]
