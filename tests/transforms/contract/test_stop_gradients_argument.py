"""Contract 4: gradients(..., stop_gradients=[a]) equals building again with a stop at every use of a."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import stopgrad as sg

NAMES = "abcd"
SUBSETS = [frozenset(s) for n in range(5) for s in itertools.combinations(NAMES, n)]
RANDOM = np.random.default_rng(17)
M = {pair: RANDOM.uniform(-1, 1, (3, 3)) for pair in ("ba", "ca", "cb", "db", "dc")}
A = RANDOM.uniform(-1, 1, (3, 2))


def build(stopped=frozenset()):
    """Four tensors, each of the earlier ones; those named stopped, right where they are made."""

    def made(name, value):
        return sg.stop_gradient(value) if name in stopped else value

    a = made("a", sg.placeholder(sg.float64, A.shape))
    b = made("b", sg.tanh(M["ba"] @ a))
    c = made("c", sg.sin(M["ca"] @ a + M["cb"] @ b))
    d = made("d", (M["db"] @ b) * (M["dc"] @ c))
    return {"a": a, "b": b, "c": c, "d": d}


def by_hand(ys, stopped):
    """What arrives at each tensor, by the chain rule, where nothing leaves those that are stopped."""
    a = A
    b = np.tanh(M["ba"] @ a)
    s = M["ca"] @ a + M["cb"] @ b
    p, q = M["db"] @ b, M["dc"] @ np.sin(s)
    arrived = dict.fromkeys(NAMES)

    def add(name, g):
        arrived[name] = g if arrived[name] is None else arrived[name] + g

    for y in ys:
        add(y, np.ones_like(A))
    leave = lambda name: None if name in stopped else arrived[name]
    if (g := leave("d")) is not None:
        add("b", M["db"].T @ (g * q))
        add("c", M["dc"].T @ (g * p))
    if (g := leave("c")) is not None:
        add("a", M["ca"].T @ (g * np.cos(s)))
        add("b", M["cb"].T @ (g * np.cos(s)))
    if (g := leave("b")) is not None:
        add("a", M["ba"].T @ (g * (1 - b * b)))
    return arrived


def close(found, expected):
    return found is expected is None or np.allclose(found, expected, rtol=1e-12, atol=1e-14)


def values(run, outputs, feed):
    fetched = iter(
        run([g for g in outputs if g is not None], {feed: A}) if any(g is not None for g in outputs) else []
    )
    return [None if g is None else next(fetched) for g in outputs]


@pytest.mark.parametrize("stopped", SUBSETS, ids=lambda s: "".join(sorted(s)) or "none")
def test_every_set_of_stops_for_every_set_of_ys(stopped, graph, run):
    """16 sets of stops, 15 of ys, all four as xs: equal to the rebuilt graph and the chain rule by hand."""
    plain, rebuilt = build(), build(stopped)
    inner = rebuilt["a"].op.inputs[0] if "a" in stopped else rebuilt["a"]
    for ys in SUBSETS[1:]:
        found = sg.gradients(
            [plain[n] for n in sorted(ys)],
            [plain[n] for n in NAMES],
            stop_gradients=[plain[n] for n in sorted(stopped)],
        )
        again = sg.gradients([rebuilt[n] for n in sorted(ys)], [rebuilt[n] for n in NAMES])
        expected = by_hand(ys, stopped)
        for n, p, q in zip(NAMES, values(run, found, plain["a"]), values(run, again, inner), strict=True):
            assert close(p, expected[n]), (n, ys)
            assert close(q, expected[n]), (n, ys)


@pytest.mark.parametrize("xs", SUBSETS[1:], ids=lambda s: "".join(sorted(s)))
def test_what_is_asked_for_beside_does_not_matter(xs, graph, run):
    plain = build()
    for stopped in SUBSETS:
        found = sg.gradients(
            plain["d"], [plain[n] for n in sorted(xs)], stop_gradients=[plain[n] for n in sorted(stopped)]
        )
        expected = by_hand("d", stopped)
        assert all(
            close(p, expected[n]) for n, p in zip(sorted(xs), values(run, found, plain["a"]), strict=True)
        )


@pytest.mark.parametrize(
    ("stops", "expected"),
    [((), [3.0, 1.0]), (("a",), [3.0, 1.0]), (("b",), [1.0, 1.0]), (("a", "b"), [1.0, 1.0])],
)
def test_partial_and_total_derivatives(stops, expected, graph, run):
    """TensorFlow's documented case: a + 2a towards a and 2a."""
    a = sg.placeholder(sg.float32)
    b = 2.0 * a
    found = sg.gradients(a + b, [a, b], stop_gradients=[{"a": a, "b": b}[n] for n in stops])
    assert run(found, {a: 0.0}) == expected


