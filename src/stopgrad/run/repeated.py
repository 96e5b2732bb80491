"""Calls that are like the last one go straight to its compiled program.

Finding the signature of a call in Python takes several times as long as the engine takes to check its arrays.
So a call is assumed to be like the last one, and the engine objects if it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.engines import Engine, fail
from stopgrad.graph.builder import default_graph
from stopgrad.run.calls import handed_out
from stopgrad.run.programs import Program
from stopgrad.run.traced import Traced

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
    engine, run = program.backend, program.run
    rebuild = None if traced.spec is None else traced.rebuild
    kinds = {*map(type, leaves)}
    ours = kinds - {np.ndarray, float}
    if not engine.checks or not _are_taken(engine, leaves, kinds, ours):
        return None
    flat = not kwargs and [*map(id, args)] == [*map(id, leaves)]
    flatten, spec = engine.flatten, None
    if not flat:
        found, spec = flatten((args, kwargs) if kwargs else args)
        if [*map(id, found)] != [*map(id, leaves)]:
            return None  # The engine flattens structures in another way than we do.
    borrowed, native = np.ndarray in kinds, bool(ours)
    left = native and not borrowed  # left on their devices, perhaps not computed yet
    # The engine would convert NumPy arrays that it was not compiled for.
    dtypes = [x.dtype for x in leaves if type(x) is not float]

    def call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if flat:
            if kwargs:
                return OTHER
            given = args
        else:
            given, structure = flatten((args, kwargs) if kwargs else args)
            if structure != spec:
                return OTHER
        if {*map(type, given)} != kinds or engine.unusable is not None or default_graph() is not None:
            return OTHER
        if borrowed and [x.dtype for x in given if type(x) is not float] != dtypes:
            return OTHER
        try:
            results = run(given)
        except (TypeError, ValueError):
            return OTHER
        except Exception as error:
            fail(engine, traced.outputs, error)
        if not left:
            try:
                results = handed_out(engine, results, native)
            except Exception as error:
                fail(engine, traced.outputs, error)
        return results[0] if rebuild is None else rebuild(results)

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
