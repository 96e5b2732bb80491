"""Stops with respect to chosen tensors or at run time, blocks without gradient, and nested structures."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import stopgrad as sg

# ------------------------------------------------------------------------------------------------- wrt


@pytest.fixture
def ab(graph):
    return sg.placeholder(sg.float32, name="a"), sg.placeholder(sg.float32, name="b")


def test_wrt_stops_only_towards_the_named(ab, run):
    a, b = ab
    y = sg.stop_gradient(a * b, wrt=[a])
    da, db = sg.gradients(y, [a, b])
    assert da is None
    assert run(db, {a: 3.0, b: 5.0}) == 3.0
    flow = sg.explain(y, [a, b])
    assert (flow[a].status, flow[b].status) == ("stopped", "flows")


def test_wrt_is_told_as_one_cut_and_naming_is_no_way(ab):
    a, b = ab
    gate = sg.stop_gradient(a * b, wrt=[a])
    found = sg.explain(gate * 2.0, [a])[a]
    assert found.status == "stopped"
    assert [cut.operation for cut in found.cuts] == [gate.op]
    only_named = sg.stop_gradient(b * b, wrt=[sg.exp(a), a])
    assert sg.explain(only_named * 2.0, [a])[a] == sg.Reach("disconnected", ())


@pytest.mark.parametrize(
    "named",
    [lambda a, b: a, lambda a, b: [a], lambda a, b: {"p": a}, lambda a, b: a.op],
    ids=["one", "list", "dict", "operation"],
)
def test_wrt_takes_structures(named, ab):
    a, b = ab
    da, db = sg.gradients(sg.stop_gradient(a * b, wrt=named(a, b)), [a, b])
    assert da is None
    assert db is not None


@pytest.mark.parametrize("when", [None, True, "fed"])
def test_wrt_nothing_stops_nothing(when, ab, run):
    """A list of frozen parameters may be empty."""
    a, _ = ab
    on = sg.placeholder(sg.bool)
    (da,) = sg.gradients(sg.stop_gradient(a * a, wrt=[], when=on if when == "fed" else when), [a])
    assert run(da, {a: 3.0, on: True}) == 6.0


def test_wrt_holds_whatever_else_is_asked_for(ab):
    a, b = ab
    y = sg.stop_gradient(a * b, wrt=[a])
    assert sg.gradients(y, [a]) == [None]
    assert sg.gradients(y, [b])[0] is not None
    db, da = sg.gradients(y, [b, a])
    assert da is None
    assert db is not None


def test_wrt_and_an_open_way(ab, run):
    """y = sg(ab wrt a) + a²b: towards a only the second counts, towards b both."""
    a, b = ab
    y = sg.stop_gradient(a * b, wrt=[a]) + a * a * b
    found = run(sg.gradients(y, [a, b]), {a: 3.0, b: 5.0})
    assert found == [2 * 3.0 * 5.0, 3.0 + 9.0]
    flow = sg.explain(y, [a, b])
    assert (flow[a].status, flow[b].status) == ("partly stopped", "flows")


def test_two_wrt_gates_one_after_the_other(ab):
    a, b = ab
    c = sg.placeholder(sg.float32, name="c")
    y = sg.stop_gradient(sg.stop_gradient(a * b * c, wrt=[a]), wrt=[b])
    assert [g is None for g in sg.gradients(y, [a, b, c])] == [True, True, False]


def test_two_wrt_gates_beside_each_other(ab, run):
    a, b = ab
    y = sg.stop_gradient(a * b, wrt=[a]) + sg.stop_gradient(3.0 * a * b, wrt=[b])
    assert run(sg.gradients(y, [a, b]), {a: 2.0, b: 5.0}) == [15.0, 2.0]


def test_wrt_an_intermediate_tensor_is_towards_that_tensor(ab, run):
    """Towards h the way is cut; towards what lies behind h, through h, it is open: the gate names h alone."""
    a, b = ab
    h = a * b
    y = sg.stop_gradient(h * h, wrt=[h])
    dh, da = sg.gradients(y, [h, a])
    assert dh is None
    assert run(da, {a: 3.0, b: 5.0}) == 2 * 15.0 * 5.0


def test_wrt_holds_for_the_second_derivative(ab, run):
    """y = sg(a²b wrt a)·a: dy/da = a²b; d/db of that is a²; d/da of that is cut: its only way is the gate."""
    a, b = ab
    (da,) = sg.gradients(sg.stop_gradient(a * a * b, wrt=[a]) * a, [a])
    assert sg.gradients(da, [a]) == [None]
    assert run(sg.gradients(da, [b])[0], {a: 3.0, b: 5.0}) == 9.0


def selective(w, x):
    """w·x² with w held, and w·x: d/dw is x; d/dx is 2wx with w held, and w, so that d/dw of it is 1."""
    return sg.stop_gradient(w * x, wrt=[w]) * x + w * x


@pytest.mark.parametrize(
    ("outer", "expected"),
    [
        (selective, 5.0),
        (lambda w, x: sg.value_and_grad(selective, 1)(w, x)[0], 5.0),
        (lambda w, x: sg.vjp(selective, w, x)[0], 5.0),
        (lambda w, x: sg.grad(selective, 1)(w, x), 1.0),
        (lambda w, x: sg.jvp(lambda x: selective(w, x), (x,), (1.0,))[1], 1.0),
        (lambda w, x: sg.function(selective)(w, x), 5.0),
        (lambda w, x: selective(sg.identity(w), x), 5.0),
    ],
    ids=["plain", "value", "vjp", "grad", "jvp", "function", "identity"],
)
def test_wrt_an_argument_holds_through_transforms(outer, expected):
    """Each transform calls the function with a stand-in, which counts as the argument it stands for."""
    assert sg.grad(outer)(3.0, 5.0) == expected


def test_a_function_with_wrt_can_also_be_called_on_arrays():
    def f(a, b):
        return sg.stop_gradient(a * b, wrt=[a]) + a

    a, b = np.array(3.0), np.array(5.0)
    assert f(a, b) == 18.0
    assert sg.grad(f, (0, 1))(a, b) == (1.0, 3.0)
    assert sg.grad(f)(a, b) == 1.0
    assert sg.function(f)(a, b) == 18.0


def test_wrt_takes_only_tensors(ab):
    with pytest.raises(sg.StopgradError, match="wrt"):
        sg.stop_gradient(ab[0], wrt=[1.0])


def test_freezing_all_but_one_layer_keeps_the_way_through_the_frozen_open(graph, run):
    """jax #9630, flax #1857: parameters frozen for one loss, while gradients pass through their layer."""
    x, w, v = (sg.placeholder(sg.float64, name=n) for n in "xwv")
    h = w * x
    y = sg.stop_gradient(v * h, wrt=[v])
    dw, dv, dx = sg.gradients(y, [w, v, x])
    assert dv is None
    assert run([dw, dx], {x: 2.0, w: 3.0, v: 5.0}) == [10.0, 15.0]


