"""The function style: transforms of plain functions, which compose and nest in any order."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
from tiers import some

import stopgrad as sg

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


# -------------------------------------------------------------------------------- stops, as in JAX's tests


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_stop_equals_a_second_argument(order):
    """sin(x)·cos(sg(x)) has at every order the derivatives of sin(x)·cos(y), y held."""
    f = lambda x: sg.sin(x) * sg.cos(sg.stop_gradient(x))
    f2 = lambda x, y: jnp.sin(x) * jnp.cos(y)
    for _ in range(order):
        f, f2 = sg.grad(f), jax.grad(f2)
    x = np.float64(3.14)
    assert np.isclose(f(x), f2(x, x), rtol=1e-13)


def test_a_stop_on_a_structure():
    assert sg.grad(lambda x: sg.stop_gradient({"foo": x})["foo"])(3.0) == 0.0


@pytest.mark.parametrize("leaf", [3, np.int32(3), np.array([1, 2]), True, "text", None])
def test_a_stop_leaves_integers_and_the_like_alone(leaf):
    f = lambda x: (sg.stop_gradient(leaf), x * 2.0)[1]
    assert sg.grad(f)(3.0) == 2.0
    assert np.array_equal(sg.stop_gradient(leaf), leaf)


def test_a_stop_in_forward_mode():
    value, tangent = sg.jvp(lambda x: x * sg.stop_gradient(x), (3.0,), (10.0,))
    assert (value, tangent) == (9.0, 30.0)
    assert sg.jvp(sg.stop_gradient, (3.0,), (10.0,)) == (3.0, 0.0)


def test_a_stop_between_matrices():
    """MLX's case: w @ (3·sg(2x)) of ones: 4·6 towards w, nothing towards x."""
    h = lambda w, x: w @ (3.0 * sg.stop_gradient(2.0 * x))
    ones = np.ones((4, 4))
    _, pullback = sg.vjp(h, ones, ones)
    dw, dx = pullback(ones)
    assert (dw == 24.0).all()
    assert (dx == 0.0).all()


# -------------------------------------------------------------------------------------- grad and arguments


def test_argnums():
    f = lambda a, b, c: a * a * b + c
    assert sg.grad(f)(3.0, 5.0, 7.0) == 30.0
    assert sg.grad(f, 1)(3.0, 5.0, 7.0) == 9.0
    assert sg.grad(f, -1)(3.0, 5.0, 7.0) == 1.0
    assert sg.grad(f, (0,))(3.0, 5.0, 7.0) == (30.0,)
    assert sg.grad(f, (2, 0))(3.0, 5.0, 7.0) == (1.0, 30.0)
    assert sg.grad(f, (-2, 0))(3.0, 5.0, 7.0) == (9.0, 30.0)


@pytest.mark.parametrize("argnums", [2, -3, (0, 5)])
def test_argnums_that_do_not_exist(argnums):
    with pytest.raises(sg.StopgradError, match="argnums"):
        sg.grad(lambda a, b: a * b, argnums)(1.0, 2.0)


def test_values_and_aux():
    f = lambda x, k=1.0: (x * x * k, {"twice": 2.0 * x, "note": "text", "n": 3})
    (value, aux), gradient = sg.value_and_grad(f, has_aux=True)(3.0, k=2.0)
    assert (value, gradient, aux["twice"], aux["note"], aux["n"]) == (18.0, 12.0, 6.0, "text", 3)
    gradient, aux = sg.grad(f, has_aux=True)(3.0)
    assert (gradient, aux["twice"]) == (6.0, 6.0)
    assert sg.value_and_grad(lambda x: x * x)(3.0) == (9.0, 6.0)


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Layer:
    w: object
    b: object
    name: str = "dense"


def test_structures_of_arguments_give_structures_of_gradients():
    params = {
        "layer": Layer(np.array([1.0, 2.0]), 3.0),
        "pair": Pair((np.float64(4.0),), [np.array(5.0)]),
        "n": 7,
        "none": None,
    }

    def loss(p):
        return sg.reduce_sum(p["layer"].w * p["layer"].b) + p["pair"].left[0] * p["pair"].right[0] * p["n"]

    g = sg.grad(loss)(params)
    assert type(g["layer"]) is Layer
    assert type(g["pair"]) is Pair
    assert g["layer"].w.tolist() == [3.0, 3.0]
    assert g["layer"].b == 3.0
    assert g["layer"].name is None
    assert (g["pair"].left, g["pair"].right) == ((35.0,), [28.0])
    assert g["n"] is None
    assert g["none"] is None


