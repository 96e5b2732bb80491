"""A JAX primitive for a linear map that is applied and transposed by functions of ours.

``jax.custom_jvp`` has no rule for the reverse mode and ``jax.custom_vjp`` none for the forward mode. Tangents
made by this primitive have both: applied, it pushes tangents forward; transposed, it pulls cotangents back.
(``jax.custom_derivatives.linear_call`` does the same, but has no rule for ``vmap``, nor for a derivative with
respect to what the map depends on.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Kind = tuple[Sequence[Any], Any]
"""A shape and a dtype."""


class Linear:
    """A linear map from several arrays to several, which may depend on further arrays.

    Args:
        results: the shapes and dtypes of its results.
    """

    results: tuple[Kind, ...]

    def __init__(self, results: Sequence[Kind]) -> None:
        self.results = tuple(results)
        self._batched: dict[tuple[int, tuple[int | None, ...]], Batched] = {}

    def push(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The tangents of the results, from what the map depends on and the arguments' tangents."""
        raise NotImplementedError

    def pull(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of the arguments, from those of the results; None stands for zero in both."""
        raise NotImplementedError

    def batched(self, size: int, axes: tuple[int | None, ...]) -> Batched:
        """The map for a batch; the same object for the same batching, so that JAX's caches find it."""
        key = size, axes
        return self._batched.get(key) or self._batched.setdefault(key, Batched(self, size, axes))


class Batched(Linear):
    """A linear map for a batch.

    Args:
        inner: the map of one example.
        size: of the batch.
        axes: the batch axis of each array that the map depends on; None for one that all examples share. That
            of tangents and cotangents is always the first.
    """

    def __init__(self, inner: Linear, size: int, axes: tuple[int | None, ...]) -> None:
        super().__init__([((size, *shape), dtype) for shape, dtype in inner.results])
        self._inner, self._axes = inner, list(axes)

    def push(self, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        pushed: list[Any] = jax.vmap(self._inner.push, (self._axes, 0))(list(residuals), list(tangents))
        return pushed

    def pull(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        pulled: list[Any] = jax.vmap(self._inner.pull, (self._axes, 0))(list(residuals), list(cotangents))
        return pulled


def apply_linear(linear: Linear, residuals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Apply a linear map to tangents, in a way that JAX can differentiate, transpose and batch."""
    outputs: list[Any] = _LINEAR.bind(*residuals, *tangents, linear=linear, count=len(residuals))
    return outputs


def _push(*arrays: jax.Array, linear: Linear, count: int) -> list[Any]:
    return linear.push(arrays[:count], arrays[count:])


def _types(*types: jax.core.ShapedArray, linear: Linear, count: int) -> Sequence[Any]:
    if all(x == ShapedArray(x.shape, x.dtype, x.weak_type) for x in types):
        return [ShapedArray(shape, dtype) for shape, dtype in linear.results]
    # With several devices, only the computation says how the results are sharded.
    traced = jax.make_jaxpr(functools.partial(_push, linear=linear, count=count))(*types)
    return [x.strip_weak_type() for x in traced.out_avals]


def _is_zero(x: object) -> bool:
    return type(x) is ad.Zero


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, linear: Linear, count: int
) -> tuple[list[Any], list[Any]]:
    """The map is linear in its arguments; for the arrays it depends on, JAX differentiates ``push``."""
    residuals, moving = primals[:count], primals[count:]
    values = apply_linear(linear, residuals, moving)
    pushed = [ad.Zero(jax.typeof(y)) for y in values]
    if not all(map(_is_zero, tangents[count:])):
        pushed = apply_linear(linear, residuals, [ad.instantiate_zeros(t) for t in tangents[count:]])
    places = [i for i, t in enumerate(tangents[:count]) if not _is_zero(t)]
    if places:

        def pushed_at(*some: jax.Array) -> list[Any]:
            replaced = list(residuals)
            for i, x in zip(places, some, strict=True):
                replaced[i] = x
            return linear.push(replaced, moving)

        _, by_residuals = jax.jvp(pushed_at, [residuals[i] for i in places], [tangents[i] for i in places])
        pushed = [ad.add_tangents(a, b) for a, b in zip(pushed, by_residuals, strict=True)]
    return values, pushed


def _transpose(cotangents: Sequence[Any], *arrays: jax.Array, linear: Linear, count: int) -> list[Any]:
    targets = arrays[count:]
    if all(map(_is_zero, cotangents)):
        pulled: Sequence[Any] = [None] * len(targets)
    else:
        pulled = linear.pull(arrays[:count], [None if _is_zero(g) else g for g in cotangents])
    zeros = [ad.Zero(x.aval) if g is None else g for x, g in zip(targets, pulled, strict=True)]
    return [None] * count + zeros


def _batch(
    arrays: Sequence[Any], axes: Sequence[Any], *, linear: Linear, count: int
) -> tuple[list[Any], list[int]]:
    batch_axes = [axis if isinstance(axis, int) else None for axis in axes]
    size = next(x.shape[axis] for x, axis in zip(arrays, batch_axes, strict=True) if axis is not None)
    moving = [
        jnp.broadcast_to(x, (size, *jnp.shape(x))) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arrays[count:], batch_axes[count:], strict=True)
    ]
    outputs = apply_linear(linear.batched(size, tuple(batch_axes[:count])), arrays[:count], moving)
    return outputs, [0] * len(outputs)


_LINEAR = Primitive("stopgrad_linear")
_LINEAR.multiple_results = True
_LINEAR.def_impl(_push)
_LINEAR.def_abstract_eval(_types)
ad.primitive_jvps[_LINEAR] = _jvp
ad.primitive_transposes[_LINEAR] = _transpose
batching.primitive_batchers[_LINEAR] = _batch
mlir.register_lowering(_LINEAR, mlir.lower_fun(_push, multiple_results=True))