# ------------------------------------------------------------------------------------------------ when


def test_when_is_switched_in_one_session(graph, engine):
    x, off = sg.placeholder(sg.float32), sg.placeholder(sg.bool)
    y = sg.stop_gradient(x * x, when=off) * x
    (dx,) = sg.gradients(y, [x])
    size = len(graph)
    with sg.Session(graph, engine=engine) as session:
        found = [session.run([y, dx], {x: 3.0, off: value}) for value in (False, True, False, True)]
    assert found == [[27.0, 27.0], [27.0, 9.0]] * 2
    assert len(graph) == size


def test_when_is_connected_and_flows(graph):
    x, off = sg.placeholder(sg.float32), sg.placeholder(sg.bool)
    y = sg.stop_gradient(x, when=off)
    assert sg.explain(y, [x])[x].status in ("flows", "partly stopped")
    assert sg.gradients(y, [x])[0] is not None


@pytest.mark.parametrize(
    ("when", "expected"), [(True, None), (np.True_, None), (False, 6.0), (np.False_, 6.0)]
)
def test_when_a_python_bool_is_decided_while_building(when, expected, graph, run):
    x = sg.placeholder(sg.float32)
    (dx,) = sg.gradients(sg.stop_gradient(x * x, when=when), [x])
    assert dx is None if expected is None else run(dx, {x: 3.0}) == expected


def test_when_and_wrt_together(graph, engine):
    a, b, off = sg.placeholder(sg.float32), sg.placeholder(sg.float32), sg.placeholder(sg.bool)
    y = sg.stop_gradient(a * b, wrt=[a], when=off)
    ds = sg.gradients(y, [a, b])
    with sg.Session(graph, engine=engine) as session:
        assert session.run(ds, {a: 3.0, b: 5.0, off: False}) == [5.0, 3.0]
        assert session.run(ds, {a: 3.0, b: 5.0, off: True}) == [0.0, 3.0]


def test_when_at_second_order(graph, engine):
    """y = s(x²)·x², s a stop where it holds: y' = 4x³ or 2x³ (x² held), y'' = 12x² or 2x²."""
    x, off = sg.placeholder(sg.float64), sg.placeholder(sg.bool)
    (dx,) = sg.gradients(sg.stop_gradient(x * x, when=off) * x * x, [x])
    (ddx,) = sg.gradients(dx, [x])
    with sg.Session(graph, engine=engine) as session:
        assert session.run([dx, ddx], {x: 3.0, off: False}) == [4 * 27.0, 12 * 9.0]
        assert session.run([dx, ddx], {x: 3.0, off: True}) == [2 * 27.0, 2 * 9.0]


