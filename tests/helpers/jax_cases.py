"""What the tests of loaded JAX functions share: a comparison with JAX of values and gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import stopgrad as sg
import stopgrad.jax as sgj

TOLERANCE = {"float32": 1e-5, "float64": 1e-10, "bfloat16": 4e-2, "float16": 4e-3}


def draw(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0, dtype: Any = np.float32) -> Any:
    """Numbers between two bounds."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def ints(*shape: int, seed: int = 0, low: int = 0, high: int = 10, dtype: Any = np.int32) -> Any:
    """Whole numbers."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def leaves(tree: Any) -> list[np.ndarray]:
    found = jax.tree_util.tree_leaves(tree)
    keys = [jnp.issubdtype(getattr(x, "dtype", np.float32), jax.dtypes.prng_key) for x in found]
    return [
        np.asarray(jax.random.key_data(x)) if key else np.asarray(x)
        for x, key in zip(found, keys, strict=True)
    ]


def assert_same(found: Any, expected: Any, what: str, factor: float = 1.0) -> None:
    """Floating-point numbers within the tolerance of their dtype, all else exactly."""
    ours, theirs = leaves(found), leaves(expected)
    assert len(ours) == len(theirs), what
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape, f"{what}: {a.shape} for {b.shape}"
        assert a.dtype == b.dtype, f"{what}: {a.dtype} for {b.dtype}"
        name = str(b.real.dtype)
        if name not in TOLERANCE:
            np.testing.assert_array_equal(a, b, err_msg=what)
            continue
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        scale = np.nanmax(np.abs(np.where(np.isfinite(b.astype(wide)), b.astype(wide), 0)), initial=1.0)
        tolerance = TOLERANCE[name] * factor
        np.testing.assert_allclose(
            a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance * scale, err_msg=what
        )


def _inexact(args: Any) -> list[int]:
    kinds = [getattr(x, "dtype", np.asarray(0.0 if isinstance(x, float) else 0).dtype) for x in args]
    return [i for i, kind in enumerate(kinds) if jnp.issubdtype(kind, np.floating)]


def weighed(f: Any, one: Any) -> Any:
    """A scalar of what a function returns: its numbers times fixed weights, in the namespace *one*."""

    def loss(*args: Any) -> Any:
        made = f(*args)
        parts = made if isinstance(made, (list, tuple)) else [made]
        total = None
        for y in parts:
            dtype = np.dtype(str(y.dtype.name if hasattr(y.dtype, "name") else y.dtype))
            if dtype.kind == "c":
                y, dtype = one.real(y) + 2.0 * one.imag(y), np.dtype(f"f{dtype.itemsize // 2}")
            if dtype.kind != "f" and dtype.name != "bfloat16":
                continue
            shape = tuple(int(n) for n in y.shape)
            weights = np.cos(np.arange(int(np.prod(shape)))).reshape(shape).astype(dtype)
            part = (one.sum if one is jnp else one.reduce_sum)(y * weights)
            total = part if total is None else total + part
        return total

    return loss


def theirs(f: Any, args: Any, order: int) -> list[Any]:
    """What JAX says: values, gradients, and gradients of gradients; fewer where there is nothing to say."""
    found = [f(*args)]
    wanted = _inexact(args)
    kinds = [jnp.result_type(y) for y in jax.tree_util.tree_leaves(found[0])]
    if wanted and any(jnp.issubdtype(kind, np.inexact) for kind in kinds):
        loss = weighed(f, jnp)
        for _ in range(order):
            gradient = jax.grad(loss, wanted)
            found.append(gradient(*args))
            loss = _gradient_of(gradient, jnp)
    return found


def assert_agrees(
    f: Any, args: Any, expected: list[Any], factor: float = 1.0, engine: str = "numpy"
) -> sg.Graph:
    """The loaded function has these values and gradients."""
    model = sgj.load(f, *args)
    assert_same(model(*args), expected[0], "values", factor)
    if engine != "numpy":
        assert_same(sg.function(model, engine=engine)(*args), expected[0], f"values on {engine}", factor)
    wanted, loss = _inexact(args), weighed(model, sg)
    for order, gradients in enumerate(expected[1:], 1):
        gradient = sg.grad(loss, wanted)
        what = f"gradients of order {order}"
        assert_same(gradient(*args), gradients, what, (4, 40)[order - 1] * factor)
        loss = _gradient_of(gradient, sg)
    return model.graph


def assert_round_trip(
    f: Any, *args: Any, order: int = 2, factor: float = 1.0, engine: str = "numpy"
) -> sg.Graph:
    """The loaded function has JAX's values and gradients."""
    expected = jax.jit(lambda args: theirs(f, args, order))(args)
    return assert_agrees(f, args, expected, factor, engine)


class Group:
    """Cases by name: a function and its arguments. JAX compiles them together, which is much faster.

    Args:
        cases: these.
        factor: how much larger the tolerance is.
        orders: of gradients that are compared, where not two; by name.
    """

    def __init__(self, cases: Any, factor: float = 1.0, orders: Any = ()) -> None:
        self.cases = cases
        self.factor = factor
        self.orders = dict(orders)
        self._expected: dict[int, Any] = {}

    def expected(self, order: int) -> Any:
        if order not in self._expected:
            given = {name: tuple(args) for name, (_, *args) in self.cases.items()}

            def everything(given: Any) -> Any:
                return {
                    name: theirs(f, given[name], min(order, self.orders.get(name, 2)))
                    for name, (f, *_) in self.cases.items()
                }

            self._expected[order] = jax.jit(everything)(given)
        return self._expected[order]

    def check(self, name: str, order: int) -> None:
        f, *args = self.cases[name]
        assert_agrees(f, args, self.expected(order)[name], self.factor)


def _gradient_of(gradient: Any, one: Any) -> Any:
    """A scalar of gradients."""
    return weighed(lambda *args: list(gradient(*args)), one)
