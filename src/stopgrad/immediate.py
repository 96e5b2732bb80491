"""Operations computed at once, with NumPy, where there is no graph.

What a call needs (its lowering, made ready, and the dtypes of operands and results) is remembered by the
operation, its attributes, and the types of its operands, so that calls like an earlier one cost little more
than NumPy's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, NamedTuple

import numpy as np

from stopgrad.builder import default_graph
from stopgrad.errors import ShapeError, StopgradError
from stopgrad.inferred import about, infer_types, naming
from stopgrad.interpreter import NUMPY_BACKEND, Types, failed, prepared, quietly
from stopgrad.op import Op
from stopgrad.operands import Array, type_of


class Plan(NamedTuple):
    """How an operation is computed on operands of certain types.

    Attributes:
        converts: for each operand the dtype that it is brought to; None where it has it.
        run: the operation, as a function of arrays.
        dtype: of the result.
    """

    converts: tuple[np.dtype[Any] | None, ...]
    run: Callable[..., Any]
    dtype: np.dtype[Any]


PLANS = 4096
"""As many plans are remembered at most; then all are forgotten."""
_PLANS: dict[Any, Plan] = {}

_NUMBERS = (float, int, bool, complex)


def _key(definition: type[Op], operands: Sequence[Any], values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What plans are remembered by; None where there is an operand that is no array or number."""
    key: list[Any] = [definition, values]
    for x in operands:
        kind = type(x)
        if kind is np.ndarray:
            key.append(x.dtype)
            key.append(x.shape)
        elif kind in _NUMBERS:
            key.append(kind)
        else:
            return None
    return tuple(key)


def recalled(definition: type[Op], operands: Sequence[Any], values: tuple[Any, ...] = ()) -> Array | None:
    """The operation on arrays and numbers, if one like it was computed before; None if not, or in a graph."""
    try:
        plan = _PLANS.get(_key(definition, operands, values))
        if plan is None or default_graph() is not None:
            return None
        converts, run, dtype = plan
        if any(converts):
            given = zip(operands, converts, strict=True)
            operands = [x if to is None else np.asarray(x, to) for x, to in given]
        made = _QUIET.context.run(run, *operands)
    except Exception:
        return None  # Computed as the first of its kind, it fails again and says why.
    return made if type(made) is np.ndarray and made.dtype is dtype else np.asarray(made, dtype)


class _Quiet(threading.local):
    """For each thread a context in which NumPy does not warn."""

    def __init__(self) -> None:
        self.context = Context()
        self.context.run(np.seterr, all="ignore")


_QUIET = _Quiet()


def evaluate(
    definition: type[Op], arrays: Sequence[Array], values: tuple[Any, ...], given: Sequence[Any] = ()
) -> Any:
    """Compute with NumPy, at once. *given* are the operands as they were before they were made arrays."""
    with about(definition, *arrays):
        inputs = tuple([type_of(x) for x in arrays])
        types = infer_types(definition, inputs, values)
        if any(t.symbolic for t in types):
            raise ShapeError(
                "outside of a graph every size must be a number; build it inside 'with graph.as_default():'"
            )
    with naming(definition):
        run = prepared(definition, values, Types(inputs, types), NUMPY_BACKEND, lambda: definition.type)
        try:
            made = quietly(run, *arrays)
        except (StopgradError, MemoryError):
            raise
        except Exception as error:
            raise failed("it", NUMPY_BACKEND.name, error) from error
    if len(types) > 1:
        return tuple([np.asarray(v, t.dtype.numpy) for v, t in zip(made, types, strict=True)])
    dtype = types[0].dtype.numpy
    if definition.cached and not definition.has_bodies and any(type(x) is np.ndarray for x in given):
        key = _key(definition, given, values)
        if key is not None:
            if len(_PLANS) >= PLANS:
                _PLANS.clear()
            together = zip(given, arrays, strict=True)
            converts = tuple([None if x is array else array.dtype for x, array in together])
            _PLANS[key] = Plan(converts, run, dtype)
    return np.asarray(made, dtype)
