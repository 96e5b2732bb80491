"""Builds what an earlier call of a public function built, if its tensors were others of the same types.

Functions that are marked so (:func:`stopgrad.graph.public.guarded`) read of outputs nothing but the types.
What a call of one built is remembered without the outputs. So arguments need not be read again, which takes
longer than building.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from threading import get_ident
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.dtypes import DType
from stopgrad.base.types import Dim, map_sizes
from stopgrad.graph.build import emit, scalar_in, scalar_key
from stopgrad.graph.builder import current
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.op import Op

CALLS = 4096
"""The most calls that are remembered. Beyond it, all are dropped."""
LARGEST = 4
"""The most operations that one of them may build."""


class Built(NamedTuple):
    """What a call built.

    Attributes:
        numbers: the constants that it used, by :func:`scalar_key`.
        steps: its operations, in order: the definition, the attributes, and what takes the operands from the
            outputs that the call was given, followed by those constants and what was built before.
    """

    numbers: tuple[Any, ...]
    steps: tuple[tuple[type[Op], tuple[Any, ...], Callable[[tuple[Output, ...]], tuple[Output, ...]]], ...]


_CALLS: dict[Any, Built] = {}


def key_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], outputs: list[Output]
) -> tuple[Any, ...] | None:
    """What equal calls share; None if some arguments are of other kinds. *outputs* gets those of the call."""
    key: list[Any] = [function]
    if not _describe(args, key, outputs):
        return None
    if kwargs:
        key.extend(kwargs)
        if not _describe(kwargs.values(), key, outputs):
            return None
    return tuple(key)


def repeated(key: tuple[Any, ...], outputs: Sequence[Output], graph: Graph) -> Output | None:
    """The result of a call, built as for an equal one; None if there was none, or a number is new here."""
    built = _CALLS.get(key)
    builder = current()
    if built is None or builder.pending is not None or builder.tracing is not None:
        return None
    tensors = tuple(outputs)
    numbers, steps = built
    for number in numbers:
        constant = scalar_in(graph, number)
        if constant is None:
            return None
        tensors += (constant,)
    for definition, values, operands in steps:
        results = emit(definition, operands(tensors), values, None, graph, 2).outputs
        tensors += results
    return tensors[-1]


def remember(
    key: tuple[Any, ...], outputs: Sequence[Output], graph: Graph, length: int, result: object
) -> None:
    """Remember what a call built, unless other tensors or names had a part in it.

    Args:
        key, outputs: of the call.
        graph, length: where it built, and how many operations there were before.
        result: what it returned.
    """
    if graph._author != get_ident() or graph._authored_from > length:
        return
    built = [op for op in graph._operations[length:] if scalar_key(op) is None]
    if not 0 < len(built) <= LARGEST or result is not built[-1].outputs[0] or not _alike(built, outputs):
        return
    inside = [op.outputs[0] for op in built]
    others = {x: None for op in built for x in op.inputs}.keys() - {*outputs, *inside}
    numbers = {x: scalar_key(x.op) for x in others}
    xs = [*outputs, *numbers, *inside]
    places = {x: i for i, x in enumerate(xs)}
    if None in numbers.values() or len(places) < len(xs):  # An output that is given twice has two places.
        return
    if len(_CALLS) >= CALLS:
        _CALLS.clear()
    steps = [(op.definition, op.values, _taking([places[x] for x in op.inputs])) for op in built]
    _CALLS[key] = Built(tuple(numbers.values()), tuple(steps))


def _taking(places: Sequence[int]) -> Any:
    """A function that takes the elements at these places from a tuple."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def _alike(built: Iterable[Operation], operands: Iterable[Output]) -> bool:
    """Whether any equal call would build such operations, below the builder's prefix of names."""
    builder = current()
    sizes: list[Dim] = []
    for op in built:
        definition = op.definition
        if definition.has_bodies or not definition.cached or not op.inputs or len(op.outputs) > 1:
            return False
        if op._label != builder.prefix_in(op.graph):
            return False
        map_sizes((op.values, op.outputs[0].type.shape), sizes.append)
    given_sizes = {size for x in operands for size in x.type.shape}
    # Other sizes may be new for each call. A constant that was given may be what a number became, too.
    return given_sizes.issuperset(sizes) and not any(scalar_key(x.op) for x in operands)


def _describe(arguments: Iterable[Any], key: list[Any], outputs: list[Output]) -> bool:
    """Add arguments to a key: of outputs the types, of settings the values. False if there are others."""
    for x in arguments:
        kind = type(x)
        if kind is Output:
            outputs.append(x)
            key.append(x.type)
        elif kind in _SETTINGS:
            key.append(kind)
            key.append(x if x or kind is not float else repr(x))  # 0.0 and -0.0 are equal.
        elif kind in _NUMBERS:
            key.append(kind)
            key.append(x.tobytes())
        elif kind in _NESTED:
            parts = (x.start, x.stop, x.step) if kind is slice else x
            key.append(kind)
            key.append(len(parts))
            if not _describe(parts, key, outputs):
                return False
        else:
            return False
    return True


_SETTINGS = frozenset((float, int, bool, type(None), str, DType, EllipsisType))
_NUMBERS = frozenset((np.float32, np.float64, np.float16, np.int32, np.int64, np.bool_))
_NESTED = frozenset((tuple, list, slice))
