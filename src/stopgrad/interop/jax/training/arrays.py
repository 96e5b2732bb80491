"""What is known of JAX's arrays and traced values without changing what is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    found = [_is_zero_by_making(x) for x in values]
    looked = [i for i, x in enumerate(values) if not found[i] and _is_there(x)]
    if looked:
        some = jax.device_get(_any_element([values[i] for i in looked]))
        for i, is_any in zip(looked, some, strict=True):
            found[i] = not is_any
    return found


def are_kept_zero(values: Sequence[Any]) -> list[bool]:
    """Which values are constants of zero, not products with zero: those of arrays have no sign."""
    found = [_is_zero_by_making(x) for x in values]
    looked = [i for i, x in enumerate(values) if not found[i] and _is_there(x)]
    if looked:
        some = jax.device_get(_any_element_or_sign([values[i] for i in looked]))
        for i, is_any in zip(looked, some, strict=True):
            found[i] = not is_any
    return found


def changed_among(before: Sequence[Any], after: Sequence[Any]) -> list[bool | None]:
    """Which arrays differ from those before in any element; None where values are not there."""
    pairs = list(zip(before, after, strict=True))
    looked = [
        i for i, (a, b) in enumerate(pairs) if _is_there(a) and _is_there(b) and np.shape(a) == np.shape(b)
    ]
    found: list[bool | None] = [None] * len(pairs)
    if looked:
        told = jax.device_get(_any_difference([pairs[i] for i in looked]))
        for i, differs in zip(looked, told, strict=True):
            found[i] = bool(differs)
    return found


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
        held = getattr(getattr(x, "val", None), "val", None)  # That of a literal.
        if held is not None:
            return not np.any(held)
        made = getattr(x, "parent", None)
        if made is None or str(getattr(made, "primitive", "")) not in _COPIES:
            return False
        operands = list(getattr(made, "in_tracers", ()))
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
        known = [getattr(x, "_line_info", None), getattr(getattr(x, "parent", None), "source_info", None)]
        for info in known:
            frames = list(_frames(info))
            own = [one for one in frames if kind_of(one[0].co_filename) == OWN]
            if own:
                return next((one for one in own if one[0] is code), own[0])
        inner = inside(x)
        if inner is x:
            return None
        x = inner
    return None


def _frames(info: Any) -> Iterable[Any]:
    found = getattr(info, "traceback", None)
    if found is None:
        return ()
    return zip(*found.raw_frames(), strict=True)
