"""Helpers shared by functions that are composed of other functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    NumpyArray,
    Operation,
    Output,
    Promotion,
    Shape,
    ShapeError,
    Size,
    Tensor,
)
from stopgrad.ops.shapes.ranges import Range
from stopgrad.ops.structural.sources import Fill, identity

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Option = TypeVar("Option")

FLOATING = Promotion(d.is_floating)


def floating(*xs: ArrayLike) -> list[Tensor]:
    """Tensors converted to one floating-point dtype."""
    return [*d.together(*xs, promotes=FLOATING)]


def positions(size: Size, like: ArrayLike) -> Tensor:
    """The numbers 0, 1, ..., size - 1, in the graph of *like*."""
    if isinstance(like, Output):
        return d.emit(Range, (), (0, size, 1, d.int32), "", d.graph_for(like)).outputs[0]
    return np.arange(d.whole(size), dtype=np.int32)


def chosen(word: object, options: Mapping[str, Option], what: str) -> Option:
    """The option of this name; *what* is the argument, for the error if there is none."""
    option = options.get(word) if isinstance(word, str) else None
    if option is None:
        names = ", ".join(map(repr, options))
        raise ArgumentError(f"{what}={word!r} is unknown; take one of {names}")
    return option


def zeros_beside(shape: Shape, like: ArrayLike) -> Tensor:
    """Zeros of this shape and of the dtype of *like*, in its graph."""
    zero = np.asarray(0, d.type_of(like).dtype.numpy)
    if isinstance(like, Output):
        return d.emit(
            Fill, (d.constant_in(d.graph_for(like), zero),), (shape,), "", d.graph_for(like)
        ).outputs[0]
    return np.full(shape, zero)


def is_traced(x: object) -> TypeIs[Output | Operation]:
    """Whether the values of *x* are known only when a graph runs."""
    return isinstance(x, (Output, Operation))


def tensor(x: object) -> Output | NumpyArray:
    """*x* as an output if it is one (or an operation), else as a NumPy array."""
    return x.as_output() if isinstance(x, (Output, Operation)) else d.as_array(x)


def named(x: Tensor, name: str | None) -> Tensor:
    """*x*, or the identity of *x* under this name."""
    return x if name is None else identity(x, name)


def needs_size(what: str, cure: str) -> ShapeError:
    """The error for a result whose shape depends on data."""
    return ShapeError(f"{what} depends on data, which are known only when the graph runs; give {cure}")