def test_gradients_still_arrive_at_a_stopped_tensor(graph, run):
    x = sg.placeholder(sg.float32)
    h = x * x
    dx, dh = sg.gradients(h * h, [x, h], stop_gradients=h)
    assert dx is None
    assert run(dh, {x: 3.0}) == 18.0


def test_a_stopped_y_passes_nothing_on(graph, run):
    x = sg.placeholder(sg.float32)
    y = x * x
    dx, dy = sg.gradients(y, [x, y], stop_gradients=[y])
    assert dx is None
    assert run(dy, {x: 3.0}) == 1.0


@pytest.mark.parametrize("towards_a", [False, True])
def test_it_is_per_tensor_not_per_operation(towards_a, graph, run):
    """One of two outputs is stopped; the other passes its cotangent on, alone."""
    x = sg.placeholder(sg.float64, [4])
    a, b = sg.split(x, 2)
    y = sg.reduce_sum(2.0 * a + 3.0 * b)
    dx, *da = run(sg.gradients(y, [x, a] if towards_a else [x], stop_gradients=[a]), {x: np.ones(4)})
    assert dx.tolist() == [0.0, 0.0, 3.0, 3.0]
    assert [d.tolist() for d in da] == [[2.0, 2.0]] * towards_a


def test_a_stopped_y_beside_a_live_output_of_one_operation(graph, run):
    x = sg.placeholder(sg.float64, [4])
    a, b = sg.split(x, 2)
    (dx,) = sg.gradients([a, b], [x], stop_gradients=[a])
    assert run(dx, {x: np.ones(4)}).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_the_same_tensor_in_another_place_is_stopped_too(graph, run):
    x = sg.placeholder(sg.float32)
    h = x * x
    (dx,) = sg.gradients(h * x + sg.sin(h) + h * h, [x], stop_gradients=[h])
    assert run(dx, {x: 3.0}) == 9.0


def test_stops_that_are_not_on_the_way_change_nothing(graph, run):
    x, z = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    (dx,) = sg.gradients(x * x, [x], stop_gradients=[z, sg.exp(x), sg.argmax(sg.stack([x, x]))])
    assert run(dx, {x: 3.0}) == 6.0


def test_stops_do_not_outlive_the_call(graph, run):
    x = sg.placeholder(sg.float32)
    h = x * x
    assert sg.gradients(h, [x], stop_gradients=[h]) == [None]
    assert run(sg.gradients(h, [x])[0], {x: 3.0}) == 6.0


def test_at_second_order_the_stop_is_written_anew(graph, run):
    """y = h·x with h = x² stopped: dy = h. The second call knows of no stop: dh/dx = 2x."""
    x = sg.placeholder(sg.float32)
    h = x * x
    (dx,) = sg.gradients(h * x, [x], stop_gradients=[h])
    assert run(sg.gradients(dx, [x])[0], {x: 3.0}) == 6.0
    assert sg.gradients(dx, [x], stop_gradients=[h]) == [None]


def test_stops_may_be_nested_structures_and_operations(graph):
    x = sg.placeholder(sg.float32)
    h, k = sg.exp(x), sg.sin(x)
    assert sg.gradients(h * k, [x], stop_gradients={"h": h, "rest": [k.op]}) == [None]
