"""vmap: axes, structures, nesting, gates, keys, custom gradients, names and lines."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
Y = RNG.normal(size=(5, 3))


@pytest.fixture(autouse=True)
def wide() -> Any:
    with jax.enable_x64(True):
        yield


def close(found: Any, expected: Any) -> None:
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


# --------------------------------------------------------------------------------------- axes and structures


@pytest.mark.parametrize("in_axes", [0, 1, -1, (0, 0), (1, None), (None, -2), [0, 1]])
@pytest.mark.parametrize("out_axes", [0, 1, -1])
def test_axes_are_those_of_jax(in_axes: Any, out_axes: int) -> None:
    a, b = RNG.normal(size=(3, 3)), RNG.normal(size=(3, 3))
    f = lambda x, y: x * y[::-1] + y
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    close(sg.vmap(f, in_axes, out_axes)(a, b), jax.vmap(f, axes, out_axes)(a, b))


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


def test_structures_in_and_out() -> None:
    arguments = {"x": X, "pair": (X * 2.0, [X[0]])}

    def f(tree: Any, scale: Any) -> Any:
        return {"sum": tree["x"] + tree["pair"][0] * scale, "same": tree["pair"][1][0]}, (scale,)

    axes = ({"x": 0, "pair": (0, None)}, None)
    out = ({"sum": 1, "same": None}, (None,))
    close(sg.vmap(f, axes, out)(arguments, 2.0), jax.vmap(f, axes, out)(arguments, 2.0))


def test_dataclasses_and_keywords() -> None:
    found = sg.vmap(lambda layer, x: Layer(layer.w * x, layer.b))(Layer(X, X[:, 0]), x=X)
    close(found.w, X * X)
    close(found.b, X[:, 0])


def test_what_does_not_differ_is_repeated_on_the_way_out() -> None:
    found = sg.vmap(lambda x: (x, np.array([1.0, 2.0]), 7.0, "note"))(X)
    assert found[1].shape == (4, 2)
    np.testing.assert_array_equal(found[2], np.full(4, 7.0, np.float32))
    assert found[3] == "note"


def test_what_is_no_tensor_is_handed_on() -> None:
    found = sg.vmap(lambda x, mode, n: x * n if mode == "times" else x, in_axes=(0, None, None))(
        X, "times", 3
    )
    close(found, X * 3)


@each_engine
def test_in_functions_and_graphs(engine: str) -> None:
    f = sg.vmap(lambda x, w: sg.tanh(x @ w), in_axes=(0, None))
    w = RNG.normal(size=(3, 2))
    close(sg.function(f, engine=engine)(X, w), np.tanh(X @ w))
    graph = sg.Graph()
    with graph.as_default():
        x, v = sg.placeholder(sg.float64, [None, 3]), sg.parameter(w)
        y = sg.vmap(lambda row: sg.tanh(row @ v))(x)
        (dv,) = sg.gradients(y, [v])
    with sg.Session(graph, engine=engine) as session:
        for n in (4, 1):
            value, gradient = session.run([y, dv], {x: X[:n]})
            close(value, np.tanh(X[:n] @ w))
            close(gradient, jax.grad(lambda w, n=n: jnp.tanh(X[:n] @ w).sum())(w))


def test_a_mapped_function_of_no_examples() -> None:
    assert sg.vmap(lambda x: sg.sin(x) @ x)(X[:0]).shape == (0,)


# ----------------------------------------------------------------------------------------------- nesting


def similarity(lib: Any) -> Any:
    return lambda x, y: (
        lib.exp(-((x - y) * (x - y)).sum()) if lib is jnp else sg.exp(-sg.reduce_sum((x - y) * (x - y)))
    )


def test_vmap_of_vmap() -> None:
    for order in (((None, 0), (0, None)), ((0, None), (None, 0))):
        ours = sg.vmap(sg.vmap(similarity(sg), order[0]), order[1])(X, Y)
        close(ours, jax.vmap(jax.vmap(similarity(jnp), order[0]), order[1])(X, Y))


TRANSFORMS = {
    "vmap of grad": lambda l, f: l["vmap"](l["grad"](f), (0, None))(X, Y[0]),
    "grad of vmap": lambda l, f: l["grad"](lambda x: l["sum"](l["vmap"](f, (0, None))(x, Y[0])))(X),
    "jvp of vmap": lambda l, f: l["jvp"](lambda x: l["vmap"](f, (0, None))(x, Y[0]), (X,), (X * 0.5,)),
    "vmap of jvp": lambda l, f: l["vmap"](lambda x: l["jvp"](lambda v: f(v, Y[0]), (x,), (x * 0.5,)))(X),
    "jacobian of vmap": lambda l, f: l["jacobian"](lambda x: l["vmap"](f, (0, None))(x, Y[0]))(X),
    "vmap of jacobian": lambda l, f: l["vmap"](l["jacobian"](lambda x: l["vmap"](f, (None, 0))(x, Y)))(X),
    "vmap of hessian": lambda l, f: l["vmap"](l["hessian"](f), (0, None))(X, Y[0]),
    "grad of vmap of grad": lambda l, f: l["grad"](
        lambda y: l["sum"](l["vmap"](l["grad"](f), (0, None))(X, y))
    )(Y[0]),
    "vmap of vmap of grad": lambda l, f: l["vmap"](l["vmap"](l["grad"](f), (None, 0)), (0, None))(X, Y),
}
OURS = {
    "vmap": sg.vmap,
    "grad": sg.grad,
    "jvp": sg.jvp,
    "jacobian": sg.jacobian,
    "hessian": sg.hessian,
    "sum": sg.reduce_sum,
}
THEIRS = {
    "vmap": jax.vmap,
    "grad": jax.grad,
    "jvp": jax.jvp,
    "jacobian": jax.jacrev,
    "hessian": jax.hessian,
    "sum": jnp.sum,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_nested_transforms_are_those_of_jax(name: str) -> None:
    transform = TRANSFORMS[name]
    expected = transform(THEIRS, similarity(jnp))
    close(transform(OURS, similarity(sg)), expected)
    close(sg.function(lambda: transform(OURS, similarity(sg)), engine="xla")(), expected)


def mlp(lib: Any, params: Any, x: Any, label: Any) -> Any:
    for w, b in params[:-1]:
        x = lib.tanh(x @ w + b)
    w, b = params[-1]
    d = x @ w + b - label
    return lib.sum(d * d) if lib is jnp else sg.reduce_sum(d * d)


def parameters(*sizes: int) -> Any:
    return [(RNG.normal(size=(m, n)) / np.sqrt(m), RNG.normal(size=n)) for m, n in itertools.pairwise(sizes)]


@each_engine
def test_gradients_per_example_of_a_network(engine: str) -> None:
    params, labels = parameters(3, 8, 6, 2), RNG.normal(size=(4, 2))
    ours = sg.vmap(sg.grad(lambda p, x, t: mlp(sg, p, x, t)), (None, 0, 0))
    theirs = jax.vmap(jax.grad(lambda p, x, t: mlp(jnp, p, x, t)), (None, 0, 0))
    close(sg.function(ours, engine=engine)(params, X, labels), theirs(params, X, labels))


# ----------------------------------------------------------------------------------------- gates and names


def test_a_stop_hides_what_it_hides_for_each_example() -> None:
    f = lambda x: sg.reduce_sum(x * sg.stop_gradient(x))
    close(sg.vmap(sg.grad(f))(X), X)
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(f)(x)))(X), X)


def test_nothing_is_generated_behind_a_stop() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [4, 3])
        y = sg.vmap(lambda row: sg.stop_gradient(sg.exp(row)) * row)(x)
        (dx,) = sg.gradients(y, [x])
        assert sg.gradients(sg.vmap(lambda row: sg.stop_gradient(row))(x), [x]) == [None]
    made_for = {op.origin.type for op in graph.subgraph_to([dx]) if op.origin is not None}
    assert "Exp" not in made_for
    assert sg.explain(y, [x])[x].status == "partly stopped"


@pytest.mark.parametrize("axis", [0, 1])
def test_a_stop_with_respect_to_the_mapped_tensor(axis: int) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x, w = sg.placeholder(sg.float64, [3, 3]), sg.placeholder(sg.float64, [3])
        y = sg.vmap(lambda row: sg.stop_gradient(row * w, wrt=[row]), in_axes=axis)(x)
        dx, dw = sg.gradients(y, [x, w])
    assert dx is None
    assert dw is not None


def test_a_switched_stop_has_a_switch_for_each_example() -> None:
    off = np.array([True, False, True, False])
    f = lambda x, when: sg.reduce_sum(sg.stop_gradient(x * x, when=when))
    expected = np.where(off[:, None], 0.0, 2 * X)
    close(sg.vmap(sg.grad(f))(X, off), expected)
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(f)(x, off)))(X), expected)


def test_norms_are_clipped_example_by_example() -> None:
    f = lambda x: sg.reduce_sum(sg.clip_gradient_norm(x, 1.0) * x * 5.0)
    expected = np.stack([sg.grad(f)(x) for x in X])
    close(sg.vmap(sg.grad(f))(X), expected)
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(f)(x)))(X), expected)
    nested = sg.vmap(sg.vmap(f))(np.stack([X, X]))
    assert nested.shape == (2, 4)
    close(
        sg.grad(lambda x: sg.reduce_sum(sg.vmap(sg.vmap(f))(x)))(np.stack([X, X])), np.stack([expected] * 2)
    )


def test_settings_of_gates_may_differ_from_example_to_example() -> None:
    s = np.array([0.0, 1.0, -2.0, 3.0])
    f = lambda x, s: sg.reduce_sum(sg.scale_gradient(x, s))
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(f)(x, s)))(X), np.repeat(s[:, None], 3, 1))
    clip = lambda x, low: sg.reduce_sum(sg.clip_gradient(x, low, 1.0) * -2.0)
    low = np.array([-3.0, -1.0, -0.5, 0.5])
    expected = np.repeat(np.maximum(low, -2.0)[:, None], 3, 1)
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(clip)(x, low)))(X), expected)
    with pytest.raises(sg.ShapeError, match=r"ScaleGradient: \(C2\) takes a scalar"):
        sg.scale_gradient(X, s)


def test_a_prevented_gradient_stays_prevented() -> None:
    with pytest.raises(sg.GradientError, match="use the other loss"):
        sg.grad(lambda x: sg.reduce_sum(sg.vmap(lambda r: sg.prevent_gradient(r, "use the other loss"))(x)))(
            X
        )


def test_a_probe_names_the_gradient_of_all_examples() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [4, 3], name="x")
        y = sg.vmap(lambda row: sg.reduce_sum(sg.square(sg.probe(3.0 * row, "hidden"))))(x)
        dx = sg.gradients(y, [x])
    with sg.Session(graph) as session:
        close(session.run("hidden/gradient", {x: X}), 6.0 * X)
        assert dx[0] is not None


def test_operations_keep_their_names_and_lines() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [4, 3])

        def f(row: Any) -> Any:
            with sg.name_scope("inside"):
                a = sg.exp(row, name="first")
                b = sg.sin(a)
            return a * b

        with sg.name_scope("outer"):
            y = sg.vmap(f)(x)
            dx = sg.vmap(sg.grad(lambda row: sg.reduce_sum(sg.cosh(row))))(x)
    first = graph.operation_or_raise("outer/inside/first")
    assert first.type == "Exp"
    assert first.location is not None
    assert first.location.file == __file__
    assert first.location.line == f.__code__.co_firstlineno + 2
    assert graph.operation("outer/inside/Sin") is not None
    assert y.op.location is not None
    assert y.op.location.line == f.__code__.co_firstlineno + 4
    assert dx.op.origin is not None
    assert dx.op.origin.type == "Cosh"
    assert dx.op.location is not None
    assert dx.op.location.line == y.op.location.line + 4


def test_inside_no_gradient_all_of_it_is_hidden() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [4, 3])
        with sg.no_gradient():
            y = sg.vmap(lambda row: row * 2.0)(x)

        def f(row: Any) -> Any:
            with sg.no_gradient():
                target = sg.exp(row)
            return row * target

        z = sg.vmap(f)(x)
        assert sg.gradients(y + 1.0, [x]) == [None]
        (dz,) = sg.gradients(z, [x])
    with sg.Session(graph) as session:
        close(session.run(dz, {x: X}), np.exp(X))


# --------------------------------------------------------------------------------------------------- keys

DRAWS = {
    "uniform": lambda k: sg.random_uniform([2, 3], k),
    "normal": lambda k: sg.random_normal([3], k, dtype="float64"),
    "bits": lambda k: sg.random_bits([], k),
    "split": lambda k: sg.random_split(k, 3),
    "fold_in": lambda k: sg.random_fold_in(k, 5),
    "permutation": lambda k: sg.random_permutation(np.arange(6), k),
    "categorical": lambda k: sg.random_categorical(np.log(np.array([0.2, 0.3, 0.5])), 4, k),
    "bernoulli": lambda k: sg.random_bernoulli([5], k, 0.3),
    "split and drawn": lambda k: sg.vmap(lambda j: sg.random_uniform([2], j))(sg.random_split(k, 3)),
}


@pytest.mark.parametrize("name", DRAWS)
@each_engine
def test_each_key_gives_what_it_gives_alone(name: str, engine: str) -> None:
    keys = sg.random_split(sg.random_key(3), 4)
    found = np.asarray(sg.function(sg.vmap(DRAWS[name]), engine=engine)(keys))
    expected = np.stack([sg.function(DRAWS[name], engine=engine)(k) for k in keys])
    np.testing.assert_array_equal(found, expected)


def test_keys_of_examples_of_examples() -> None:
    keys = sg.random_split(sg.random_key(3), 6).reshape(2, 3, 2)
    found = sg.vmap(sg.vmap(lambda k: sg.random_uniform([4], k)))(keys)
    expected = jax.vmap(jax.vmap(lambda k: jax.random.uniform(k, (4,), np.float32)))(keys)
    np.testing.assert_array_equal(found, expected)


def test_a_number_of_each_example_is_folded_into_one_key() -> None:
    key = sg.random_key(1)
    found = sg.vmap(lambda i: sg.random_fold_in(key, i))(np.arange(4, dtype=np.int32))
    np.testing.assert_array_equal(found, np.stack([sg.random_fold_in(key, i) for i in range(4)]))


def test_one_key_draws_the_same_for_all() -> None:
    found = sg.vmap(lambda x: x + sg.random_normal([3], sg.random_key(0), dtype="float64"))(X)
    close(found, X + sg.random_normal([3], sg.random_key(0), dtype="float64"))


# ------------------------------------------------------------------------------------------ custom gradients


@sg.custom_gradient
def tripled(x: Any, w: Any) -> Any:
    """x · w, with a gradient three times too large with respect to x, and 7 x with respect to w."""
    y = x * w
    return y, lambda g: (g * w * 3.0, g * x * 7.0)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_a_custom_gradient_holds_for_each_example(axes: Any) -> None:
    x, w = X[:, 0] if axes[0] == 0 else X[0, 0], X[:, 1] if axes[1] == 0 else X[0, 1]
    f = sg.vmap(tripled, axes)
    dx, dw = sg.grad(lambda x, w: sg.reduce_sum(f(x, w)), (0, 1))(x, w)
    rows = [
        sg.grad(tripled, (0, 1))(x[i] if axes[0] == 0 else x, w[i] if axes[1] == 0 else w) for i in range(4)
    ]
    each_x, each_w = (np.stack(column) for column in zip(*rows, strict=True))
    close(dx, each_x if axes[0] == 0 else each_x.sum())
    close(dw, each_w if axes[1] == 0 else each_w.sum())
    close(sg.vmap(sg.grad(tripled, (0, 1)), axes)(x, w), (each_x, each_w))


def test_a_constant_custom_gradient_counts_once_for_each_example() -> None:
    constant = sg.custom_gradient(lambda w, x: (w * x, lambda g: (np.array(2.0), None)))
    found = sg.grad(lambda w: sg.reduce_sum(sg.vmap(constant, (None, 0))(w, X[:, 0])))(np.float64(1.5))
    assert float(found) == 8.0


def test_a_custom_gradient_may_use_what_differs() -> None:
    def f(x: Any, scale: Any) -> Any:
        return sg.custom_gradient(lambda v: (sg.reduce_sum(v * v), lambda g: g * v * scale))(x)

    scale = np.array([1.0, 2.0, 3.0, 4.0])
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(f)(x, scale)))(X), X * scale[:, None])
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(f, (None, 0))(x, scale)))(X[0]), X[0] * scale.sum())


def test_a_custom_gradient_that_broadcasts_is_fitted_for_each_example() -> None:
    wide = sg.custom_gradient(lambda v: (sg.reduce_sum(v), lambda g: sg.ones([2, 3], "float64") * g))
    close(sg.vmap(sg.grad(wide))(X), np.full((4, 3), 2.0))
    close(sg.grad(lambda x: sg.reduce_sum(sg.vmap(wide)(x)))(X), np.full((4, 3), 2.0))


def test_gradients_of_one_convolution_for_each_cotangent() -> None:
    random = np.random.default_rng(0)
    x, w, many = (random.normal(size=shape) for shape in ((2, 5, 4, 3), (2, 3, 3, 4), (3, 2, 4, 2, 4)))

    def gradients(g: Any) -> Any:
        return sg.grad(lambda x, w: sg.reduce_sum(sg.conv2d(x, w, 1, "VALID") * g), argnums=(0, 1))(x, w)

    for found, *each in zip(sg.vmap(gradients)(many), *map(gradients, many), strict=True):
        close(found, np.stack(each))


# ------------------------------------------------------------------------------------------------- saved


def test_what_was_batched_is_saved_and_loaded() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [4, 3], name="x")
        y = sg.vmap(
            lambda r: (
                sg.clip_gradient_norm(r, 1.0) @ r + sg.random_normal([], sg.random_key(0), dtype="float64")
            )
        )(x)
        sg.identity(sg.gradients(y, [x])[0], name="dx")
        keys = sg.placeholder(sg.uint32, [4, 2], name="keys")
        sg.identity(sg.vmap(lambda k: sg.random_uniform([2], k))(keys), name="drawn")
    text = graph.to_text()
    again = sg.Graph.from_text(text)
    assert again.to_text() == text
    feeds = {"x": X, "keys": np.asarray(sg.random_split(sg.random_key(1), 4))}
    values = []
    for one in (graph, again):
        with sg.Session(one) as session:
            given = {one.output(name): value for name, value in feeds.items()}
            values.append(session.run(["dx", "drawn"], given))
    close(*values)
