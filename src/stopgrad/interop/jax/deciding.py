"""What Python decides by values: JAX allows it outside of ``jit``, also by what is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.interpreters import partial_eval

from stopgrad.interop.jax.internals import concrete

Flat = Callable[..., object]

MOST = 128
"""The most values that are asked for, each of which takes a trace up to there."""


class _AskedError(BaseException):
    """Python asked for a value that is not known yet; no handler of the user's is meant to see it."""

    def __init__(self, tracer: object) -> None:
        super().__init__()
        self.tracer = tracer


def decided(function: Flat, values: Sequence[Any]) -> Flat | None:
    """A function with the values that Python asks for on the way, as they are at these arguments.

    It is traced up to where a value is asked for; what leads there is computed, and it is traced again with
    the answer, until it returns. All answers are computed anew each time, and must be the same.

    Args:
        function: takes arrays.
        values: its arguments.

    Returns:
        The function, which can be traced once more; None where an argument has no value, answers change from
        call to call, more than :data:`MOST` are asked for, or this JAX does not let them be given.
    """
    if not values or any(isinstance(x, jax.ShapeDtypeStruct) for x in values):
        return None
    answers: list[Any] = []
    while len(answers) <= MOST:
        computed = _asked_for(function, values, answers)
        if computed is None or not all(map(_is_same, answers, computed)):
            return None
        if len(computed) == len(answers):
            return lambda *xs: _answering(function, xs, answers, [])
        answers = computed
    return None


def _asked_for(function: Flat, values: Sequence[Any], answers: Sequence[Any]) -> list[Any] | None:
    """The values that are asked for, up to the first after those known; None if they cannot be computed."""
    tracers: list[Any] = []

    def leading_there(*xs: object) -> list[Any]:
        try:
            _answering(function, xs, answers, tracers)
        except _AskedError as error:
            return [*tracers, error.tracer]
        return tracers

    closed = jax.make_jaxpr(leading_there)(*values)
    lean, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.out_avals))
    if any(isinstance(x, jax.core.Tracer) for x in closed.consts):
        return None
    compute = jex.jaxpr_as_fun(jex.ClosedJaxpr(lean, closed.consts))
    return list(compute(*[x for x, is_used in zip(values, used, strict=True) if is_used]))


def _answering(function: Flat, xs: Sequence[Any], answers: Sequence[Any], tracers: list[Any]) -> object:
    def value_of(tracer: object) -> object:
        for earlier, value in zip(tracers, answers, strict=False):
            if earlier is tracer:
                return value
        if len(tracers) == len(answers):
            raise _AskedError(tracer)
        tracers.append(tracer)
        return answers[len(tracers) - 1]

    with concrete(xs[0], value_of):
        return function(*xs)


def _is_same(a: object, b: object) -> bool:
    return bool(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc"))
