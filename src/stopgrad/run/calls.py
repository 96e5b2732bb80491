"""Calls of functions: their arguments, their signatures, and the results that the caller gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.errors import DTypeError, StopgradError
from stopgrad.base.types import dtype_of, float32
from stopgrad.engines import Engine, fail
from stopgrad.graph.arguments import Constant, argument_names, argument_paths
from stopgrad.graph.operands import as_array, is_tensor, shorten, show_shape
from stopgrad.run.programs import Program
from stopgrad.run.traced import Static, Traced


class Arguments(NamedTuple):
    """The arguments of one call, taken apart."""

    leaves: list[Any]  # All but the static arguments, flattened.
    spec: Any  # Their structure.
    static: Static
    arrays: list[Any]  # The arrays among the leaves.
    signature: list[Any]  # Leaf by leaf: what must be equal for the same compiled program.
    native: bool  # Whether any array is the engine's own.
    borrowed: bool  # Whether any array is the caller's, who may change it after the call.


def array_like(x: object) -> object:
    """An array without memory for an object that only has a shape and a dtype; others as they are."""
    if is_tensor(x) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    return np.broadcast_to(np.zeros((), dtype_of(x.dtype).numpy), tuple(x.shape))


def array_argument(name: str, path: Callable[[], str], x: object) -> np.ndarray[Any, Any]:
    """A traced argument as a NumPy array; errors say which argument it is."""
    try:
        return as_array(x)
    except StopgradError as error:
        raise type(error)(f"{name}: {path()}: {error.message}") from None


def company(leaves: Sequence[Any]) -> np.dtype[Any]:
    """The dtype of Python floats: that of the first floating-point array among the arguments."""
    with suppress(DTypeError):  # It is raised later, when the error can name the argument.
        kinds = (dtype_of(x.dtype) for x in leaves if hasattr(x, "dtype"))
        return next((d for d in kinds if d.is_floating), float32).numpy
    return float32.numpy


def difference(f: Callable[..., object], old: Arguments, new: Arguments) -> str:
    """The difference between two calls of *f*, for messages."""
    if old.spec != new.spec:
        return "the arguments have another structure"
    changed = [
        (path, a, b)
        for path, a, b in zip(argument_paths(f, new.spec), old.signature, new.signature, strict=True)
        if a != b
    ]
    before = dict(old.static)
    names = argument_names(f, new.spec.child(0).num_children)
    changed += [
        (names[which] if isinstance(which, int) else which, before.get(which), now)
        for which, now in new.static
        if before.get(which) != now
    ]
    if not changed:
        return "the engine is another one"
    path, a, b = changed[0]
    more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    return f"{path} was {_part_text(a)} and is {_part_text(b)}{more}"


def _part_text(part: Constant | tuple[Any, ...] | None) -> str:
    """A part of a signature, for messages."""
    if part is None:
        return "not given"
    return shorten(part.value) if isinstance(part, Constant) else f"{part[1]}{show_shape(part[0])}"


def results_of(traced: Traced, program: Program, engine: Engine, arguments: Arguments) -> Sequence[Any]:
    """The results of one call, as the caller gets them."""
    backend = program.backend
    # They may be arrays of the other engine.
    arrays = arguments.arrays if backend is engine else [np.asarray(a) for a in arguments.arrays]
    try:
        results = program.run(arrays)
        # What the caller gave decides what he gets. He may now write into the NumPy arrays that he gave.
        if not arguments.native:
            return backend.taken(results)
        return backend.finished(results) if arguments.borrowed else results
    except Exception as error:
        fail(backend, traced.outputs, error)