def test_when_a_computed_condition(graph, run):
    x = sg.placeholder(sg.float32)
    (dx,) = sg.gradients(sg.stop_gradient(x * x, when=x > 1.0), [x])
    assert [run(dx, {x: v}) for v in (0.5, 2.0)] == [1.0, 0.0]


@pytest.mark.parametrize(
    "bad", [lambda: sg.placeholder(sg.bool, [2]), lambda: sg.placeholder(sg.float32)], ids=["vector", "float"]
)
def test_when_takes_a_scalar_boolean(bad, graph):
    with pytest.raises(sg.StopgradError, match="when"):
        sg.stop_gradient(sg.placeholder(sg.float32), when=bad())


def test_when_in_a_compiled_function(engine):
    f = sg.function(lambda x, off: sg.grad(lambda x: sg.stop_gradient(x * x, when=off) * x)(x), engine=engine)
    assert [float(f(np.float32(3.0), np.array(v))) for v in (False, True, False)] == [27.0, 9.0, 27.0]
    assert f.traces == 1


def test_nan_does_not_leak_through_a_stop_that_holds(graph, run):
    """Zero is chosen, not multiplied: an infinite cotangent does not become NaN at the gate."""
    x, off = sg.placeholder(sg.float32), sg.placeholder(sg.bool)
    (dx,) = sg.gradients(sg.stop_gradient(x, when=off), [x], [sg.constant(np.inf)])
    assert run(dx, {x: 1.0, off: True}) == 0.0


# ----------------------------------------------------------------------------------------- no_gradient


def test_what_is_built_inside_is_stopped_on_its_way_out(graph, run):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        target = sg.exp(x)
    y = target * x
    (dx,) = sg.gradients(y, [x])
    assert run(dx, {x: 0.0}) == 1.0
    found = sg.explain(y, [x])[x]
    assert found.status == "partly stopped"
    assert [cut.operation.type for cut in found.cuts] == ["StopGradient"]


def test_its_way_out_is_stopped_in_every_use(graph):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        h = sg.exp(x)
    assert sg.gradients([h * 2.0, sg.sin(h), sg.stack([h, h])], [x]) == [None]


def test_a_result_itself_is_stopped_outside(graph):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        h = sg.exp(x)
    assert sg.gradients(h, [x]) == [None]


def test_gradients_asked_for_inside_are_unaffected(graph, run):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        (dx,) = sg.gradients(x * x * x, [x])
        (ddx,) = sg.gradients(dx, [x])
    assert run([dx, ddx], {x: 2.0}) == [12.0, 12.0]
    assert sg.gradients(dx * 1.0, [x]) == [None]


def test_blocks_nest(graph, run):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        a = x * x
        with sg.no_gradient():
            b = x * x * x
        c = a + b
        (inner,) = sg.gradients(c, [x])
    assert run(inner, {x: 3.0}) == 6.0
    assert sg.gradients(a + b + c, [x]) == [None]


def test_after_the_block_gradients_flow_again(graph, run):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        sg.exp(x)
    assert run(sg.gradients(x * x, [x])[0], {x: 3.0}) == 6.0


def test_values_are_unchanged(graph, run):
    x = sg.placeholder(sg.float32)
    with sg.no_gradient():
        h = x * x
    assert run(h + 1.0, {x: 3.0}) == 10.0


def test_a_block_left_by_an_error_counts_as_ended(graph):
    x = sg.placeholder(sg.float32)
    made = []

    def failing():
        with sg.no_gradient():
            made.append(sg.exp(x))
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert sg.gradients(made, [x]) == [None]
    assert sg.gradients(sg.exp(x), [x])[0] is not None


def test_a_block_inside_of_a_failed_build_leaves_no_mark(graph):
    """What is built later at the same places of the graph is not stopped."""
    x = sg.placeholder(sg.float32)

    def failing(x):
        with sg.no_gradient():
            sg.exp(sg.exp(sg.exp(x)))
        raise KeyError

    with pytest.raises(KeyError):
        sg.grad(failing)(x)
    y = x
    for _ in range(10):
        y = sg.sin(y)
    assert sg.explain(y, [x])[x].status == "flows"