def test_integers_among_the_arguments_get_none():
    g = sg.grad(lambda p: p["x"] * sg.cast(p["n"], sg.float64))({"x": np.float64(2.0), "n": np.array(3)})
    assert g == {"x": 3.0, "n": None}


def test_unconnected_arguments_get_zeros_of_their_shape_or_none():
    x = {"a": np.ones((2, 3)), "b": np.ones(2)}
    zero = sg.grad(lambda x: sg.reduce_sum(x["b"]))(x)
    assert zero["a"].shape == (2, 3)
    assert not zero["a"].any()
    assert sg.grad(lambda x: sg.reduce_sum(x["b"]), unconnected="none")(x)["a"] is None


def test_a_constant_function():
    assert sg.grad(lambda x: sg.constant(3.0))(2.0) == 0.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradients_keep_the_dtype_of_their_argument(dtype):
    found = sg.grad(lambda x: sg.reduce_sum(x * 2.0))(np.ones(2, dtype))
    assert found.dtype == dtype


@pytest.mark.parametrize(
    ("f", "match"), [(lambda x: x, "scalar"), (lambda x: (x, x), "scalar"), (lambda x: sg.argmax(x), "real")]
)
def test_only_a_real_scalar_has_a_gradient(f, match):
    with pytest.raises(sg.StopgradError, match=match):
        sg.grad(f)(np.ones(3))


# ------------------------------------------------------------------------------ composing, against JAX

A = np.array([0.3, -0.7, 1.1])
T = np.array([1.0, 0.5, -2.0])


def scalar_function(m):
    return lambda x: m.exp(m.sin(x) * x) * x


def vector_function(m):
    total = sg.reduce_sum if m is sg else jnp.sum
    return lambda x: m.sin(x) * total(x * x) + m.exp(x)


def loss_function(m):
    total = sg.reduce_sum if m is sg else jnp.sum
    f = vector_function(m)
    return lambda x: total(f(x) * m.tanh(x))


def library(m):
    """The transforms of either library, under the same names."""
    if m is sg:
        return {
            "grad": sg.grad,
            "jvp": sg.jvp,
            "vjp": sg.vjp,
            "jacobian": sg.jacobian,
            "hessian": sg.hessian,
            "sum": sg.reduce_sum,
        }
    return {
        "grad": jax.grad,
        "jvp": jax.jvp,
        "vjp": jax.vjp,
        "jacobian": jax.jacrev,
        "hessian": jax.hessian,
        "sum": jnp.sum,
    }


COMPOSED = {
    "jvp of grad": lambda l, m: lambda x: l["jvp"](l["grad"](loss_function(m)), (x,), (T,))[1],
    "grad of jvp": lambda l, m: lambda x: l["grad"](lambda x: l["jvp"](loss_function(m), (x,), (T,))[1])(x),
    "jvp of jvp": lambda l, m: (
        lambda x: l["jvp"](lambda x: l["jvp"](vector_function(m), (x,), (T,))[1], (x,), (T,))[1]
    ),
    "vjp of jvp": lambda l, m: (
        lambda x: l["vjp"](lambda x: l["jvp"](vector_function(m), (x,), (T,))[1], x)[1](T)[0]
    ),
    "jvp of vjp": lambda l, m: (
        lambda x: l["jvp"](lambda x: l["vjp"](vector_function(m), x)[1](T)[0], (x,), (T,))[1]
    ),
    "vjp of vjp": lambda l, m: (
        lambda x: l["vjp"](lambda x: l["vjp"](vector_function(m), x)[1](T)[0], x)[1](T)[0]
    ),
    "jacobian": lambda l, m: l["jacobian"](vector_function(m)),
    "jacobian of jacobian": lambda l, m: l["jacobian"](l["jacobian"](vector_function(m))),
    "jacobian of grad": lambda l, m: l["jacobian"](l["grad"](loss_function(m))),
    "jacobian of jvp": lambda l, m: l["jacobian"](lambda x: l["jvp"](vector_function(m), (x,), (T,))[1]),
    "hessian": lambda l, m: l["hessian"](loss_function(m)),
    "grad of a norm of grad": lambda l, m: l["grad"](
        lambda x: l["sum"](l["grad"](loss_function(m))(x) ** 2.0)
    ),
    "grad of grad of grad": lambda l, m: l["grad"](
        lambda x: l["sum"](l["grad"](lambda x: l["sum"](l["grad"](loss_function(m))(x) * T))(x) * T)
    ),
    "a step of gradient descent, differentiated": lambda l, m: l["grad"](
        lambda x: loss_function(m)(x - 0.1 * l["grad"](loss_function(m))(x))
    ),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])
