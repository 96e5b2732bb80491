"""Ways of gradients through operations, and the walls that end them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Status

OPEN, UNDEFINED, STOPPED, BLIND = range(4)
LEVELS = (Status.FLOWS, Status.UNDEFINED, Status.STOPPED, Status.NOT_DIFFERENTIABLE)
"""Statuses from the best to the worst: at a level, a gradient could pass walls up to this status."""


class Wall(NamedTuple):
    """An operation at which paths end; if *switched*, only while a condition holds at run time."""

    operation: Operation
    status: Status
    reason: str
    switched: bool = False


Removed = Callable[[Wall], bool]
"""The walls that are treated as if they let gradients pass. They are still found."""


def keep_all(wall: Wall) -> bool:
    return False


Behind = Sequence[tuple[int, int]]
"""Inputs behind a wall, each with the level of the best way from the wall to it."""


class Way(NamedTuple):
    """The way from an output of an operation to its inputs.

    Attributes:
        inputs: the inputs on which the output depends, each with the level of the best way to it.
        dark: inputs without gradients, whose operations decide.
        walls: the walls that end paths here, with the inputs behind them.
    """

    inputs: Sequence[tuple[int, int]]
    dark: Collection[int]
    walls: Sequence[tuple[Wall, Behind]]


def no_gradient_of(y: Output) -> str:
    """The reason why no gradient passes a tensor of integers or booleans."""
    return f"{y.dtype.name} carries no gradient"