def test_many_blocks_nested_and_beside_each_other(graph, run):
    """Each of 50 blocks holds two, and each of its three results i·x counts as a constant factor of x."""
    x = sg.placeholder(sg.float64)
    inside, terms = [], []
    for i in range(50):
        with sg.no_gradient():
            before = x * (3.0 * i)
            with sg.no_gradient():
                first = x * (3.0 * i + 1.0)
            with sg.no_gradient():
                second = x * (3.0 * i + 2.0) + 0.0 * first
        inside += [before, first, second]
        terms += [v * x for v in (before, first, second)]
    (dx,) = sg.gradients(terms, [x])
    assert run(dx, {x: 2.0}) == 2.0 * sum(range(150))
    assert sg.gradients(inside, [x]) == [None]
    assert run(sg.gradients([v * x for v in inside], [x])[0], {x: 2.0}) == 2.0 * sum(range(150))


def test_a_block_in_a_differentiated_function(run):
    def loss(x):
        with sg.no_gradient():
            weight = sg.exp(x)
        return weight * x

    assert np.isclose(sg.grad(loss)(1.0), np.e)
    assert sg.grad(sg.grad(loss))(1.0) == 0.0


# ----------------------------------------------------------------------------------- nested structures


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Layer:
    w: object
    name: str


@pytest.mark.parametrize(
    "gate",
    [
        sg.stop_gradient,
        sg.zero_gradient,
        sg.reverse_gradient,
        lambda x: sg.scale_gradient(x, 2.0),
        lambda x: sg.clip_gradient(x, -1.0, 1.0),
        lambda x: sg.clip_gradient_norm(x, 1.0),
        sg.prevent_gradient,
        lambda x: sg.stop_gradient(x, wrt=[sg.placeholder(sg.float32)]),
        lambda x: sg.stop_gradient(x, when=sg.constant(False)),
    ],
    ids=["stop", "zero", "reverse", "scale", "clip", "clip norm", "prevent", "wrt", "when"],
)
def test_gates_take_nested_structures(gate, graph):
    x, n = sg.placeholder(sg.float32, [2]), sg.placeholder(sg.int32)
    tree = {
        "a": [x, (x, None)],
        "b": Pair(x, 3),
        "c": Layer(x, "dense"),
        "n": n,
        "s": "text",
        "t": True,
        "f": len,
    }
    found = gate(tree)
    assert found.keys() == tree.keys()
    assert type(found["a"]) is list
    assert type(found["a"][1]) is tuple
    assert found["a"][1][1] is None
    assert type(found["b"]) is Pair
    assert found["b"].right == 3
    assert type(found["c"]) is Layer
    assert found["c"].name == "dense"
    assert found["n"] is n
    assert (found["s"], found["t"], found["f"]) == ("text", True, len)
    gated = [found["a"][0], found["a"][1][0], found["b"].left, found["c"].w]
    assert all(v is not x and v.op.definition.passes == 0 and v.op.inputs[0] is x for v in gated)
    assert tree["a"][0] is x
    assert tree["c"].w is x


def test_straight_through_takes_nested_structures(graph, run):
    x = sg.placeholder(sg.float32)
    hard = {"p": Pair(sg.round(x), 3), "l": [sg.floor(x)]}
    y = sg.straight_through(hard, {"p": Pair(x * 2.0, 4), "l": [x * 5.0]})
    assert type(y["p"]) is Pair
    assert y["p"].right == 3
    assert run([y["p"].left, y["l"][0]], {x: 1.7}) == [2.0, 1.0]
    assert run(sg.gradients([y["p"].left, y["l"][0]], [x])[0], {x: 1.7}) == 7.0
    with pytest.raises(sg.StopgradError, match="structure"):
        sg.straight_through({"a": x}, {"b": x})


def test_probes_of_nested_structures_are_named_by_path(graph, run):
    x = sg.placeholder(sg.float32)
    y = sg.probe({"w": x * 2.0, "layers": [x * 3.0, 7]}, "net")
    assert y["layers"][1] == 7
    sg.gradients(y["w"] * 10.0 + y["layers"][0] * 100.0, [x])
    assert run(graph.output("net/w/gradient"), {x: 1.0}) == 10.0
    assert run(graph.output("net/layers.0/gradient"), {x: 1.0}) == 100.0


def test_a_stop_on_a_dict_really_stops(graph):
    """jax PR #892: a stop on a dict did nothing, silently."""
    x = sg.placeholder(sg.float32)
    assert sg.gradients(sg.stop_gradient({"foo": x})["foo"] * 2.0, [x]) == [None]


@pytest.mark.parametrize("leaf", [3, True, "text", None, b"bytes", len])
def test_what_is_no_tensor_passes_untouched(leaf, graph):
    assert sg.stop_gradient(leaf) is leaf
    assert sg.stop_gradient([leaf]) == [leaf]


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integer_tensors_pass_untouched(dtype, graph):
    n = sg.placeholder(dtype, [2])
    assert sg.stop_gradient(n) is n