@pytest.mark.parametrize("name", some(COMPOSED, 3))
def test_composed_transforms_agree_with_jax(name, compiled):
    f = COMPOSED[name](library(sg), sg)
    if compiled:
        f = sg.function(f, engine="numpy")
    assert np.allclose(f(A), COMPOSED[name](library(jax), jnp)(A), rtol=1e-10)


@pytest.mark.parametrize("order", range(1, 6))
def test_nested_grads_agree_with_jax(order):
    f, g = scalar_function(sg), scalar_function(jnp)
    for _ in range(order):
        f, g = sg.grad(f), jax.grad(g)
    assert np.isclose(f(np.float64(0.7)), g(0.7), rtol=1e-9)


@pytest.mark.parametrize("kinds", ["fr", "rf", "ff", "rr", "frf", "rfr", "ffr"])
def test_forward_and_reverse_in_any_order(kinds):
    """Each of f and r is one more derivative of a scalar function."""

    def derivative(kind, f, l):
        return l["grad"](f) if kind == "r" else lambda x: l["jvp"](f, (x,), (np.float64(1.0),))[1]

    f, g = scalar_function(sg), scalar_function(jnp)
    for kind in kinds:
        f, g = derivative(kind, f, library(sg)), jax.grad(g)
    assert np.isclose(f(np.float64(0.7)), g(0.7), rtol=1e-10)


# ---------------------------------------------------------------------------------- perturbation confusion


CONFUSING = {
    # d/dx x·(d/dy (x + y)) = d/dx x·1 = 1.
    "x·d(x+y)": (lambda x: x * sg.grad(lambda y: x + y)(x), 3.0, 1.0),
    # d/dx x·(d/dy (x·y)) = d/dx x·x = 2x.
    "x·d(x·y)": (lambda x: x * sg.grad(lambda y: x * y)(x), 3.0, 6.0),
    # d/dx of (d/dy x·y² at y = x) = d/dx 2x² = 4x.
    "d(x·y²)": (lambda x: sg.grad(lambda y: x * y * y)(x), 3.0, 12.0),
    # The inner argument is a constant: d/dx x·2·2.
    "at a constant": (lambda x: x * sg.grad(lambda y: y * y)(2.0), 3.0, 4.0),
    # The inner function ignores its argument: 0.
    "without y": (lambda x: sg.grad(lambda y: x * x)(x), 3.0, 0.0),
    # The inner derivative is sg(y), a constant also outside: d/dx sg(x)·x = x.
    "stop inside": (lambda x: sg.grad(lambda y: sg.stop_gradient(y) * y)(x) * x, 3.0, 3.0),
    # Three levels, each of which sees all: d/dx x·d/dy y·d/dz (xyz) = d/dx x·d/dy (x·y²) = d/dx 2x³ = 6x².
    "three levels": (lambda x: x * sg.grad(lambda y: y * sg.grad(lambda z: x * y * z)(y))(x), 3.0, 54.0),
}


@pytest.mark.parametrize("name", CONFUSING)
def test_nested_variables_are_kept_apart(name):
    f, at, expected = CONFUSING[name]
    assert sg.grad(f)(at) == expected
    assert sg.jvp(f, (at,), (1.0,))[1] == expected
    assert sg.function(sg.grad(f), engine="numpy")(at) == expected


def test_nested_forward_variables_are_kept_apart():
    d = lambda f: lambda x: sg.jvp(f, (x,), (1.0,))[1]
    assert d(lambda x: x * d(lambda y: x + y)(1.0))(1.0) == 1.0
    assert d(lambda x: x * d(lambda y: x * y)(1.0))(3.0) == 6.0
    assert sg.grad(lambda x: x * d(lambda y: x * y)(1.0))(3.0) == 6.0
    assert d(lambda x: x * sg.grad(lambda y: x * y)(1.0))(3.0) == 6.0


def test_the_same_argument_twice_is_two_variables():
    f = lambda a, b: a * a * b
    assert sg.grad(lambda x: sg.grad(f)(x, x))(3.0) == 12.0
    assert sg.grad(lambda x: f(x, x))(3.0) == 27.0


