"""Calls that are like the last one go straight to its compiled program.

Finding the signature of a call in Python takes several times as long as the engine takes to check its arrays.
So a call is assumed to be like the last one, and the engine objects if it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from stopgrad.engines import Engine, fail
from stopgrad.graph.builder import default_graph
from stopgrad.run.argument_reader import DIFFERS, Reader
from stopgrad.run.programs import Program
from stopgrad.run.traced import Traced

_DTYPE = attrgetter("dtype")

_HOSTS = frozenset([np.ndarray, float])
"""The kinds of arguments that are no engine's own."""
OTHER = object()
"""The answer to a call with other arguments than the last one: nothing was computed."""


def repeated_call(
    traced: Traced, program: Program, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any]
) -> Callable[[Sequence[Any], Mapping[str, Any]], Any] | None:
    """A fast function for calls with arguments like these; None if there is none.

    Args:
        traced: the function that was called.
        program: computes its results. The engine must refuse arrays of other shapes or dtypes
            (:attr:`Engine.checks`).
        args: the positional arguments of the call that was just made.
        kwargs: its keyword arguments.
        leaves: all arguments, flat: arrays of the engine or of NumPy, and Python floats.

    Returns:
        A function of positional and keyword arguments that returns the result, or :data:`OTHER`.
    """
    engine, kinds = program.backend, {*map(type, leaves)}
    if not engine.checks or not _are_taken(engine, leaves, kinds, kinds - _HOSTS):
        return None
    direct = program.direct(leaves)
    if direct is None:
        return None
    flat = not kwargs and [*map(id, args)] == [*map(id, leaves)]
    return _fast_call(traced, engine, direct, leaves, None if flat else traced.read)


def _fast_call(
    traced: Traced,
    engine: Engine,
    direct: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    read: Reader | None,
) -> Callable[[Sequence[Any], Mapping[str, Any]], Any]:
    """The function that computes from arguments of the kinds of *leaves*, which *read* makes flat."""
    kinds = {*map(type, leaves)}
    ours = kinds - _HOSTS
    rebuild = traced.rebuild
    borrowed, native = np.ndarray in kinds, bool(ours)
    stays = native and not borrowed  # left on their devices, perhaps not computed yet
    hand_over = engine.finished if native else engine.taken
    types, alone = [*map(type, leaves)], traced.spec is None
    # The engine would convert NumPy arrays that it was not compiled for.
    dtypes, mixed = [x.dtype for x in leaves if type(x) is not float], float in kinds
    single = len(leaves) == 1 and not mixed
    kind: Any = types[0] if single else None
    dtype = dtypes[0] if single else None

    def call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if read is None:
            if kwargs:
                return OTHER
            values = args
        else:
            try:
                values = read(args, kwargs)
            except DIFFERS:
                return OTHER
        if single:  # In a fraction of the time.
            same = len(values) == 1 and type(x := values[0]) is kind and (not borrowed or x.dtype == dtype)
        else:
            same = [*map(type, values)] == types
            if same and borrowed:
                arrays = [x for x in values if type(x) is not float] if mixed else values
                same = [*map(_DTYPE, arrays)] == dtypes
        if not same or engine.unusable is not None or default_graph() is not None:
            return OTHER
        try:
            results = direct(*values)
        except (TypeError, ValueError, FloatingPointError):
            return OTHER
        except Exception as error:
            fail(engine, traced.outputs, error)
        if not stays:
            try:
                results = hand_over(results)
            except Exception as error:
                fail(engine, traced.outputs, error)
        return results[0] if alone else rebuild(results)

    return call


def _are_taken(engine: Engine, leaves: Sequence[Any], kinds: set[type], ours: set[type]) -> bool:
    """Whether the engine takes all arguments as they are; *ours* are its own among their *kinds*."""
    if len(ours) > 1 or not all(engine.is_native(x) for x in leaves if type(x) in ours):
        return False
    if not all(x.dtype.isnative for x in leaves if type(x) is np.ndarray):
        return False
    return float not in kinds or _all_float32(leaves)


def _all_float32(leaves: Sequence[Any]) -> bool:
    """Whether Python floats become float32 here, which is the engine's own conversion."""
    return all(type(x) is float or x.dtype.kind in "iub" or x.dtype == np.float32 for x in leaves)
