"""All meaning is in the graph: what blocks hide, unknown sizes, custom gradients, statuses, in every copy."""

from __future__ import annotations

import gc
import itertools
import pickle
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph.verify import verify
from stopgrad.rewrite import merge, rewrite


@pytest.fixture
def graph() -> Iterator[sg.Graph]:
    graph = sg.Graph()
    with graph.as_default():
        yield graph


Copy = Callable[[Sequence[sg.Output]], list[sg.Output]]


def _as_it_is(outputs: Sequence[sg.Output]) -> list[sg.Output]:
    return list(outputs)


def _by_text(outputs: Sequence[sg.Output]) -> list[sg.Output]:
    again = sg.Graph.from_text(outputs[0].graph.to_text())
    verify(again)
    return [again.output(x.name) for x in outputs]


def _rewritten(outputs: Sequence[sg.Output]) -> list[sg.Output]:
    made = rewrite(outputs)
    verify(made.graph)
    return made.outputs


def _merged(outputs: Sequence[sg.Output]) -> list[sg.Output]:
    made = rewrite(outputs, (), (merge,))
    verify(made.graph)
    return made.outputs


@pytest.fixture(params=["as it is", "text", "file", "rewrite", "merge", "text of a rewrite"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    """What gives the same outputs in a copy of their graph."""

    def by_file(outputs: Sequence[sg.Output]) -> list[sg.Output]:
        outputs[0].graph.save(tmp_path / "graph.npz")
        again = sg.Graph.load(tmp_path / "graph.npz")
        verify(again)
        return [again.output(x.name) for x in outputs]

    return {
        "as it is": _as_it_is,
        "text": _by_text,
        "file": by_file,
        "rewrite": _rewritten,
        "merge": _merged,
        "text of a rewrite": lambda outputs: _by_text(_rewritten(outputs)),
    }[request.param]


def pulls(y: sg.Output, x: sg.Output) -> bool:
    """Whether a gradient arrives, on which the generator and explain must agree."""
    found: bool = sg.gradients(y, [x])[0] is not None
    assert (sg.explain(y, [x])[x].status in ("flows", "partly stopped")) == found
    return found


# ------------------------------------------------------------------------------------- no_gradient


def test_what_a_block_hides_stays_hidden_though_nothing_used_it_yet(graph: sg.Graph, copy: Copy) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        y = sg.exp(x)
    z = sg.sin(x)
    x, y, z = copy([x, y, z])
    assert not pulls(y, x)
    assert not pulls(sg.cos(y), x)
    assert pulls(z, x)
    assert sg.explain(y * 2.0, [x])[x].status == "stopped"


def test_what_a_block_hides_stays_hidden_where_it_was_used(graph: sg.Graph, copy: Copy) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        y = sg.exp(x)
    z = sg.sin(y) + x
    x, y, z = copy([x, y, z])
    assert not pulls(y, x)
    (dx,) = sg.gradients(z, [x])
    assert [op.type for op in z.graph.operations if op.origin is not None and op.type == "Cos"] == []
    assert dx is not None
    assert sg.explain(z, [x])[x].status == "partly stopped"


def test_nested_blocks_stay_nested(graph: sg.Graph, copy: Copy) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        a = sg.exp(x)
        with sg.no_gradient():
            b = sg.sin(a)
            c = sg.cos(b)
        d = sg.exp(b)  # outside of the inner block, inside of the outer one
        e = sg.sin(a)
    a, b, c, d, e = copy([a, b, c, d, e])
    x = a.op.inputs[0]
    assert [pulls(y, x) for y in (a, b, c, d, e)] == [False] * 5
    # Inside, among the block's own operations, it flows as before: what each was built from tells.
    assert [y.op.inputs[0].op.type for y in (b, c, d, e)] == ["Exp", "Sin", "StopGradient", "Exp"]
    if copy is not _as_it_is:
        assert d.op.inputs[0].op.inputs[0] is b


def test_a_block_inside_a_block_is_asked_inside_the_outer_one(graph: sg.Graph) -> None:
    """The outer block's operations flow among themselves; what the inner one hides does not reach them."""
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        a = sg.exp(x)
        with sg.no_gradient():
            b = sg.sin(a)
        assert pulls(sg.cos(a), x)
        assert not pulls(sg.cos(b), a)
        inside = sg.gradients(sg.cos(a), [x])[0]
    assert inside is not None
    assert not pulls(inside, x)  # it was built in the block, too


def test_gradients_asked_inside_a_block_are_kept(graph: sg.Graph, copy: Copy) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        y = sg.exp(x)
        (dx,) = sg.gradients(sg.sin(y), [x])
    loss = dx * x
    x, dx, loss = copy([x, dx, loss])
    assert not pulls(dx, x)
    assert pulls(loss, x)
    value = sg.Session(x.graph, engine="numpy").run(sg.gradients(loss, [x])[0], {x: 0.5})
    assert np.isclose(value, np.cos(np.exp(0.5)) * np.exp(0.5))


def test_equal_operations_inside_and_outside_of_a_block_are_two(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    first = sg.exp(x)
    with sg.no_gradient():
        hidden = [sg.exp(x), sg.exp(x)]
    with sg.no_gradient():
        other = sg.exp(x)
    last = sg.exp(x)
    for order in ([first, *hidden, other, last], [*hidden, other, first, last][::-1]):
        made = rewrite([x, *order], (), (merge,))
        new = dict(zip([x, *order], made.outputs, strict=True))
        assert [pulls(new[y], new[x]) for y in (first, *hidden, other, last)] == [True, *[False] * 3, True]
        assert new[first] is new[last]
        assert new[hidden[0]] is new[hidden[1]]


def test_the_text_says_what_a_block_hides_and_reads_back(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        sg.exp(x)
        with sg.no_gradient():
            sg.sin(x)
    with sg.no_gradient():
        sg.cos(x)
    text = graph.to_text()
    assert re.findall(r"(\w+): .* inside no_gradient (\S+)", text) == [
        ("Exp", "1"),
        ("Sin", "1/2"),
        ("Cos", "3"),
    ]
    assert sg.Graph.from_text(text).to_text() == text


def test_blocks_of_two_loaded_graphs_are_two(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        sg.exp(x, name="y")
    texts = graph.to_text()
    one, two = sg.Graph.from_text(texts), sg.Graph.from_text(texts)
    with sg.no_gradient():
        here = sg.sin(one.output("y"))
    assert here.op.inputs[0].op.type == "StopGradient"
    assert not pulls(two.output("y"), two.output("x"))


# ----------------------------------------------------------------------------------- unknown sizes


def test_unknown_sizes_print_a_number_and_have_no_name_of_a_user(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, [None, 3], name="x")
    assert re.fullmatch(r"_\d+", str(x.shape[0]))
    assert re.fullmatch(r"_\d+", repr(sg.dim()))
    assert "float32[_1, 3]" in graph.to_text()
    for name in ("_1", str(x.shape[0]), str(sg.dim()), "_0", "_123456789"):
        with pytest.raises(sg.ShapeError, match="kept for unknown"):
            sg.dim(name)
        with pytest.raises(sg.ShapeError, match="kept for unknown"):
            sg.placeholder(sg.float32, [name])
    assert repr(sg.dim("_a")) == "_a"
    assert sg.dim("__") is sg.dim("__")


def test_unknown_sizes_of_loaded_graphs_equal_no_others(tmp_path: Path) -> None:
    with sg.Graph().as_default() as graph:
        sg.placeholder(sg.float32, [None, None, "n"], name="x")
    graph.save(tmp_path / "graph.npz")
    graphs = [graph, sg.Graph.from_text(graph.to_text()), sg.Graph.from_text(graph.to_text())]
    graphs += [sg.Graph.load(tmp_path / "graph.npz"), sg.Graph.load(tmp_path / "graph.npz")]
    sizes = [size for g in graphs for size in g.output("x").shape[:2]] + [sg.dim(), sg.dim()]
    assert len(set(sizes)) == len(sizes) == 12
    assert {g.output("x").shape[2] for g in graphs} == {sg.dim("n")}
    assert {g.to_text() for g in graphs} == {graph.to_text()}


def test_a_text_s_own_sharing_of_an_unknown_size_is_kept() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, [None], name="x")
        sg.placeholder(sg.float32, [x.shape[0], x.shape[0] + 1], name="y")
        sg.placeholder(sg.float32, [None], name="z")
    again = sg.Graph.from_text(graph.to_text())
    n = again.output("x").shape[0]
    assert again.output("y").shape == (n, n + 1)
    assert again.output("z").shape[0] is not n
    assert graph.to_text().count("_1") == 6  # in the types and in the attributes
    assert graph.to_text().count("_2") == 2


@pytest.mark.parametrize("made_before", [0, 7, 8, 9])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_text_of_a_loaded_graph_is_the_text_it_was_loaded_from(
    made_before: int, order: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the sizes are numbered in this process: sums are written in the order of the text's names."""
    monkeypatch.setattr(sg.base.sizes, "_FRESH", itertools.count(made_before + 1))
    sizes = [sg.dim(), sg.dim()]
    with sg.Graph().as_default() as graph:
        for i in order:
            sg.placeholder(sg.float32, [sizes[i], 2], name=f"x{i}")
        joined = sg.concat([graph.output("x0"), graph.output("x1")], axis=0)
        sg.reshape(joined, [-1])
        sg.placeholder(sg.float32, [sizes[0] * sizes[1] + sizes[1] * sg.dim("n") + sizes[0] // 2])
    text = graph.to_text()
    for _ in range(12):  # from one digit to two
        again = sg.Graph.from_text(text)
        assert again.to_text() == text


def test_unknown_sizes_are_sorted_as_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sg.base.sizes, "_FRESH", itertools.count(1))
    sizes = [sg.dim() for _ in range(100)]
    for a, b in itertools.pairwise(sizes):
        assert repr(a + b) == repr(b + a) == f"{a} + {b}"
        assert repr(a * b) == repr(b * a) == f"{a}*{b}"
        assert a * b // b is a


def test_sizes_pickled_in_another_process_collide_with_none_here() -> None:
    program = (
        "import pickle, sys, stopgrad as sg\n"
        "a, b = sg.dim(), sg.dim()\n"
        "sys.stdout.buffer.write(pickle.dumps([a, b, a + b, a // 2, sg.dim('n'), a]))\n"
    )
    pickles = [subprocess.check_output([sys.executable, "-c", program]) for _ in range(2)]
    here = [sg.dim() for _ in range(3)]
    one, two, again = (pickle.loads(data) for data in (*pickles, pickles[0]))
    assert len({*here, *one[:2], *two[:2]}) == 7
    assert [x is y for x, y in zip(one, again, strict=True)] == [True] * 6
    for a, b, total, half, n, same in (one, two):
        assert total is a + b
        assert half is a // 2
        assert n is sg.dim("n")
        assert same is a
    assert [x is y for x, y in zip(pickle.loads(pickle.dumps(here)), here, strict=True)] == [True] * 3


# -------------------------------------------------------------------------------- custom gradients


def tenfold(x: Any) -> Any:
    return x * x, lambda g: g * 10.0


def test_a_custom_gradient_is_created_in_a_scope() -> None:
    graph = sg.Graph()
    scope = sg.Scope(graph).with_sub_scope("layer")
    with graph.as_default():
        x = sg.placeholder(sg.float32, name="x")
    op = sg.ops.CustomGradient.create(scope, tenfold, x)
    assert isinstance(op, sg.Operation)
    assert op.type == "CustomGradient"
    assert op.name == "layer/CustomGradient"
    assert all(made.name.startswith("layer/") for made in graph.operations[1:])
    (dx,) = sg.gradients(op.output(), [x])
    assert sg.Session(graph, engine="numpy").run([op.output(), dx], {x: 3.0}) == [9.0, 10.0]


def test_a_created_custom_gradient_has_the_name_asked_for(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    assert sg.ops.CustomGradient.create(graph, tenfold, x, name="given").name == "given"
    scope = sg.Scope(graph).with_name("ready")
    assert sg.ops.CustomGradient.create(scope, tenfold, x).name == "ready"
    op = sg.ops.CustomGradient.create(graph, lambda a, b: ((a * b, a), lambda g, _: [g, g]), x, b=2.0)
    assert len(op.outputs) == 2
    assert op.graph is graph


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "a function, and the function's arguments"),
        ((1.0,), "a function, and the function's arguments"),
        ((lambda x: x, 2.0), r"must return a pair \(results, gradient function\)"),
    ],
)
def test_what_makes_no_custom_gradient_says_why(arguments: Any, reason: str) -> None:
    graph = sg.Graph()
    with pytest.raises(sg.ArgumentError, match=reason):
        sg.ops.CustomGradient.create(graph, *arguments)
    assert len(graph) == 0
    with pytest.raises(sg.GraphError, match="takes a Scope first"):
        sg.ops.CustomGradient.create(1.0, tenfold, 2.0)


def test_the_text_of_a_custom_gradient_has_no_address_and_reads_back() -> None:
    def build() -> sg.Graph:
        with sg.Graph().as_default() as graph:
            sg.custom_gradient(tenfold)(sg.placeholder(sg.float32, name="x"))
        return graph

    graph = build()
    text = graph.to_text()
    assert text == build().to_text() == sg.Graph.from_text(text).to_text()
    assert re.search(r"0x[0-9a-f]+|<|object", text) is None
    again = sg.Graph.from_text(text)
    x, y = again.output("x"), again.output("CustomGradient")
    (dx,) = sg.gradients(y, [x])
    assert sg.Session(again, engine="numpy").run(dx, {x: 3.0}) == 10.0


def test_nothing_of_a_custom_gradient_outlives_its_graph() -> None:
    class Held:
        """What a gradient function closes over."""

    def build() -> list[weakref.ref[Any]]:
        held, array = Held(), np.arange(3.0, dtype=np.float32)

        def f(x: Any) -> Any:
            def pull(g: Any) -> Any:
                assert isinstance(held, Held)
                return g * array

            return x * 2.0, pull

        with sg.Graph().as_default() as graph:
            x = sg.placeholder(sg.float32, [3], name="x")
            asked, never = sg.custom_gradient(f)(x), sg.custom_gradient(f)(x)
            assert sg.gradients(asked, [x])[0] is not None
            assert sg.explain(asked, [x])[x].status == "flows"
        return [weakref.ref(each) for each in (graph, held, array, f, asked.op.graph, pull_of(never))]

    def pull_of(y: sg.Output) -> Any:
        return y.op.pullback.function

    found = build()
    gc.collect()
    assert [ref() for ref in found] == [None] * len(found)


def test_a_gradient_function_s_arrays_are_in_the_text(graph: sg.Graph, copy: Copy) -> None:
    array = np.array([1.0, 2.0, 3.0], np.float32)
    x = sg.placeholder(sg.float32, [3], name="x")
    w = sg.placeholder(sg.float32, [3], name="w")
    y = sg.custom_gradient(lambda a: (a * 5.0, lambda g: g * array + w))(x)
    x, w, y = copy([x, w, y])
    (dx,) = sg.gradients(y, [x])
    ones = np.ones(3, np.float32)
    assert sg.Session(x.graph, engine="numpy").run(dx, {x: ones, w: ones}).tolist() == [2.0, 3.0, 4.0]
    assert sg.explain(y, [w])[w].status == "disconnected"


def test_a_gradient_function_may_ask_for_gradients_of_the_function_s_own_tensors(
    graph: sg.Graph, copy: Copy
) -> None:
    def f(a: Any) -> Any:
        r = sg.exp(a)
        return r, lambda g: g * sg.gradients(r, [a])[0] * 2.0

    x = sg.placeholder(sg.float64, name="x")
    x, y = copy([x, sg.custom_gradient(f)(x)])
    (d,) = sg.gradients(y, [x])
    (dd,) = sg.gradients(d, [x])
    verify(x.graph)
    values = sg.Session(x.graph, engine="numpy").run([y, d, dd], {x: 0.5})
    assert np.allclose(values, np.exp(0.5) * np.array([1.0, 2.0, 2.0]))


def test_a_gradient_function_may_use_what_was_computed_after_the_call(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, name="x")
    y = sg.custom_gradient(lambda a: (a * 2.0, lambda g: g * late))(x)
    late = sg.exp(x) + 1.0
    (d,) = sg.gradients(y, [x])
    assert sg.Session(graph, engine="numpy").run(d, {x: 0.0}) == 2.0
    verify(graph)


def test_a_gradient_function_cannot_use_an_input_made_after_the_call(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float64, name="x")
    y = sg.custom_gradient(lambda a: (a * 2.0, lambda g: g * sg.exp(late)))(x)
    late = sg.placeholder(sg.float64, name="late")
    with pytest.raises(sg.GraphError, match=r"'late'.* was built after it; build it before the call"):
        sg.gradients(y, [x])
    assert [op.name for op in graph.operations][-1] == "late"


def two_by_two(a: Any, b: Any) -> Any:
    """Two results, of which each depends on one argument."""
    return (a * 2.0, b * 3.0), lambda g, h: [g * 2.0, h * 3.0]


def test_one_result_is_disconnected_from_an_argument_that_it_never_depends_on(
    graph: sg.Graph, copy: Copy
) -> None:
    a, b = sg.placeholder(sg.float32, name="a"), sg.placeholder(sg.float32, name="b")
    y, z = sg.custom_gradient(two_by_two)(a, b)
    a, b, y, z = copy([a, b, y, z])
    status = lambda y, x: sg.explain(y, [x])[x].status
    assert [status(y, a), status(y, b)] == ["flows", "disconnected"]
    assert [status(z, a), status(z, b)] == ["disconnected", "flows"]
    assert [g is not None for g in sg.gradients(y, [a, b])] == [True, False]
    assert [g is not None for g in sg.gradients(z, [a, b])] == [False, True]


def test_an_argument_for_which_none_is_returned_is_stopped(graph: sg.Graph, copy: Copy) -> None:
    a, b = sg.placeholder(sg.float32, name="a"), sg.placeholder(sg.float32, name="b")
    y = sg.custom_gradient(lambda p, q: (p * q, lambda g: [g, None]))(a, b)
    a, b, y = copy([a, b, y])
    flow = sg.explain(y, [a, b])
    assert [flow[a].status, flow[b].status] == ["flows", "stopped"]
    assert [cut.operation for cut in flow[b].cuts] == [y.op]
    assert "returns None" in flow[b].cuts[0].reason
    assert sg.gradients(y, [b]) == [None]


def test_dead_cotangents_of_a_joint_pullback_are_never_generated(graph: sg.Graph) -> None:
    def f(a: Any, b: Any) -> Any:
        def pull(g: Any) -> Any:
            long = g
            for _ in range(50):
                long = sg.sin(long)
            return [g * 2.0, long]

        return a * b, pull

    a, b = sg.placeholder(sg.float32, name="a"), sg.placeholder(sg.float32, name="b")
    y = sg.custom_gradient(f)(a, b)
    sines = lambda: [op for op in graph.operations[before:] if op.type == "Sin"]
    before = len(graph)
    sg.gradients(y, [a])
    assert sines() == []
    assert len(graph) - before < 6
    sg.gradients(y, [b])
    assert len(sines()) == 50


def test_a_dead_result_of_a_joint_pullback_costs_nothing(graph: sg.Graph) -> None:
    a, b = sg.placeholder(sg.float32, name="a"), sg.placeholder(sg.float32, name="b")
    y, _ = sg.custom_gradient(two_by_two)(a, b)
    before = len(graph)
    sg.gradients(y, [a])
    assert [op.type for op in graph.operations[before:]] == [
        "Const",
        "Const",
        "Mul",
    ]  # the seed, 2.0 and their product


# --------------------------------------------------------------------------------- one sweep, names


def test_one_sweep_explains_many_tensors(graph: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[sg.Operation] = []
    edges = sg.flow.ways.ways_of

    def counted(op: sg.Operation, *rest: Any) -> Any:
        calls.append(op)
        return edges(op, *rest)

    xs = [sg.placeholder(sg.float32, name=f"x{i}") for i in range(300)]
    y: Any = xs[0]
    for i in range(3000):
        y = sg.sin(y) if i % 10 else sg.stop_gradient(y) + xs[i // 10]
    monkeypatch.setattr(sg.flow.ways, "ways_of", counted)
    flow = sg.explain(y, xs)
    assert [flow[x].status for x in xs] == ["stopped"] * 299 + ["flows"]
    assert len(calls) == 300  # Only what may stop anything is looked at.


def test_statuses_are_an_enumeration_that_equals_its_strings(graph: sg.Graph) -> None:
    names = ["flows", "partly stopped", "undefined", "stopped", "not differentiable", "disconnected"]
    assert [status.value for status in sg.Status] == names
    assert [str(status) for status in sg.Status] == names
    assert list(sg.Status) == names
    x = sg.placeholder(sg.float32, name="x")
    found = sg.explain(sg.exp(x), [x])[x].status
    assert found is sg.Status.FLOWS
    assert found == "flows"
    assert sg.Status("stopped") is sg.Status.STOPPED
    assert {found: 1}["flows"] == 1


def define(**parts: Any) -> Any:
    """A definition of an operation, which the registry forgets again."""
    given = {
        "__doc__": "A test.",
        "infer": staticmethod(lambda x: x),
        "gradient": {"x": lambda g, op: g},
        "lower": staticmethod(lambda xp, x: x),
        "samples": (),
    }
    try:
        return type("OnlyATest", (sg.graph.op.Op,), given | parts)
    finally:
        sg.graph.op.REGISTRY.pop("OnlyATest", None)


def test_an_attribute_must_say_its_kind() -> None:
    def undeclared(x: Any, *, size) -> Any:  # type: ignore[no-untyped-def]
        return x

    def unknown(x: Any, *, size: Path) -> Any:
        return x

    def declared(x: Any, *, size: sg.graph.op.Kind, axis: int) -> Any:
        return x

    for infer in (undeclared, unknown):
        with pytest.raises(sg.DefinitionError, match="attribute 'size' has no kind"):
            define(infer=staticmethod(infer))
    kinds = sg.graph.op.Kind
    made = define(infer=staticmethod(declared), kinds={"size": kinds.SIZE})
    assert made.kinds == {"size": kinds.SIZE, "axis": kinds.INTEGER}
    assert define().kinds == {}


def test_every_attribute_of_every_operation_has_a_kind() -> None:
    for definition in sg.graph.op.REGISTRY.values():
        assert tuple(definition.kinds) == definition.attributes
        assert all(isinstance(kind, sg.graph.op.Kind) for kind in definition.kinds.values())


def test_each_trait_says_one_thing() -> None:
    found = {name: (d.passes, d.merged, d.stateful) for name, d in sg.graph.op.REGISTRY.items()}
    assert found["StopGradient"] == (0, False, False)
    assert found["StraightThrough"] == (0, False, False)
    assert found["Parameter"] == (None, False, True)
    assert found["Exp"] == (None, True, False)
    assert found["CustomGradient"] == (None, False, False)
    assert [name for name, (passes, merged, _) in found.items() if passes is not None and merged] == []
    assert [name for name, (_, merged, stateful) in found.items() if stateful and merged] == []
