"""Python's operators on outputs. Installed here because the graph cannot import the operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stopgrad.base.unknown import ON_TENSORS
from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Dim, Operation, Output
from stopgrad.ops.elementwise import arithmetic, compare, powers
from stopgrad.ops.indexing import brackets as indexing, indexed_updates
from stopgrad.ops.linalg import contractions as linalg
from stopgrad.ops.shapes import reshape as shape


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    @d.reads_arguments
    def reflected(self: Output, other: ArrayLike) -> Any:
        return function(other, self)

    return reflected


def _bits(bitwise: Callable[..., Any], logical: Callable[..., Any]) -> Callable[..., Any]:
    @d.reads_arguments
    def operator(self: Output, other: ArrayLike) -> Any:
        kind = (self if isinstance(self, Output) else other).dtype
        return (logical if kind.is_bool else bitwise)(self, other)

    return operator


_BINARY: dict[str, Callable[..., Any]] = {
    "add": arithmetic.add,
    "sub": arithmetic.subtract,
    "mul": arithmetic.multiply,
    "truediv": arithmetic.divide,
    "floordiv": arithmetic.floor_div,
    "mod": arithmetic.floormod,
    "pow": powers.pow,
    "matmul": linalg.matmul,
    "and": _bits(compare.bitwise_and, compare.logical_and),
    "or": _bits(compare.bitwise_or, compare.logical_or),
    "xor": _bits(compare.bitwise_xor, compare.logical_xor),
    "lshift": compare.left_shift,
    "rshift": compare.right_shift,
}
for _name, _function in _BINARY.items():
    setattr(Output, f"__{_name}__", _function)
    setattr(Output, f"__r{_name}__", _reflected(_function))


def _comparison(function: Callable[..., Any]) -> Callable[..., Any]:
    """``==`` or ``!=``, elementwise; with None, a word or another object, Python's comparison by identity."""

    @d.reads_arguments
    def comparison(self: Output, other: object) -> Any:
        if isinstance(other, (Output, Operation, np.ndarray, np.generic, Dim)) or d.is_python(other):
            return function(self, other)
        return NotImplemented

    return comparison


_COMPARISONS = {
    "eq": _comparison(compare.equal),
    "ne": _comparison(compare.not_equal),
    "lt": compare.less,
    "le": compare.less_equal,
    "gt": compare.greater,
    "ge": compare.greater_equal,
}
for _name, _function in _COMPARISONS.items():
    setattr(Output, f"__{_name}__", _function)


# An operator between a size and an array builds or computes what the one between an output and an array does.
ON_TENSORS.update(_BINARY | _COMPARISONS)
ON_TENSORS.update({"and": compare.bitwise_and, "or": compare.bitwise_or, "xor": compare.bitwise_xor})
ON_TENSORS.update({"eq": compare.equal, "ne": compare.not_equal})


@d.reads_arguments
def _invert(self: Output) -> Any:
    return compare.logical_not(self) if self.dtype.is_bool else compare.invert(self)


@d.reads_arguments
def _getitem(self: Output, index: Any) -> Any:
    return indexing.take_index(self, index)


_OTHERS: dict[str, Any] = {
    "__neg__": arithmetic.negative,
    "__pos__": lambda self: self,
    "__abs__": arithmetic.abs,
    "__invert__": _invert,
    "__getitem__": _getitem,
    "at": property(indexed_updates.at),
    "T": property(lambda self: shape.transpose(self)),
}
for _name, _member in _OTHERS.items():
    setattr(Output, _name, _member)
