"""What functions composed of other functions share: dtypes, positions, and options among words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from stopgrad.build import constant_in, emit, graph_for, together
from stopgrad.errors import ArgumentError
from stopgrad.graph import Output
from stopgrad.operands import Tensor, type_of
from stopgrad.ops.data import Fill, Range
from stopgrad.ops.inference import is_floating
from stopgrad.plain import whole
from stopgrad.promotion import Promotion
from stopgrad.types import Shape, Size, int32

Option = TypeVar("Option")

FLOATING = Promotion(is_floating)


def floating(*xs: Any) -> list[Tensor]:
    """Tensors brought to one floating-point dtype."""
    return [*together(*xs, promotes=FLOATING)]


def positions(size: Size, like: Any) -> Tensor:
    """The numbers 0, 1, ..., size - 1, in the graph of *like*."""
    if isinstance(like, Output):
        return emit(Range, (), (0, size, 1, int32), "", graph_for(like)).outputs[0]
    return np.arange(whole(size), dtype=np.int32)


def chosen(word: Any, options: Mapping[str, Option], what: str) -> Option:
    """The option that a word names."""
    found = options.get(word) if isinstance(word, str) else None
    if found is None:
        known = ", ".join(map(repr, options))
        raise ArgumentError(f"{what}={word!r} is unknown; take one of {known}")
    return found


def zeros_beside(shape: Shape, like: Any) -> Tensor:
    """Zeros of this shape and of the dtype of *like*, in its graph."""
    zero = np.asarray(0, type_of(like).dtype.numpy)
    if isinstance(like, Output):
        return emit(Fill, (constant_in(graph_for(like), zero),), (shape,), "", graph_for(like)).outputs[0]
    return np.full(shape, zero)
