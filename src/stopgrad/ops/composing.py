"""What functions made of other functions share."""

from __future__ import annotations

from typing import Any

from stopgrad.errors import ShapeError
from stopgrad.graph import Operation, Output
from stopgrad.operands import Tensor, as_array
from stopgrad.ops.data import identity

__all__: list[str] = []


def is_traced(x: Any) -> bool:
    """Whether the values of *x* are known only when a graph runs."""
    return isinstance(x, (Output, Operation))


def tensor(x: Any) -> Any:
    """An output, or an array of what is none."""
    return x.as_output() if isinstance(x, (Output, Operation)) else as_array(x)


def named(x: Tensor, name: str | None) -> Tensor:
    """*x*, under a name where one was given."""
    return x if name is None else identity(x, name)


def needs_size(what: str, cure: str) -> ShapeError:
    """The error of a result whose shape depends on data."""
    return ShapeError(f"{what} depends on data, which are known only when the graph runs; give {cure}")
