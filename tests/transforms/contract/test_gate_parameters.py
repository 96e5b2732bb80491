"""Contract 5: a gate's parameters are part of its identity, and each gate has the gradient it says it has."""

from __future__ import annotations

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.rewrite import fold, merge, rewrite, simplify

# ------------------------------------------------------------------- gradients, first and second, by hand
#
# y = gate(x³)·x at x = 2, where the cotangent that meets the gate is x. With P the gate's pullback,
# y' = x³ + P(x)·3x²   and   y'' = P(1)·3x² + d/dx[P(x)·3x²].

X = 2.0
BY_HAND = {
    "identity": (sg.identity, 32.0, 48.0),
    "probe": (lambda u: sg.probe(u, "here"), 32.0, 48.0),
    "stop": (sg.stop_gradient, 8.0, None),
    "stop when": (lambda u: sg.stop_gradient(u, when=sg.constant(True)), 8.0, 0.0),
    "open when": (lambda u: sg.stop_gradient(u, when=sg.constant(False)), 32.0, 48.0),
    "zero": (sg.zero_gradient, 8.0, 0.0),
    "scale": (lambda u: sg.scale_gradient(u, 0.5), 8.0 + 12.0, 6.0 + 0.5 * 9 * 4.0),
    "scale by nothing": (lambda u: sg.scale_gradient(u, 0.0), 8.0, 0.0),
    "reverse": (sg.reverse_gradient, 8.0 - 24.0, -12.0 - 36.0),
    "reverse by two": (lambda u: sg.reverse_gradient(u, 2.0), 8.0 - 48.0, -24.0 - 72.0),
    "clip, acting": (lambda u: sg.clip_gradient(u, -1.0, 1.0), 8.0 + 12.0, 12.0 + 12.0),
    "clip, acting on both": (lambda u: sg.clip_gradient(u, -0.5, 0.5), 8.0 + 6.0, 6.0 + 6.0),
    "clip, idle": (lambda u: sg.clip_gradient(u, -5.0, 5.0), 32.0, 48.0),
    "clip from below": (lambda u: sg.clip_gradient(u, 3.0, 9.0), 8.0 + 36.0, 36.0 + 36.0),
    "norm, acting": (lambda u: sg.clip_gradient_norm(u, 1.0), 8.0 + 12.0, 12.0 + 12.0),
    "norm, idle": (lambda u: sg.clip_gradient_norm(u, 5.0), 32.0, 48.0),
    "straight through": (lambda u: sg.straight_through(sg.stop_gradient(u), u), 32.0, 48.0),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_first_and_second_derivative(name, graph, run_everywhere):
    gate, first, second = BY_HAND[name]
    x = sg.placeholder(sg.float64)
    (dx,) = sg.gradients(gate(x * x * x) * x, [x])
    (ddx,) = sg.gradients(dx, [x])
    assert np.isclose(run_everywhere(dx, {x: X}), first, rtol=1e-14)
    assert ddx is None if second is None else np.isclose(run_everywhere(ddx, {x: X}), second, rtol=1e-14)


def test_clipping_is_per_element(graph, run):
    x = sg.placeholder(sg.float64, [4])
    (dx,) = sg.gradients(sg.clip_gradient(x, -1.0, 2.0), [x], [np.array([-9.0, -0.5, 1.5, 9.0])])
    assert run(dx, {x: np.zeros(4)}).tolist() == [-1.0, -0.5, 1.5, 2.0]


@pytest.mark.parametrize(("max_norm", "factor"), [(1.0, 0.2), (5.0, 1.0), (6.0, 1.0)])
def test_clipping_by_norm_is_per_tensor(max_norm, factor, graph, run):
    """The cotangent (3, 4) has norm 5."""
    x = sg.placeholder(sg.float64, [2])
    (dx,) = sg.gradients(sg.clip_gradient_norm(x, max_norm), [x], [np.array([3.0, 4.0])])
    assert np.allclose(run(dx, {x: np.zeros(2)}), np.array([3.0, 4.0]) * factor, rtol=1e-15)


def test_clipping_by_norm_of_a_zero_cotangent_is_zero_also_at_second_order(graph, run):
    x, g = sg.placeholder(sg.float64, [2]), sg.placeholder(sg.float64, [2])
    (dx,) = sg.gradients(sg.clip_gradient_norm(x, 1.0), [x], [g])
    (dg,) = sg.gradients(dx, [g])
    assert run([dx, dg], {x: [0, 0], g: [0, 0]})[0].tolist() == [0.0, 0.0]
    assert run(dg, {x: [0, 0], g: [0, 0]}).tolist() == [1.0, 1.0]


def test_settings_given_as_tensors_take_part_but_have_no_gradient(graph, run):
    x, s = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    for gate in (
        sg.scale_gradient(x, s),
        sg.reverse_gradient(x, s),
        sg.clip_gradient(x, -s, s),
        sg.clip_gradient_norm(x, s),
    ):
        (ds,) = sg.gradients(gate, [s])
        assert ds is None
        assert sg.explain(gate, [s])[s].status != "flows"
    dx = [sg.gradients(gate, [x])[0] for gate in (sg.scale_gradient(x, s), sg.clip_gradient(x * 5.0, -s, s))]
    assert run(dx, {x: 1.0, s: 0.5}) == [0.5, 2.5]


def test_a_reversed_gradient_descends_one_way_and_ascends_the_other(graph, run):
    """Gradient reversal (arXiv 1409.7495): equals sg((1+λ)x) − λx, also if the head has its own gradient."""
    x, w = sg.placeholder(sg.float64), sg.placeholder(sg.float64)
    gate = sg.reverse_gradient(x * x, 0.25)
    long_form = sg.stop_gradient(1.25 * x * x) - 0.25 * x * x
    for h in (gate, long_form):
        assert run(sg.gradients(w * h, [x, w]), {x: 3.0, w: 2.0}) == [-0.25 * 2.0 * 6.0, 9.0]


# --------------------------------------------------------------------------- two gates stay two gates

PAIRS = {
    "clip": (
        lambda x: sg.clip_gradient(x, -1.0, 1.0),
        lambda x: sg.clip_gradient(x, -10.0, 10.0),
        1.0 + 10.0,
    ),
    "scale": (
        lambda x: sg.scale_gradient(x, 2.0),
        lambda x: sg.scale_gradient(x, 3.0),
        100.0 * 2 + 100.0 * 3,
    ),
    "norm": (lambda x: sg.clip_gradient_norm(x, 1.0), lambda x: sg.clip_gradient_norm(x, 7.0), 1.0 + 7.0),
    "stop and none": (sg.stop_gradient, lambda x: x, 100.0),
    "zero and reverse": (sg.zero_gradient, sg.reverse_gradient, -100.0),
    "two of one kind": (
        lambda x: sg.clip_gradient(x, -1.0, 1.0),
        lambda x: sg.clip_gradient(x, -1.0, 1.0),
        2.0,
    ),
    "straight": (lambda x: sg.straight_through(x, 2.0 * x), lambda x: sg.straight_through(x, 3.0 * x), 500.0),
}


@pytest.mark.parametrize(
    "rules", [(), (merge,), (simplify, fold, merge)], ids=["copied", "merged", "simplified"]
)
@pytest.mark.parametrize("pair", PAIRS)
def test_rewriting_before_differentiating_keeps_every_gate(pair, rules, graph, run):
    """PyTensor merges gates with different bounds, and erases them, when rewriting runs first."""
    one, other, expected = PAIRS[pair]
    x = sg.placeholder(sg.float64)
    y = one(x) * 100.0 + other(x) * 100.0
    made = rewrite([y], [x], rules)
    gates = [op.type for op in graph.operations if op.definition.passes is not None]
    assert sorted(op.type for op in made.graph.operations if op.definition.passes is not None) == sorted(
        gates
    )
    with made.graph.as_default():
        (after,) = sg.gradients(made.outputs, made.inputs)
    (before,) = sg.gradients(y, [x])
    assert run(before, {x: 5.0}) == expected
    assert run(after, {made.inputs[0]: 5.0}) == expected


PYTENSOR = {
    "x·sg(x)": (lambda x: x * sg.stop_gradient(x), 5.0),
    "sg(x)·x": (lambda x: sg.stop_gradient(x) * x, 5.0),
    "x·scale(x, 3)": (lambda x: sg.scale_gradient(x, 3.0) * x, 20.0),
    "x·zero(x)": (lambda x: x * sg.zero_gradient(x), 5.0),
    "x²·sg(x)": (lambda x: x**2.0 * sg.stop_gradient(x), 50.0),
    "x²·zero(x)": (lambda x: x**2.0 * sg.zero_gradient(x), 50.0),
    "clip(x)²": (lambda x: sg.clip_gradient(x, -1.0, 1.0) ** 2.0, 1.0),
    "scale(x, 2)²": (lambda x: sg.scale_gradient(x, 2.0) ** 2.0, 20.0),
    "zero(x)": (sg.zero_gradient, 0.0),
}


@pytest.mark.parametrize("name", PYTENSOR)
def test_the_same_gradient_before_and_after_rewriting(name, graph, run):
    f, expected = PYTENSOR[name]
    x = sg.placeholder(sg.float64)
    y = f(x)
    made = rewrite([y], [x], (simplify, fold, merge))
    with made.graph.as_default():
        (after,) = sg.gradients(made.outputs[0], made.inputs)
    assert run(after, {made.inputs[0]: 5.0}) == expected
    assert run(sg.gradients(y, [x])[0], {x: 5.0}) == expected


@pytest.mark.parametrize("name", ["exp", "sin"])
def test_a_stopped_factor_stays_as_computed(name, graph, run):
    """d/dx x·sg(f(x)) = f(x), elementwise."""
    x = sg.placeholder(sg.float64, [5])
    f = getattr(sg, name)
    at = np.linspace(-1, 1, 5)
    for gate in (sg.stop_gradient, sg.zero_gradient):
        (dx,) = sg.gradients(sg.reduce_sum(x * gate(f(x))), [x])
        assert np.allclose(run(dx, {x: at}), getattr(np, name)(at), rtol=1e-15)


def test_a_clipped_and_a_free_gradient_of_one_function_are_not_confused(graph, run):
    x = sg.placeholder(sg.float64)
    clipped = sg.gradients(sg.clip_gradient(x, -1.0, 1.0) ** 2.0, [x])[0]
    free = sg.gradients(x**2.0, [x])[0]
    assert run([clipped, free], {x: 2.0}) == [1.0, 4.0]


def test_running_before_differentiating_changes_nothing(graph, engine):
    x = sg.placeholder(sg.float64)
    y = (
        sg.clip_gradient(x, -1.0, 1.0) * 100.0
        + sg.clip_gradient(x, -10.0, 10.0) * 100.0
        + x * sg.stop_gradient(x)
    )
    with sg.Session(graph, engine=engine) as session:
        assert session.run(y, {x: 5.0}) == 1025.0
        before = len(graph)
        (dx,) = sg.gradients(y, [x])
        assert len(graph) > before
        assert session.run(dx, {x: 5.0}) == 1.0 + 10.0 + 5.0


def test_a_gate_of_a_constant_is_kept(graph):
    c = sg.constant(3.0)
    made = rewrite([sg.stop_gradient(c) * 2.0], [], (simplify, fold, merge))
    assert "StopGradient" in [op.type for op in made.graph.operations]


def test_a_switched_stop_keeps_its_switch(graph, run):
    x, p, q = sg.placeholder(sg.float64), sg.placeholder(sg.bool), sg.placeholder(sg.bool)
    y = sg.stop_gradient(x, when=p) * 2.0 + sg.stop_gradient(x, when=q) * 5.0
    made = rewrite([y], [x, p, q], (simplify, fold, merge))
    with made.graph.as_default():
        (dx,) = sg.gradients(made.outputs, [made.inputs[0]])
    found = [
        float(run(dx, dict(zip(made.inputs, (1.0, *v), strict=True))))
        for v in ((False, False), (True, False), (False, True), (True, True))
    ]
    assert found == [7.0, 5.0, 2.0, 0.0]


def test_a_selective_stop_keeps_its_names(graph, run):
    a, b = sg.placeholder(sg.float64), sg.placeholder(sg.float64)
    y = sg.stop_gradient(a * b, wrt=[a]) + sg.stop_gradient(a * b, wrt=[b])
    made = rewrite([y], [a, b], (simplify, fold, merge))
    with made.graph.as_default():
        found = sg.gradients(made.outputs, made.inputs)
    assert run(found, dict(zip(made.inputs, (3.0, 5.0), strict=True))) == [5.0, 3.0]


# ------------------------------------------------------------------------- gates that speak or have names


def test_a_prevented_gradient_shows_message_and_both_lines(graph, here):
    x = sg.placeholder(sg.float32)
    y, built = sg.prevent_gradient(x, "sampling has no gradient"), here()
    asked = here() + 2
    with pytest.raises(sg.GradientError) as caught:
        sg.gradients(y * 2.0, [x])
    text = str(caught.value)
    assert "sampling has no gradient" in text
    assert f"{__file__}:{built}" in text
    assert f"{__file__}:{asked}" in text


def test_a_prevented_gradient_is_no_matter_where_it_is_not_on_the_way(graph, run):
    x, z = sg.placeholder(sg.float32), sg.placeholder(sg.float32)
    y = sg.prevent_gradient(x, "no") * z
    assert run(sg.gradients(y, [z])[0], {x: 3.0, z: 1.0}) == 3.0
    with pytest.raises(sg.GradientError):
        sg.gradients(y, [x, z])


def test_a_probe_names_the_gradient_at_its_point(graph, run_everywhere):
    """y = (3x)² towards x = 2: at the probe, 2·3x = 12."""
    x = sg.placeholder(sg.float32)
    y = sg.square(sg.probe(3.0 * x, "hidden"))
    (dx,) = sg.gradients(y, [x])
    assert run_everywhere([dx, graph.output("hidden/gradient")], {x: 2.0}) == [36.0, 12.0]


def test_a_probe_sums_all_that_arrives(graph, run):
    x = sg.placeholder(sg.float32)
    h = sg.probe(x * 1.0, "h")
    sg.gradients([h * 2.0, h * h], [x])
    assert run(graph.output("h/gradient"), {x: 3.0}) == 2.0 + 6.0


def test_a_probe_takes_no_part_in_higher_derivatives(graph, run):
    x = sg.placeholder(sg.float64)
    (dx,) = sg.gradients(sg.probe(x * x * x, "cube"), [x])
    (ddx,) = sg.gradients(dx, [x])
    assert run([dx, ddx], {x: 2.0}) == [12.0, 12.0]


# ------------------------------------------------------------------------------- is a gate a linear map?

LINEAR = {
    "stop": sg.stop_gradient,
    "zero": sg.zero_gradient,
    "scale": lambda u: sg.scale_gradient(u, 0.5),
    "reverse": sg.reverse_gradient,
    "straight through": lambda u: sg.straight_through(u * 0.0, u),
}
NOT_LINEAR = {
    "clip": lambda u: sg.clip_gradient(u, -1.0, 1.0),
    "norm": lambda u: sg.clip_gradient_norm(u, 1.0),
}


def pulled(gate, g):
    """The cotangents that a gate lets through for these."""
    x = sg.placeholder(sg.float64, [2])
    (dx,) = sg.gradients(gate(x), [x], [g], unconnected_gradients="zero")
    return dx


@pytest.mark.parametrize("gate", LINEAR.values(), ids=LINEAR)
def test_most_gates_are_linear_maps_of_cotangents(gate, graph, run):
    a, b = np.array([0.3, -4.0]), np.array([2.0, 7.0])
    found = run([pulled(gate, g) for g in (a, b, 3.0 * a + b)])
    assert np.allclose(found[2], 3.0 * found[0] + found[1])


@pytest.mark.parametrize("gate", NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_clipping_is_no_linear_map(gate, graph, run):
    a, b = np.array([0.3, -4.0]), np.array([2.0, 7.0])
    found = run([pulled(gate, g) for g in (a, b, a + b)])
    assert not np.allclose(found[2], found[0] + found[1])


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (NOT_LINEAR["clip"], lambda g, v: np.where(np.abs(g) < 1.0, v, 0.0)),
        (
            NOT_LINEAR["norm"],
            lambda g, v: v if (n := np.linalg.norm(g)) < 1.0 else v / n - g * (g @ v) / n**3,
        ),
    ],
    ids=NOT_LINEAR,
)
@pytest.mark.parametrize("g", [[0.3, -0.4], [0.3, -4.0]], ids=["inside", "outside"])
def test_the_derivative_of_clipping_is_taken_at_the_cotangent(gate, expected, g, graph, run):
    at, v = sg.placeholder(sg.float64, [2]), np.array([1.0, 2.0])
    (found,) = sg.gradients(pulled(gate, at), [at], [v])
    assert np.allclose(run(found, {at: g}), expected(np.array(g), v))


