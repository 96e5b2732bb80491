"""JAX's own gradients of a traced function, and how large they are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import partial_eval

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.asked import label
from stopgrad.flow.magnitudes.magnitude import Magnitude, Measured
from stopgrad.interop.jax.avals import is_key
from stopgrad.interop.jax.tracing import Program
from stopgrad.interop.shared.returned_losses import losses_in

AGREES = 1e-2
"""Norms that differ by less than this share of the larger one are those of one gradient."""


def is_float(x: Any) -> bool:
    """Whether a value may hold a NaN or infinity, and have a gradient."""
    return hasattr(x, "dtype") and bool(jnp.issubdtype(x.dtype, jnp.inexact))


def differentiated(
    closed: jex.ClosedJaxpr, arrays: Sequence[Any], wrt: Sequence[int], losses: Sequence[bool] | None = None
) -> jex.ClosedJaxpr:
    """The jaxpr of a program's results, and of the gradient of the sum of the losses among them.

    Args:
        closed: the program.
        arrays: what it is called with.
        wrt: the positions of the inputs of the gradient.
        losses: which of the results are differentiated; all unless given.
    """
    function = jex.jaxpr_as_fun(closed)
    chosen = losses or [True] * len(closed.out_avals)
    smooth = [j for j, y in enumerate(closed.out_avals) if chosen[j] and is_float(y)]

    def both(*xs: Any) -> list[Any]:
        def losses_at(*inputs: Any) -> tuple[list[Any], Any]:
            filled = list(xs)
            for i, x in zip(wrt, inputs, strict=True):
                filled[i] = x
            results = function(*filled)
            return [results[j] for j in smooth], results

        if not wrt or not smooth:
            return [*function(*xs)]
        _, pull, results = jax.vjp(losses_at, *[xs[i] for i in wrt], has_aux=True)
        return [*results, *pull([jnp.ones_like(results[j]) for j in smooth])]

    return jax.make_jaxpr(both)(*arrays)


def losses_of(what: str, program: Program, has_aux: bool | None = None) -> list[bool]:
    """Which of a program's results are differentiated.

    Args:
        what: names the caller in errors.
        program: a function as JAX traced it.
        has_aux: whether only the first of what it returns is, as in ``jax.grad``; None to find out.

    Raises:
        ArgumentError: it is to return a pair, and does not.
    """
    types = [jax.ShapeDtypeStruct(y.shape, y.dtype) for y in program.closed.out_avals]
    if has_aux is False:
        return [True] * len(types)
    returned = program.rebuild(types)
    if has_aux is None:
        part = losses_in(returned)
    elif isinstance(returned, (tuple, list)) and returned:
        part = returned[0]
    else:
        raise ArgumentError(
            f"{what}: with has_aux=True a function returns a pair, of the loss and anything; "
            f"{program.name} does not"
        )
    loss_ids = set(map(id, jax.tree_util.tree_leaves(part)))
    chosen = [id(y) in loss_ids for y in types]
    return chosen if any(map(is_float, itertools.compress(types, chosen))) else [True] * len(types)


def of_results(closed: jex.ClosedJaxpr, chosen: Sequence[bool]) -> jex.ClosedJaxpr:
    """The jaxpr of some of a program's results, of all its inputs."""
    if all(chosen):
        return closed
    lean, _ = partial_eval.dce_jaxpr(closed.jaxpr, list(chosen), True)
    return jex.ClosedJaxpr(lean, closed.consts)


def array_for(x: Any, aval: Any) -> Any:
    """An argument as an array of the type that it was traced with."""
    return x if isinstance(x, jax.Array) or is_key(aval) else jnp.asarray(x, aval.dtype)


class Gradients:
    """Measures JAX's own gradients, in a program that JAX compiles once.

    Args:
        closed: the function, as JAX traced it.
        asked: the positions of the inputs that are asked about, by name.
    """

    def __init__(self, closed: jex.ClosedJaxpr, asked: Mapping[str, int]) -> None:
        avals = closed.in_avals
        self._asked = {label(key): i for key, i in asked.items() if is_float(avals[i])}
        self._closed, self._run = closed, jax.jit(self._measured)

    def _measured(self, *arrays: Any) -> list[tuple[Any, ...]]:
        wrt = list(self._asked.values())
        if not any(map(is_float, self._closed.out_avals)):
            return []
        whole = differentiated(self._closed, arrays, wrt)
        results = jex.jaxpr_as_fun(whole)(*arrays)
        gradients = results[len(self._closed.out_avals) :]
        return [_statistics(g, arrays[i]) for g, i in zip(gradients, wrt, strict=True)]

    def __call__(self, measured: Measured, values: Sequence[Any]) -> Measured:
        """What a graph of ours measured, with JAX's gradients at what is asked about.

        What the graph measured on the way there is kept only if it arrives at the same gradients.
        """
        arrays = [array_for(x, aval) for x, aval in zip(values, self._closed.in_avals, strict=True)]
        by_name = dict(zip(self._asked, self._run(*arrays), strict=False))
        own = {
            name: _magnitude(by_name[name], magnitude)
            for name, magnitude in measured.of.items()
            if name in by_name
        }
        agree = all(_agree(own[name], measured.of[name]) for name in own)
        norms = dict(measured.at) if agree else {y: measured.at[y] for y in measured.ys if y in measured.at}
        norms |= {measured.xs[name]: magnitude.norm for name, magnitude in own.items()}
        return replace(measured, of={**measured.of, **own}, at=norms)


def _statistics(g: Any, x: Any) -> tuple[Any, ...]:
    return (*_norm(g), jnp.sum(g == 0), jnp.sum(jnp.isnan(g)), jnp.sum(jnp.isinf(g)), *_norm(x))


def _norm(x: Any) -> tuple[Any, Any]:
    """A scale, and the sum of the squares of what is left of an array, divided by it."""
    size = jnp.abs(x)
    size = size.astype(jnp.promote_types(size.dtype, jnp.float32))
    largest = jnp.max(size, initial=0.0)
    scale = jnp.where(largest == 0, jnp.ones_like(largest), largest)
    return scale, jnp.sum(jnp.square(size / scale))


def _magnitude(statistics: Sequence[Any], like: Magnitude) -> Magnitude:
    scale, squares, zeros, nans, infs, own, own_squares = [float(x) for x in statistics]

    def norm(scale: float, squares: float) -> float:
        return scale * math.sqrt(squares) if math.isfinite(scale) else scale

    return Magnitude(
        norm(scale, squares), like.elements, int(zeros), int(nans), int(infs), norm(own, own_squares)
    )


def _agree(a: Magnitude, b: Magnitude) -> bool:
    if not (a.is_finite and b.is_finite):
        return a.is_finite == b.is_finite
    return abs(a.norm - b.norm) <= AGREES * max(a.norm, b.norm)
