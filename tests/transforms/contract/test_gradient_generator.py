"""The generator against the facts that the reference systems' own tests hold.

TensorFlow's gradients_test.py and gradients_test.cc, TensorFlow Java's GradientsTest, PyTensor's
test_gradient.py.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import stopgrad as sg

EDGES = list(itertools.product([False, True], repeat=3))


def scalar(name=None, dtype=sg.float32):
    return sg.placeholder(dtype, name=name)


# ----------------------------------------------------------------------------------------- TensorFlow


def test_a_stopped_y_has_no_gradient(graph):
    x = sg.ones([100, 32]) * 1.0
    assert sg.gradients(sg.stop_gradient(x), x) == [None]


def test_the_gradient_of_a_product_towards_one_factor_is_one_product(graph):
    x, w, b = (
        sg.placeholder(sg.float32, [32, 100]),
        sg.placeholder(sg.float32, [100, 10]),
        sg.placeholder(sg.float32, [10]),
    )
    xw = x @ w
    (dw,) = sg.gradients(xw + b, w)
    assert dw.op.type == "MatMul"
    assert dw.op.origin is xw.op
    assert dw.type is w.type


def test_an_unused_output_of_several_counts_as_zero(graph, run):
    w, x = sg.placeholder(sg.float64, [2, 2]), sg.placeholder(sg.float64, [2, 2])
    _, second = sg.split(w @ x, 2, axis=0)
    (dw,) = sg.gradients(sg.reduce_sum(second), [w])
    fed = np.array([[1.0, 2.0], [3.0, 4.0]])
    # d/dw of the second row's sum: nothing in row 0, the row sums of x in row 1.
    assert run(dw, {w: fed, x: fed}).tolist() == [[0.0, 0.0], [3.0, 7.0]]


def test_the_way_ends_at_x(graph, run):
    """What lies before x is not looked at, not even where it refuses."""
    x = sg.prevent_gradient(scalar(), "not to be asked")
    (dx,) = sg.gradients(x + 1.0 + 1.0, [x])
    assert run(dx, {x: 3.0}) == 1.0


def test_the_way_goes_on_through_an_x(graph, run):
    x = scalar()
    y = x * 2.0
    assert run(sg.gradients(y * 3.0, [x, y]), {x: 1.0}) == [6.0, 3.0]
    assert run(sg.gradients(y * 3.0, [y, x]), {x: 1.0}) == [3.0, 6.0]


@pytest.mark.parametrize("uses", [1, 2, 3, 10, 100])
def test_many_uses_are_added_once(uses, graph, run):
    x = scalar()
    y = x * 2.0
    z = y
    for _ in range(uses - 1):
        z = sg.add(z, y)
    start = len(graph)
    dx, dy = sg.gradients(z, [x, y])
    assert run([dx, dy], {x: 1.0}) == [2.0 * uses, 1.0 * uses]
    sums = [op for op in graph.operations[start:] if op.type in ("AddN", "AddV2")]
    assert len(sums) == (uses > 1)


DEPENDENT = {
    "y, y²²": lambda x: [sg.square(x), sg.square(sg.square(sg.square(x)))],
    "their sum": lambda x: sg.square(x) + sg.square(sg.square(sg.square(x))),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_ys_in_form_of(name, graph, run):
    """TensorFlow issue 17502: x² + x⁸ at 3 is 6 + 8·3⁷ = 17502."""
    x = scalar()
    assert run(sg.gradients(DEPENDENT[name](x), x)[0], {x: 3.0}) == 17502.0


def test_ys_that_are_computed_from_each_other(graph, run):
    x = scalar()
    y = sg.square(x)
    y1 = sg.square(y)
    y2 = sg.square(y1)
    assert run(sg.gradients([y, y2], x)[0], {x: 3.0}) == 17502.0
    assert run(sg.gradients([y2, y], x)[0], {x: 3.0}) == 17502.0
    assert run(sg.gradients([sg.identity(y), sg.identity(y2)], x)[0], {x: 3.0}) == 17502.0


def test_three_dependent_ys_on_two_branches(graph, run):
    """x² + x⁴ + x⁸ at 3: 6 + 108 + 17496."""
    x = scalar()
    y0 = sg.square(x)
    y1, y2 = sg.square(y0), sg.square(y0)
    y3 = sg.square(y2)
    for ys in itertools.permutations([y0, y1, y3]):
        assert run(sg.gradients(list(ys), x)[0], {x: 3.0}) == 17610.0


def test_a_y_given_twice_counts_twice(graph, run):
    x = scalar()
    y = x * x
    assert run(sg.gradients([y, y], [x])[0], {x: 3.0}) == 12.0
    assert run(sg.gradients([y, y], [x], [1.0, 10.0])[0], {x: 3.0}) == 66.0


def test_an_x_given_twice_gets_its_gradient_twice(graph, run):
    x = scalar()
    assert run(sg.gradients(x * x, [x, x]), {x: 3.0}) == [6.0, 6.0]


def test_a_function_and_its_composition_with_itself(graph, run):
    """x² + 1 at 2: 4; composed with itself 2(x² + 1)·2x = 40."""
    f = lambda x: x * x + 1.0
    x = sg.placeholder(sg.float32, [1])
    assert run(sg.gradients(f(x), x)[0], {x: [2.0]}).tolist() == [4.0]
    assert run(sg.gradients(f(f(x)), x)[0], {x: [2.0]}).tolist() == [40.0]


def test_hessian_of_a_quadratic_form():
    random = np.random.default_rng(3)
    a, x, v = random.normal(size=(4, 4)), random.normal(size=4), random.normal(size=4)
    f = lambda x: sg.reduce_sum(x * sg.squeeze(a @ sg.reshape(x, [4, 1]), axis=1))
    assert np.allclose(sg.hessian(f)(x), a + a.T, rtol=1e-12)
    assert np.allclose(sg.hvp(f, (x,), (v,)), (a + a.T) @ v, rtol=1e-12)


def test_hessian_of_a_matrix_argument():
    """f = Σ x³ of a matrix: diagonal 6x, of shape [2, 3, 2, 3]."""
    x = np.arange(1.0, 7.0).reshape(2, 3)
    found = sg.hessian(lambda x: sg.reduce_sum(x * x * x))(x)
    assert found.shape == (2, 3, 2, 3)
    assert np.allclose(found.reshape(6, 6), np.diag(6 * x.reshape(-1)))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_and_booleans_have_no_gradient(dtype, graph):
    n, x = sg.placeholder(dtype, [2]), sg.placeholder(sg.float32, [2])
    y = sg.cast(n, sg.float32) * x
    dn, dx = sg.gradients(y, [n, x])
    assert dn is None
    assert dx is not None
    assert sg.gradients(n, [n]) == [None]
    assert sg.gradients([n, y], [x])[0] is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_have_the_type_of_x(dtype, graph):
    x, b = sg.placeholder(dtype, ["n", 3]), sg.placeholder(dtype, [3])
    dx, db = sg.gradients(sg.reduce_mean(sg.tanh(x + b)), [x, b])
    assert dx.type is x.type
    assert db.type is b.type


def test_mixed_precision_comes_back_in_each_operand_s_own(graph, run):
    x = sg.placeholder(sg.float16, [2])
    (dx,) = sg.gradients(sg.cast(x, sg.float64) ** 2.0, [x])
    assert dx.dtype is sg.float16
    assert run(dx, {x: [1.5, -2.0]}).tolist() == [3.0, -4.0]


# ------------------------------------------------------------------------------------------ TensorFlow C++


def test_products_in_a_chain(graph, run):
    """z = (u·v)·y = (2·3)·4 with dz = 5: dx = 20, dv = 40, whichever is asked for first."""
    u, v, y = (sg.placeholder(sg.float64, [1, 1]) for _ in range(3))
    x = u @ v
    feeds = {u: [[2]], v: [[3]], y: [[4]]}
    for xs, expected in (([v, x], [40.0, 20.0]), ([x, v], [20.0, 40.0])):
        assert [float(g[0, 0]) for g in run(sg.gradients(x @ y, xs, [[[5.0]]]), feeds)] == expected


X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
Y = np.array([[1.0], [2.0], [3.0]])
Z = np.array([[9.0, 10.0, 11.0]])


def test_an_edge_that_leads_nowhere_is_left_out(graph, run):
    x, y, z = (sg.constant(v) for v in (X, Y, Z))
    (dy,) = sg.gradients(x @ y, [y], [[[0.5], [0.5]]])
    assert run(dy).reshape(-1).tolist() == [2.5, 3.5, 4.5]
    assert sg.gradients(x @ y, [z], [[[0.5], [0.5]]]) == [None]


def test_two_ys_of_which_each_has_an_edge_that_leads_nowhere(graph, run):
    x, y, z = (sg.constant(v) for v in (X, Y, Z))
    g1, g2 = [[0.5], [0.5]], [[0.5, 0.5, 0.5], [0.6, 0.7, 0.8], [0.6, 0.7, 0.9]]
    (dy,) = sg.gradients([x @ y, y @ z], [y], [g1, g2])
    assert np.allclose(run(dy).reshape(-1), [17.5, 24.7, 26.8], rtol=1e-14)


def test_stack_and_unstack_hand_cotangents_through(graph, run):
    parts = [sg.placeholder(sg.float64, [4, 2]) for _ in range(3)]
    seeds = [np.full((4, 2), v) for v in (4.0, 5.0, 6.0)]
    found = sg.gradients(sg.unstack(sg.stack(parts)), parts, seeds)
    assert [g.tolist() for g in run(found, dict(zip(parts, seeds, strict=True)))] == [
        s.tolist() for s in seeds
    ]


def test_backpropagation_ends_at_an_intermediate_x(graph):
    """Only the gradient towards the stack is asked for: none is generated towards its parts."""
    parts = [sg.placeholder(sg.float64, [4, 2]) for _ in range(3)]
    stacked = sg.stack(parts)
    ys = sg.unstack(stacked)
    start = len(graph)
    sg.gradients(ys, [stacked])
    # What arrives at the stack is added up there; nothing else is made for it.
    assert {op.type for op in graph.operations[start:] if op.origin is stacked.op} <= {"AddN", "AddV2"}
    assert not [
        op
        for op in graph.operations[start:]
        if op.outputs[0].type is parts[0].type and op.type not in ("Fill", "Const")
    ]


def test_some_of_the_outputs_of_one_operation_as_xs(graph, run):
    c = sg.placeholder(sg.float64, [3, 4])
    outputs = sg.split(c, 3)
    ys = [sg.identity(v) for v in outputs]
    seeds = [np.full((1, 4), v) for v in (1.0, 2.0, 3.0)]
    found = run(sg.gradients(ys[1:], list(outputs[1:]), seeds[1:]), {c: np.zeros((3, 4))})
    assert [g[0, 0] for g in found] == [2.0, 3.0]
    found = run(sg.gradients(sg.concat(ys, 0), list(outputs), [np.concatenate(seeds)]), {c: np.zeros((3, 4))})
    assert [g[0, 0] for g in found] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("stops", EDGES)
def test_stops_on_some_edges_of_one_output(stops, graph, run):
    z = sg.constant(np.eye(2)) @ np.eye(2)
    outs = [sg.stop_gradient(sg.identity(z)) if stop else sg.identity(z) for stop in stops]
    seeds = [np.array(v, float).reshape(2, 2) for v in ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12])]
    (dz,) = sg.gradients(outs, [z], seeds)
    if all(stops):
        assert dz is None
    else:
        assert run(dz).tolist() == sum(s for s, stop in zip(seeds, stops, strict=True) if not stop).tolist()


@pytest.mark.parametrize("stops", EDGES)
def test_stops_on_some_outputs_of_one_operation(stops, graph, run):
    x = sg.placeholder(sg.float64, [3, 2, 4])
    outs = [sg.stop_gradient(y) if stop else y for y, stop in zip(sg.split(x, 3), stops, strict=True)]
    seeds = np.arange(1.0, 25.0).reshape(3, 1, 2, 4)
    (dx,) = sg.gradients(outs, [x], list(seeds))
    if all(stops):
        assert dx is None
    else:
        expected = seeds.reshape(3, 2, 4) * ~np.array(stops).reshape(3, 1, 1)
        assert run(dx, {x: np.ones((3, 2, 4))}).tolist() == expected.tolist()


# ----------------------------------------------------------------------------------------- TensorFlow Java


@pytest.fixture
def powers(graph):
    x = scalar("x")
    y0 = sg.square(x)
    return x, y0, sg.square(y0)


def test_gradients_as_an_object(powers, graph, run):
    x, y0, y1 = powers
    found = sg.Gradients.create(sg.Scope(graph), y1, [x, y0])
    assert len(found) == 2
    assert run([found.dy(0), found.dy(1)], {x: 3.0}) == [108.0, 18.0]
    assert list(found) == [found.dy(0), found.dy(1)]
    assert found.dy() is found.dy(0)


def test_gradients_of_several_ys_are_summed(powers, graph, run):
    x, y0, y1 = powers
    assert run(sg.Gradients.create(sg.Scope(graph), [y0, y1], [x]).dy(0), {x: 3.0}) == 114.0


def test_gradients_go_on_from_earlier_ones(powers, graph, run):
    x, y0, y1 = powers
    first = sg.Gradients.create(sg.Scope(graph), y1, [y0])
    second = sg.Gradients.create(sg.Scope(graph), y0, [x], list(first))
    assert run(second.dy(0), {x: 3.0}) == 108.0


def test_names_lie_below_scope_and_name(graph):
    scope = sg.Scope(graph).with_sub_scope("sub")
    with scope:
        x = scalar()
        y = sg.square(x)
    names = [
        sg.Gradients.create(s, y, [x]).dy(0).op.name for s in (scope, scope, scope.with_name("MyGradients"))
    ]
    assert [n.rpartition("/")[0] for n in names] == ["sub/gradients", "sub/gradients_1", "sub/MyGradients"]


def test_add_gradients_of_a_graph_takes_a_prefix(run):
    graph = sg.Graph()
    with graph.as_default():
        x = scalar()
        y = x * x
    (dx,) = graph.add_gradients(y, [x], prefix="back")
    assert dx.op.name.startswith("back/")
    assert run(dx, {x: 3.0}) == 6.0


# --------------------------------------------------------------------------------------------- PyTensor


def test_disconnected_beside_connected(graph):
    x, a, b = (sg.placeholder(sg.float64, [2, 2]) for _ in range(3))
    assert sg.gradients(sg.reduce_sum(sg.stop_gradient(x)), [x]) == [None]
    assert sg.gradients(sg.reduce_sum(x + sg.stop_gradient(x)), [x])[0] is not None
    y = sg.reduce_sum(a + sg.stop_gradient(b))
    da, db = sg.gradients(y, [a, b])
    assert da is not None
    assert db is None


def test_sizes_carry_no_gradient(graph, run):
    """A vector of n elements total/n sums to the total: the gradient is one."""
    x = sg.placeholder(sg.float64, ["n"])
    total = sg.reduce_sum(x)
    n = sg.size(x, sg.float64)
    (dx,) = sg.gradients(sg.reduce_sum(sg.broadcast_to(total / n, x.shape)), [x])
    assert np.allclose(run(dx, {x: [3.0, -1.0, 0.5]}), 1.0)


def test_gradients_piece_by_piece_equal_those_in_one_go(graph, run):
    """A network cut at its hidden layer; the cotangent of the later piece starts the earlier one."""
    random = np.random.default_rng(11)
    t, x = random.normal(size=(1, 2)), random.normal(size=(1, 3))
    w1, w2 = sg.placeholder(sg.float64, [3, 4]), sg.placeholder(sg.float64, [4, 2])
    a1 = sg.tanh(x @ w1)
    late = sg.reduce_sum((sg.tanh(a1 @ w2) - t) ** 2.0) + sg.reduce_sum(w2) ** 2.0
    early = sg.reduce_sum(w1) ** 2.0
    whole = sg.gradients(late + early, [w1, w2])
    dw2, da1 = sg.gradients(late, [w2, a1])
    (dw1,) = sg.gradients([early, a1], [w1], [None, da1])
    found = run([whole, [dw1, dw2]], {w1: random.normal(size=(3, 4)), w2: random.normal(size=(4, 2))})
    for one, other in zip(*found, strict=True):
        assert np.allclose(one, other, rtol=1e-12)


def test_the_hessian_of_a_quadratic_has_no_place_for_nan():
    """x² - y²: the second derivatives are constants, and NaN among the values stays out of them."""
    x = np.full(3, np.nan)
    f = lambda x, y: sg.reduce_sum(x**2.0 - y**2.0)
    found = sg.hvp(f, (x, x), (np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])))
    assert [v.tolist() for v in found] == [[2.0, 4.0, 6.0], [-6.0, -4.0, -2.0]]


def test_rosenbrock_s_hessian_times_a_direction():
    x, p = 0.1 * np.arange(9), 0.5 * np.arange(9)
    rosen = lambda x: sg.reduce_sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1.0 - x[:-1]) ** 2.0)
    # The Hessian is tridiagonal: 1200x² - 400x' + 2 (inner: + 200) on the diagonal, -400x beside it.
    diagonal = np.zeros(9)
    diagonal[:-1] = 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
    diagonal[1:] += 200
    beside = -400 * x[:-1]
    expected = diagonal * p
    expected[:-1] += beside * p[1:]
    expected[1:] += beside * p[:-1]
    assert np.allclose(sg.hvp(rosen, (x,), (p,)), expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------ what is given


def test_a_y_that_is_no_scalar_counts_with_its_sum(graph, run):
    x = sg.placeholder(sg.float64, [3])
    assert run(sg.gradients(x * x, [x])[0], {x: [1.0, 2.0, 3.0]}).tolist() == [2.0, 4.0, 6.0]


def test_grad_ys_may_be_numbers_arrays_outputs_or_none(graph, run):
    x = sg.placeholder(sg.float64, [2])
    s = sg.placeholder(sg.float64, [2])
    y = x * x
    found = sg.gradients([y, y, y, sg.reduce_sum(y)], [x], [None, np.array([1.0, 2.0]), s, 10.0])
    # 2x·(1 + [1, 2] + [5, 7] + 10) at x = [1, 1].
    assert run(found, {x: [1.0, 1.0], s: [5.0, 7.0]})[0].tolist() == [34.0, 40.0]


def test_a_cotangent_may_itself_depend_on_x(graph, run):
    """It is a value like any other, and is differentiated at the next order: x·2x, then 4x."""
    x = scalar()
    (dx,) = sg.gradients(x * x, [x], [x])
    assert run([dx, sg.gradients(dx, [x])[0]], {x: 3.0}) == [18.0, 12.0]


def test_structures_of_ys_and_xs(graph, run):
    a, b = scalar(), scalar()
    found = sg.gradients({"u": a * b, "v": [a]}, {"q": b, "p": [a]})
    assert run(found, {a: 3.0, b: 5.0}) == {"q": 3.0, "p": [6.0]}


def test_operations_stand_for_their_outputs(graph, run):
    x = scalar()
    y = x * x
    assert run(sg.gradients(y.op, [x.op])[0], {x: 3.0}) == 6.0


def test_no_xs_no_gradients(graph):
    x = scalar()
    assert sg.gradients(x * x, []) == []


def test_a_gradient_operation_remembers_its_forward_operation_and_line(graph, here):
    x = scalar()
    y, line = sg.tanh(x), here()
    start = len(graph)
    sg.gradients(sg.exp(y), [x])
    made = [op for op in graph.operations[start:] if op.origin is y.op]
    assert made
    assert all((op.location.file, op.location.line) == (__file__, line) for op in made)


def test_the_order_of_building_does_not_matter(graph, run):
    """Two equal functions, their parts built in different orders, have equal gradients."""
    x = scalar()
    a, b = sg.exp(x), sg.sin(x)
    one = a * b
    d, c = sg.sin(x), sg.exp(x)
    other = c * d
    first, second = run([sg.gradients(y, [x])[0] for y in (one, other)], {x: 0.5})
    assert first == second == pytest.approx(np.exp(0.5) * (np.sin(0.5) + np.cos(0.5)))


@pytest.mark.parametrize("order", range(1, 6))
def test_higher_orders_of_a_monomial(order, graph, run):
    """xⁿ's derivatives: n!/(n-k)!·x^(n-k)."""
    x = scalar(dtype=sg.float64)
    y = x * x * x * x * x
    for _ in range(order):
        (y,) = sg.gradients(y, [x])
    expected = np.prod(range(6 - order, 6)) * 2.0 ** (5 - order)
    assert np.isclose(run(y, {x: 2.0}), expected, rtol=1e-13)


def test_gradients_have_the_structure_of_xs(graph, run):
    b, w = sg.placeholder(sg.float64, name="b"), sg.placeholder(sg.float64, name="w")
    found = sg.gradients(w * w + 3 * b, {"w": w, "b": (b, None)})
    assert run([found["w"], found["b"][0]], {b: 1.0, w: 5.0}) == [10.0, 3.0]
    assert found["b"][1] is None
    assert isinstance(sg.gradients(w * w, (w, b)), tuple)
    assert sg.gradients(w * w, {"w": w, "b": b})["b"] is None
    assert len(sg.gradients(w * w, w)) == 1  # As TensorFlow has it.
    assert run(sg.Gradients.create(sg.Scope(graph), w * b, {"w": w, "b": b}).dy(0), {b: 1.0, w: 5.0}) == 5.0
