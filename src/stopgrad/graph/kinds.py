"""The kinds of the attributes of operations, and what each kind's values are."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn, TypeAlias

import numpy as np

from stopgrad.base.coercion import flag, real, whole
from stopgrad.base.types import Dim, DType, Shape, Size, length_value, size_value, whole_size, within_bounds
from stopgrad.graph.body import Body
from stopgrad.graph.operands import Literal
from stopgrad.graph.sharding import checked_spec

_Sized: TypeAlias = "Size | str | tuple[_Sized, ...]"


class Kind(Enum):
    """The kind of an attribute. Text, the binding of sizes, rewriting and batching use it."""

    AXIS = "the position of an axis of the first operand"
    AXES = "positions of axes of the first operand, in a tuple"
    PERMUTATION = "an order of all axes of the first operand, in a tuple"
    SIZE = "a size, which may be symbolic"
    SHAPE = "a tuple of the sizes of the result, which may be symbolic"
    SIZES = "sizes, which may be symbolic, in tuples, or a word that stands for some"
    SPANS = "a tuple of the first element, number of elements and step for each axis"
    SCALAR = "a number or a size, which may be symbolic"
    DTYPE = "an element type"
    ARRAY = "an array, as a Literal"
    BODY = "a closed graph that the operation runs"
    BODIES = "a tuple of closed graphs"
    FLAG = "True or False"
    INTEGER = "a whole number"
    INTEGERS = "a tuple of whole numbers"
    REAL = "a number"
    WORD = "a word"
    SHARDING = "how the axes are divided over those of a mesh, an entry for each; () says nothing"
    FUNCTION = "a function of Python, which cannot be written"


def _word(value: object) -> str:
    return str(value) if isinstance(value, str) else _no(value)


def _integers(value: object) -> tuple[int, ...]:
    return tuple(map(whole, value)) if isinstance(value, tuple) else _no(value)


def _size(value: object) -> Dim | int:
    return value if isinstance(value, Dim) else within_bounds(whole(value))


def _sizes(value: object) -> _Sized:
    if isinstance(value, tuple):
        return tuple(map(_sizes, value))
    return str(value) if isinstance(value, str) else _size(value)


def _spans(value: object) -> tuple[tuple[Size, Size, int], ...]:
    if not isinstance(value, tuple) or any(not isinstance(span, tuple) or len(span) != 3 for span in value):
        return _no(value)
    return tuple([(_size(start), _size(size), whole(step)) for start, size, step in value])


def _scalar(value: object) -> float | Dim | int:
    return real(value) if isinstance(value, (float, np.floating)) else _size(value)


def _shape(value: object) -> Shape:
    return tuple(map(whole_size, value)) if isinstance(value, tuple) else _no(value)


def _instance(*kinds: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kinds) else _no(value)


def _bodies(value: object) -> tuple[Any, ...]:
    return tuple(map(CANONICAL[Kind.BODY], value)) if isinstance(value, tuple) else _no(value)


def _no(value: object) -> NoReturn:
    raise TypeError(f"not {value!r}")


CANONICAL: dict[Kind, Callable[[Any], Any]] = {
    Kind.AXIS: whole,
    Kind.AXES: _integers,
    Kind.PERMUTATION: _integers,
    Kind.SIZE: whole_size,
    Kind.SHAPE: _shape,
    Kind.SIZES: _sizes,
    Kind.SPANS: _spans,
    Kind.SCALAR: _scalar,
    Kind.DTYPE: _instance(DType),
    Kind.ARRAY: _instance(Literal),
    Kind.BODY: _instance(Body),
    Kind.BODIES: _bodies,
    Kind.FLAG: flag,
    Kind.INTEGER: whole,
    Kind.INTEGERS: _integers,
    Kind.REAL: real,
    Kind.WORD: _word,
    Kind.SHARDING: checked_spec,
    Kind.FUNCTION: lambda value: value if callable(value) else _no(value),
}
"""Functions that make the value given for an attribute canonical.

For Python ``1 == 1.0 == True``; here they differ, so that keys with attributes do not confuse them.
"""

SIZED = {
    Kind.SIZE: length_value,
    Kind.SHAPE: length_value,
    Kind.SIZES: size_value,
    Kind.SPANS: size_value,
    Kind.SCALAR: size_value,
}
"""Functions that replace sizes in an attribute by numbers; lengths must not be negative."""

BY_ANNOTATION = {
    "Axis": Kind.AXIS,
    "Axes": Kind.AXES,
    "Permutation": Kind.PERMUTATION,
    "Size": Kind.SIZE,
    "Shape": Kind.SHAPE,
    "Sizes": Kind.SIZES,
    "Spans": Kind.SPANS,
    "Scalar": Kind.SCALAR,
    "DType": Kind.DTYPE,
    "Literal": Kind.ARRAY,
    "Body": Kind.BODY,
    "Bodies": Kind.BODIES,
    "bool": Kind.FLAG,
    "int": Kind.INTEGER,
    "tuple[int, ...]": Kind.INTEGERS,
    "float": Kind.REAL,
    "str": Kind.WORD,
    "Spec": Kind.SHARDING,
}

INEXACT = {Kind.REAL, Kind.SCALAR}
"""The kinds in which equal values may differ, such as 0.0 and -0.0."""

# Names for the annotations of ``infer``, from which the kinds of the attributes are read.
Axis = int
Axes = tuple[int, ...]
Permutation = tuple[int, ...]
Sizes = Any
Span = tuple[Any, Any, int]
Spans = tuple[Span, ...]
Scalar = Any
