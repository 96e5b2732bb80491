"""Computes operations at once, with NumPy, if there is no graph.

The prepared lowering of a call and the dtypes of its operands and results are cached by the operation, its
attributes, and the types of its operands, so that a call like an earlier one costs little more than NumPy's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.dtypes import DType
from stopgrad.base.errors import ShapeError, StopgradError
from stopgrad.graph.builder import default_graph
from stopgrad.graph.inferred import about, infer_types, naming
from stopgrad.graph.interpreter import NUMPY_BACKEND, QUIET, Prepared, Types, failed, prepared, quietly
from stopgrad.graph.op import Op
from stopgrad.graph.operands import NumpyArray, type_of


class Plan(NamedTuple):
    """How an operation is computed on operands of certain types.

    Attributes:
        converts: for each operand, the dtype to which it is converted; None if it has it.
        run: the operation, as a function of arrays.
        dtype: the dtype of the result.
    """

    converts: tuple[np.dtype[Any] | None, ...]
    run: Prepared
    dtype: np.dtype[Any]


PLANS = 4096
"""The most plans that are cached. Beyond it, all are dropped."""
_PLANS: dict[Any, Plan] = {}

_NUMBERS = (float, int, bool, complex)


def _key(definition: type[Op], operands: Sequence[Any], values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The key of a plan; None if an operand is neither an array nor a number."""
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


def recalled(
    definition: type[Op], operands: Sequence[Any], values: tuple[Any, ...] = ()
) -> NumpyArray | None:
    """Compute an operation by its cached plan; None if there is none, or inside a graph."""
    try:
        plan = _PLANS.get(_key(definition, operands, values))
        if plan is None or default_graph() is not None:
            return None
        result = _computed(plan, operands)
        _NOTES.last = _NOTES.last[0] + 1, plan, tuple([id(x) for x in operands]), id(result)
        return result
    except Exception:
        return None  # The uncached way fails again, and says why.


def _computed(plan: Plan, operands: Sequence[Any]) -> NumpyArray:
    converts, run, dtype = plan
    if any(converts):
        pairs = zip(operands, converts, strict=True)
        operands = [x if to is None else np.asarray(x, to) for x, to in pairs]
    y = QUIET.copy().run(run, *operands)
    return owned(y if type(y) is np.ndarray and y.dtype is dtype else np.asarray(y, dtype))


def owned(array: NumpyArray) -> NumpyArray:
    """An array into which the caller may write; NumPy repeats one element in read-only views."""
    return array if array.flags.writeable else array.copy()


class _Notes(threading.local):
    """For each thread, the number of operations, and of the last one the plan and the ids of its arrays."""

    last: tuple[int, Plan | None, tuple[int, ...], int] = (0, None, (), 0)


_NOTES = _Notes()


def evaluate(
    definition: type[Op], arrays: Sequence[NumpyArray], values: tuple[Any, ...], originals: Sequence[Any] = ()
) -> Any:
    """Compute with NumPy, at once. *originals* are the operands before they were made arrays."""
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
            computed = quietly(run, *arrays)
        except (StopgradError, MemoryError):
            raise
        except Exception as error:
            raise failed("it", NUMPY_BACKEND.name, error) from error
    if len(types) > 1:
        return tuple([owned(np.asarray(v, t.dtype.numpy)) for v, t in zip(computed, types, strict=True)])
    dtype, plan = types[0].dtype.numpy, None
    if definition.cached and not definition.has_bodies and any(type(x) is np.ndarray for x in originals):
        key = _key(definition, originals, values)
        if key is not None:
            if len(_PLANS) >= PLANS:
                _PLANS.clear()
            together = zip(originals, arrays, strict=True)
            converts = tuple([None if x is array else array.dtype for x, array in together])
            plan = _PLANS[key] = Plan(converts, run, dtype)
    result = owned(np.asarray(computed, dtype))
    _NOTES.last = _NOTES.last[0] + 1, plan, tuple([id(x) for x in originals]), id(result)
    return result


# ------------------------------------------------------------------------------------- whole calls

_CALLS: dict[Any, tuple[Plan, tuple[int, ...]]] = {}
"""For calls of public functions that compute one operation: its plan, and the positions of its operands."""


class Call:
    """A call, outside of graphs, of a public function whose code reads types of arrays but never values.

    If types and settings equal those of an earlier call, the same operation is computed.
    """

    __slots__ = ("arrays", "computed", "key")

    computed: int
    key: tuple[Any, ...] | None

    def __init__(
        self, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.arrays: list[Any] = []
        self.computed = _NOTES.last[0]
        described = _described((*args, *kwargs, *kwargs.values()) if kwargs else args, self.arrays)
        self.key = None if described is None else (function, len(args), described)

    def repeated(self) -> NumpyArray | None:
        """The result of the call, if an equal one is cached."""
        cached = None if self.key is None else _CALLS.get(self.key)
        if cached is None or default_graph() is not None:
            return None
        try:
            return _computed(cached[0], [self.arrays[i] for i in cached[1]])
        except Exception:
            return None  # The uncached way fails again, and says why.

    def remember(self, value: object) -> None:
        """Cache the call, if its result *value* was computed by one operation of all its arrays.

        If one array was given twice, the positions of operands are not known.
        """
        count, plan, operands, result = _NOTES.last
        if self.key is None or plan is None or count != self.computed + 1 or result != id(value):
            return
        positions = {id(x): i for i, x in enumerate(self.arrays)}
        if len(positions) == len(self.arrays) and positions.keys() == set(operands):
            if len(_CALLS) >= PLANS:
                _CALLS.clear()
            _CALLS[self.key] = plan, tuple([positions[x] for x in operands])


def _described(arguments: Sequence[Any], arrays: list[Any]) -> tuple[Any, ...] | None:
    """A key of arguments: arrays count by their types, others by type and value; two entries for each.

    None if there is another kind of argument.
    """
    parts: list[Any] = []
    for x in arguments:
        kind = type(x)
        if kind is np.ndarray:
            arrays.append(x)
            parts += (x.dtype, x.shape)
        elif kind in _SETTINGS:
            parts += (kind, str(x) if kind is float else x)
        elif kind is list or kind is tuple:
            inside = _described(x, arrays)
            if inside is None:
                return None
            parts += (kind, inside)
        else:
            return None
    return tuple(parts)


_SETTINGS = frozenset((type(None), bool, int, float, str, DType))