@pytest.mark.parametrize(("x", "first", "second"), [(0.1, 0.2, 1.0), (0.9, 1.0, 0.0)])
def test_clipping_acts_again_at_the_second_order(x, first, second):
    """h² with h = clip(x): 2h is clipped, and inside the bounds its derivative 2 is clipped once more."""

    def f(x):
        return sg.clip_gradient(x, -1.0, 1.0) ** 2.0

    assert np.isclose(sg.grad(f)(x), first)
    assert np.isclose(sg.grad(sg.grad(f))(x), second)


@pytest.mark.parametrize("inside", [True, False])
def test_a_clip_in_a_loop_clips_each_step(inside):
    """clip(3) + clip(3) = 2 for a gate in the body, clip(3 + 3) = 1 for one outside of it."""

    def f(w):
        outer = w if inside else sg.clip_gradient(w, -1.0, 1.0)

        def step(total, _):
            return total + 3.0 * (sg.clip_gradient(outer, -1.0, 1.0) if inside else outer), None

        return sg.scan(step, 0.0, None, 2)[0]

    assert sg.grad(f)(5.0) == (2.0 if inside else 1.0)


def test_a_clip_behind_a_selective_stop_clips_all_that_comes_together(graph, run):
    """h = clip(xb): 3 comes through the gate and 4 beside it, so dx = clip(7)·b."""
    x, b = sg.placeholder(sg.float64), sg.placeholder(sg.float64)
    h = sg.clip_gradient(x * b, -1.0, 1.0)
    (dx,) = sg.gradients(sg.stop_gradient(h * 3.0, wrt=[b]) + h * 4.0, [x])
    assert run(dx, {x: 2.0, b: 5.0}) == 5.0
