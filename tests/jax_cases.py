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
    return [i for i, x in enumerate(args) if np.issubdtype(np.asarray(x).dtype, np.floating)]


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


def assert_round_trip(
    f: Any, *args: Any, order: int = 2, factor: float = 1.0, engine: str = "numpy"
) -> sg.Graph:
    """The loaded function has JAX's values and gradients."""
    model = sgj.load(f, *args)
    expected = jax.jit(f)(*args)
    assert_same(model(*args), expected, "values", factor)
    if engine != "numpy":
        assert_same(sg.function(model, engine=engine)(*args), expected, f"values on {engine}", factor)
    wanted = _inexact(args)
    if not wanted or not order or not any(x.dtype.kind in "fc" for x in leaves(expected)):
        return model.graph
    theirs, ours = weighed(f, jnp), weighed(model, sg)
    assert_same(sg.grad(ours, wanted)(*args), jax.grad(theirs, wanted)(*args), "gradients", 4 * factor)
    if order > 1:
        twice = [_gradient_of(jax.grad(theirs, wanted), jnp), _gradient_of(sg.grad(ours, wanted), sg)]
        assert_same(
            sg.grad(twice[1], wanted)(*args), jax.grad(twice[0], wanted)(*args), "second order", 40 * factor
        )
    return model.graph


def _gradient_of(gradient: Any, one: Any) -> Any:
    """A scalar of gradients."""
    return weighed(lambda *args: list(gradient(*args)), one)