def test_an_outer_variable_that_is_not_asked_for_is_a_constant(graph, run):
    x, c = sg.placeholder(sg.float64), sg.placeholder(sg.float64)
    d = sg.grad(lambda y: y * c)(x)
    assert run(d, {x: 3.0, c: 5.0}) == 5.0
    assert sg.gradients(d, [x]) == [None]
    assert run(sg.gradients(d, [c])[0], {x: 3.0, c: 5.0}) == 1.0


# --------------------------------------------------------------------------------------------- each transform


def test_a_pullback_can_be_called_again_and_again():
    value, pullback = sg.vjp(lambda x, y: (x * y, {"s": sg.sin(x)}), np.array([1.0, 2.0]), 3.0)
    assert value[0].tolist() == [3.0, 6.0]
    first = pullback((np.array([1.0, 0.0]), {"s": np.zeros(2)}))
    second = pullback((np.zeros(2), {"s": np.ones(2)}))
    assert [v.tolist() for v in first] == [[3.0, 0.0], 1.0]
    assert np.allclose(second[0], np.cos([1.0, 2.0]))
    assert second[1] == 0.0


def test_vjp_with_aux():
    value, pullback, aux = sg.vjp(lambda x: (x * x, x + 1.0), 3.0, has_aux=True)
    assert (value, pullback(1.0), aux) == (9.0, (6.0,), 4.0)


def test_a_pullback_takes_the_structure_of_the_value():
    _, pullback = sg.vjp(lambda x: (x, x), 3.0)
    with pytest.raises(sg.StopgradError, match="cotangents"):
        pullback(1.0)


def test_jvp_of_structures():
    f = lambda p, x: {"y": p["a"] * x, "z": p["b"]}
    value, tangent = sg.jvp(f, ({"a": 2.0, "b": 5.0}, 3.0), ({"a": 10.0, "b": 100.0}, 1.0))
    assert value == {"y": 6.0, "z": 5.0}
    assert tangent == {"y": 32.0, "z": 100.0}


def test_jvp_of_values_that_do_not_move():
    value, tangent = sg.jvp(lambda x: (x, sg.constant(1.0), sg.argmax(sg.stack([x, x]))), (3.0,), (1.0,))
    assert tangent[:2] == (1.0, 0.0)
    assert tangent[2] == 0
    assert value[1] == 1.0


@pytest.mark.parametrize(
    ("primals", "tangents"),
    [
        ((1.0,), (1.0, 2.0)),
        ((np.ones(2),), (np.ones(3),)),
        ((np.ones(2, np.float32),), (np.ones(2),)),
        (1.0, 1.0),
    ],
)
def test_jvp_wants_tangents_like_the_primals(primals, tangents):
    with pytest.raises(sg.StopgradError):
        sg.jvp(lambda *x: x[0], primals, tangents)


def test_jacobians_of_structures():
    f = lambda p: {"y": p["a"] * p["b"], "z": sg.reduce_sum(p["a"])}
    g = lambda p: {"y": p["a"] * p["b"], "z": jnp.sum(p["a"])}
    at = {"a": np.array([1.0, 2.0]), "b": np.float64(3.0)}
    found, expected = sg.jacobian(f)(at), jax.jacrev(g)(at)
    for y in "yz":
        for x in "ab":
            assert found[y][x].shape == expected[y][x].shape
            assert np.allclose(found[y][x], expected[y][x])


def test_jacobians_of_several_arguments_and_matrices():
    f = lambda a, b: a @ b
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    for found, expected in zip(
        sg.jacobian(f, (0, 1))(a, b), jax.jacrev(lambda a, b: a @ b, (0, 1))(a, b), strict=True
    ):
        assert found.shape == expected.shape
        assert np.allclose(found, expected)
    assert sg.jacobian(f, 1)(a, b).shape == (2, 4, 3, 4)


def test_jacobian_of_no_elements_and_of_disconnected_ones():
    assert sg.jacobian(lambda x: x[:0])(np.ones(3)).shape == (0, 3)
    assert not sg.jacobian(lambda x: sg.stop_gradient(x))(np.ones(3)).any()


def test_jacobian_with_aux():
    found, aux = sg.jacobian(lambda x: (x * x, "note"), has_aux=True)(np.array([1.0, 2.0]))
    assert found.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert aux == "note"


def test_hessians_of_structures():
    f = lambda m, total: lambda p: total(m.sin(p["a"]) * p["b"]) * p["b"]
    at = {"a": np.array([1.0, 2.0]), "b": np.float64(3.0)}
    found, expected = sg.hessian(f(sg, sg.reduce_sum))(at), jax.hessian(f(jnp, jnp.sum))(at)
    for y in "ab":
        for x in "ab":
            assert np.allclose(found[y][x], expected[y][x], rtol=1e-12)


