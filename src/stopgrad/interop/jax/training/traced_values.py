"""What is known of JAX's arrays and traced values without changing what is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stopgrad.base.source import OWN, RawLocation, kind_of

DEEPEST = 20
"""The most traces around each other that are looked through."""
_COPIES = ("broadcast_in_dim", "convert_element_type", "reshape", "copy", "pvary")
"""The primitives whose results are zero where their operand is."""


def is_traced(x: object) -> bool:
    """Whether a value stands for numbers that are not there yet."""
    return isinstance(x, jax.core.Tracer)


def inside(x: Any) -> Any:
    """What a traced value of ``vmap`` or of a derivative wraps: a value of the trace around it."""
    for _ in range(DEEPEST):
        if not is_traced(x) or hasattr(x, "parent"):
            return x
        inner = getattr(x, "primal", None)
        if inner is None and hasattr(x, "batch_dim"):
            inner = getattr(x, "val", None)
        if inner is None:
            return x
        x = inner
    return x


def is_differentiated(x: object) -> bool:
    """Whether a value is one that a derivative around is traced with."""
    for _ in range(DEEPEST):
        if not is_traced(x):
            return False
        if hasattr(x, "tangent"):
            return True
        x = getattr(x, "val", None) if hasattr(x, "batch_dim") else None
    return False


def has_slope(x: object) -> bool:
    """Whether a value is an array of floating-point or complex numbers, with elements."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or dtype == jax.dtypes.float0:
        return isinstance(x, (float, complex))
    return bool(jnp.issubdtype(dtype, jnp.inexact)) and bool(np.size(x))  # type: ignore[arg-type]


def zeros_among(values: Sequence[Any]) -> list[bool]:
    """Which values are zero for certain: all elements of an array, or how JAX made a tracer."""
    return _without_any(values, _any_element)


def are_kept_zero(values: Sequence[Any]) -> list[bool]:
    """Which values are constants of zero, not products with zero: those of arrays have no sign."""
    return _without_any(values, _any_element_or_sign)


def _without_any(values: Sequence[Any], test: Callable[[list[Any]], Any]) -> list[bool]:
    """Which values JAX made as zeros, or are arrays that do not pass a test of all that can be read."""
    flags = [_is_zero_by_making(x) for x in values]
    readable = [i for i, x in enumerate(values) if not flags[i] and _is_there(x)]
    if readable:
        answers = jax.device_get(test([values[i] for i in readable]))
        for i, is_any in zip(readable, answers, strict=True):
            flags[i] = not is_any
    return flags


def changed_among(before: Sequence[Any], after: Sequence[Any]) -> list[bool | None]:
    """Which arrays differ from those before in any element; None where values are not there."""
    pairs = list(zip(before, after, strict=True))
    readable = [
        i for i, (a, b) in enumerate(pairs) if _is_there(a) and _is_there(b) and np.shape(a) == np.shape(b)
    ]
    changed: list[bool | None] = [None] * len(pairs)
    if readable:
        answers = jax.device_get(_any_difference([pairs[i] for i in readable]))
        for i, differs in zip(readable, answers, strict=True):
            changed[i] = bool(differs)
    return changed


@jax.jit  # type: ignore[untyped-decorator]
def _any_element(values: Sequence[jax.Array]) -> list[jax.Array]:
    return [jnp.any(x != 0) for x in values]


@jax.jit  # type: ignore[untyped-decorator]
def _any_element_or_sign(values: Sequence[jax.Array]) -> list[jax.Array]:
    return [jnp.any((x != 0) | (jnp.signbit(x) if jnp.isrealobj(x) else False)) for x in values]


@jax.jit  # type: ignore[untyped-decorator]
def _any_difference(pairs: Sequence[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
    return [jnp.any(a != b) for a, b in pairs]


def _is_there(x: object) -> bool:
    """Whether the numbers of an array can be read here."""
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return True
    return (
        isinstance(x, jax.Array)
        and not is_traced(x)
        and x.is_fully_addressable
        and not x.is_deleted()
        and x.dtype != jax.dtypes.float0
        and not jnp.issubdtype(x.dtype, jax.dtypes.extended)
    )


def _is_zero_by_making(x: Any) -> bool:
    """Whether a traced value is a constant of zero."""
    x = inside(x)
    for _ in range(DEEPEST):
        if not is_traced(x):
            return isinstance(x, (int, float, np.generic, np.ndarray)) and not np.any(x)
        literal = getattr(getattr(x, "val", None), "val", None)  # That of a literal.
        if literal is not None:
            return not np.any(literal)
        parent = getattr(x, "parent", None)
        if parent is None or str(getattr(parent, "primitive", "")) not in _COPIES:
            return False
        operands = list(getattr(parent, "in_tracers", ()))
        if len(operands) != 1:
            return False
        x = operands[0]
    return False


def abstract(tree: Any) -> Any:
    """Arguments with shapes in place of arrays and traced values."""

    def stand_in(x: Any) -> Any:
        if is_traced(x) or isinstance(x, (jax.Array, np.ndarray)):
            return jax.ShapeDtypeStruct(x.shape, x.dtype)
        return x

    return jax.tree_util.tree_map(stand_in, tree)


def made_at(x: Any, code: object = None) -> RawLocation | None:
    """The user's instruction that made a traced value, as JAX noted it.

    Args:
        x: the value.
        code: a function: its instruction is preferred to those of functions that it called.
    """
    while is_traced(x):
        infos = [getattr(x, "_line_info", None), getattr(getattr(x, "parent", None), "source_info", None)]
        for info in infos:
            frames = list(_frames(info))
            own = [frame for frame in frames if kind_of(frame[0].co_filename) == OWN]
            if own:
                return next((frame for frame in own if frame[0] is code), own[0])
        inner = inside(x)
        if inner is x:
            return None
        x = inner
    return None


def _frames(info: Any) -> Iterable[Any]:
    traceback = getattr(info, "traceback", None)
    if traceback is None:
        return ()
    return zip(*traceback.raw_frames(), strict=True)
