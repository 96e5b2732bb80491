"""Contract 2: the generator never looks behind a stop, in either mode, at any order."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.transforms.gradients import reach


def hidden_chain(x, length):
    for _ in range(length):
        x = sg.sin(x)
    return x


def live(x, stopped):
    return sg.reduce_sum(sg.exp(x) * sg.tanh(x * stopped))


def built(length, gate=sg.stop_gradient):
    """A function of x with a hidden part of some length, and that part's operations."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [3], name="x")
        start = len(graph)
        hidden = hidden_chain(x, length)
        behind = set(graph.operations[start:])
        y = live(x, gate(hidden))
    return graph, x, y, behind


def derivative(graph, x, y, order):
    with graph.as_default():
        for _ in range(order):
            (y,) = sg.gradients(y, [x])
    return y


def origins(op):
    while op.origin is not None:
        op = op.origin
        yield op


@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_operation_is_generated_for_the_hidden_part(order):
    graph, x, y, behind = built(7)
    start = len(graph)
    derivative(graph, x, y, order)
    generated = graph.operations[start:]
    assert generated
    assert not [op for op in generated if any(o in behind for o in origins(op))]
    assert not [op for op in generated if any(v.op in behind for v in op.inputs)]
    assert not [op for op in generated if op.type == "Cos"]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_without_the_stop_operations_are_generated_there(order):
    """So that the test above can fail."""
    graph, x, y, behind = built(7, gate=sg.identity)
    start = len(graph)
    derivative(graph, x, y, order)
    assert {o for op in graph.operations[start:] for o in origins(op)} >= behind


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_size_of_a_gradient_does_not_depend_on_the_hidden_part(order):
    sizes = set()
    for length in (1, 10, 1000):
        graph, x, y, _ = built(length)
        start = len(graph)
        derivative(graph, x, y, order)
        sizes.add(len(graph) - start)
    assert len(sizes) == 1


def pushed(length, order):
    graph, x, _, behind = built(length)
    start = len(graph)
    with graph.as_default():

        def f(x):
            return live(x, sg.stop_gradient(hidden))

        hidden = next(op for op in graph.operations if op.type == "StopGradient").inputs[0]
        for _ in range(order):
            f = forward(f)
        f(x)
    return graph.operations[start:], behind


def forward(f):
    return lambda x: sg.jvp(f, (x,), (sg.ones_like(x),))[1]


@pytest.mark.parametrize("order", [1, 2])
def test_forward_mode_does_not_look_behind_a_stop(order):
    generated, behind = pushed(7, order)
    assert generated
    assert not [op for op in generated if any(o in behind for o in origins(op))]
    assert not [op for op in generated if op.type == "Cos"]


@pytest.mark.parametrize("order", [1, 2])
def test_the_size_in_forward_mode_does_not_depend_on_the_hidden_part(order):
    assert len({len(pushed(length, order)[0]) for length in (1, 10, 300)}) == 1


@pytest.mark.parametrize("order", [1, 2, 3])
def test_values_treat_the_hidden_part_as_a_constant(order, run):
    """d/dx of exp(x)·tanh(c·x), the constant put in afterwards."""
    jax = pytest.importorskip("jax")
    graph, x, y, _ = built(4)
    at = np.array([0.3, -0.7, 1.1])
    constant = np.sin(np.sin(np.sin(np.sin(at))))
    with jax.enable_x64(True):
        f = lambda x: jax.numpy.sum(jax.numpy.exp(x) * jax.numpy.tanh(x * constant))
        for _ in range(order):
            f = (lambda g: lambda x: jax.numpy.sum(jax.grad(g)(x)))(f)
        expected = f(at)
    assert np.isclose(run(derivative(graph, x, y, order), {x: at}).sum(), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_rule_behind_a_stop_is_never_called(order, graph):
    called = []

    @sg.custom_gradient
    def watched(x):
        return sg.exp(x), lambda g: called.append("pullback") or g

    x = sg.placeholder(sg.float32)
    hidden = sg.prevent_gradient(watched(x), "must not be asked")
    derivative(graph, x, sg.exp(x) * sg.stop_gradient(hidden), order)
    assert not called
    with pytest.raises(sg.GradientError, match="must not be asked"):
        sg.gradients(sg.exp(x) * hidden, [x])


@pytest.mark.parametrize(
    "gate",
    [lambda h, x: sg.stop_gradient(h, wrt=[x]), lambda h, x: sg.straight_through(h, x * 1.0)],
    ids=["towards", "hard side"],
)
def test_other_walls_hide_as_much(gate, graph):
    x = sg.placeholder(sg.float32)
    behind = hidden_chain(x, 5)
    y = gate(behind, x)
    start = len(graph)
    sg.gradients(y * x, [x])
    assert not [op for op in graph.operations[start:] if op.type == "Cos"]


def test_integers_hide_as_much(graph):
    x = sg.placeholder(sg.float32, [4])
    y = sg.cast(sg.argmax(hidden_chain(x, 5)), sg.float32)
    start = len(graph)
    (dx,) = sg.gradients(y * sg.reduce_sum(x), [x])
    assert dx is not None
    assert not [op for op in graph.operations[start:] if op.type == "Cos"]


def test_nothing_is_generated_where_nothing_arrives(graph):
    x, z = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    y = hidden_chain(z, 20) + sg.stop_gradient(hidden_chain(x, 20))
    start = len(graph)
    assert sg.gradients(y, [x]) == [None]
    assert not [op for op in graph.operations[start:] if op.type not in ("Const", "Fill")]


def lines_in(module, call):
    """How many lines of a module a call runs."""
    ran = []

    def trace(frame, event, _):
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            ran.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return len(ran)


@pytest.mark.parametrize("place", ["hidden", "before x", "beside", "after y"])
def test_the_work_does_not_depend_on_what_is_not_live(place):
    """How much the sweeps do, with 10 and with 1000 operations that take no part."""

    def work(length):
        with sg.Graph().as_default():
            a = sg.placeholder(sg.float64)
            x = hidden_chain(a, length if place == "before x" else 1)
            stopped = sg.stop_gradient(hidden_chain(x, length if place == "hidden" else 1))
            if place == "beside":
                hidden_chain(x, length)
            y = sg.exp(x) * stopped
            if place == "after y":
                hidden_chain(y, length)
            return lines_in(reach, lambda: sg.gradients(y, [x]))

    assert work(10) == work(1000) > 0


def test_parameters_that_are_not_asked_for_cost_nothing(graph):
    """Only the operands that lead to xs get a cotangent: no dead operation is made."""
    x, w = sg.placeholder(sg.float32, [2, 2]), sg.placeholder(sg.float32, [2, 2])
    y = x @ w
    start = len(graph)
    sg.gradients(y, [w])
    assert [op.type for op in graph.operations[start:]].count("MatMul") == 1