def test_a_hessian_through_a_stop():
    """f = sg(x)ᵀ·x²: the gradient is 2·sg(x)·x, whose Jacobian is diag 2x."""
    found = sg.hessian(lambda x: sg.reduce_sum(sg.stop_gradient(x) * x * x))(np.array([1.0, 2.0]))
    assert found.tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_hvp_of_several_arguments():
    """f = a²b: H·(1, 10) = (2b·1 + 2a·10, 2a·1)."""
    assert sg.hvp(lambda a, b: a * a * b, (3.0, 5.0), (1.0, 10.0)) == (70.0, 6.0)


# -------------------------------------------------------------------------------------- in a graph, compiled


def test_transforms_build_in_the_graph_of_their_arguments(graph, run):
    x = sg.placeholder(sg.float64, [3])
    g = sg.grad(loss_function(sg))(x)
    assert g.graph is graph
    assert np.allclose(run(g, {x: A}), jax.grad(loss_function(jnp))(A), rtol=1e-12)


def test_compiled_functions_are_transparent(engine):
    inner = sg.function(lambda x: x * x * x, engine=engine)
    outer = sg.function(lambda x: sg.grad(inner)(x) * 2.0, engine=engine)
    assert outer(np.float64(3.0)) == 54.0
    assert sg.grad(outer)(np.float64(3.0)) == 36.0
    assert inner(np.float64(2.0)) == 8.0


def test_gates_in_compiled_functions(engine):
    f = sg.function(sg.value_and_grad(lambda x: sg.reduce_sum(sg.stop_gradient(x) * x)), engine=engine)
    value, gradient = f(np.array([1.0, 2.0]))
    assert value == 5.0
    assert np.asarray(gradient).tolist() == [1.0, 2.0]


def test_an_error_inside_leaves_the_callers_graph_as_it_was(graph):
    x = sg.placeholder(sg.float64)
    size = len(graph)

    def failing(y):
        sg.exp(y)
        raise KeyError("mine")

    for transform in (
        sg.grad(failing),
        sg.jacobian(failing),
        lambda x: sg.jvp(failing, (x,), (x,)),
        lambda x: sg.vjp(failing, x),
    ):
        with pytest.raises(KeyError, match="mine"):
            transform(x)
        assert len(graph) == size


def test_a_pullback_of_arrays_can_be_differentiated():
    """The pullback of x² at 3 is g ↦ 6g; its derivative is 6, whoever asks."""
    _, pullback = sg.vjp(lambda x: x * x, np.float64(3.0))
    assert sg.grad(lambda g: pullback(g)[0])(np.float64(2.0)) == 6.0
    assert sg.function(lambda g: pullback(g)[0])(np.float64(2.0)) == 12.0


@pytest.mark.parametrize("of_arrays", [False, True], ids=["in the graph", "of arrays"])
def test_a_pullback_can_be_used_in_the_body_of_a_loop(of_arrays):
    """u ← v + Jᵀu, five times: Σₖ₌₀⁵ (Jᵀ)ᵏ v, with a diagonal J."""
    f = lambda a, z: sg.tanh(z * a)
    a, z, v = np.array([0.3, 0.7]), np.array([0.4, -0.2]), np.array([1.0, 2.0])

    def neumann(a, z, v, pull=None):
        pull = pull or sg.vjp(f, a, z)[1]
        step = lambda i, u: (i + 1, v + pull(u)[1])
        return sg.while_loop(lambda i, u: i < 5, step, (0, v), maximum_iterations=5)[1]

    if of_arrays:
        pull = sg.vjp(f, a, z)[1]
        found = sg.function(lambda v: neumann(a, z, v, pull))(v)
    else:
        found = sg.function(neumann)(a, z, v)
    slope = a / np.cosh(z * a) ** 2
    np.testing.assert_allclose(found, v * sum(slope**k for k in range(6)), rtol=1e-12)
    if not of_arrays:
        gradient = sg.grad(lambda a: neumann(a, z, v).sum())(a)
        e = 1e-6
        for i in range(2):
            up, down = (neumann(a + s * e * np.eye(2)[i], z, v).sum() for s in (1, -1))
            np.testing.assert_allclose(gradient[i], (up - down) / (2 * e), rtol=1e-7)
