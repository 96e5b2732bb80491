"""What an engine is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stopgrad.graph import Operation, Output

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""From the values of the inputs to those of the outputs."""


class Engine(Protocol):
    """Compiles prepared graphs: no gates, inputs that are placeholders, all sizes numbers."""

    name: str

    def unsupported(self, operations: Sequence[Operation]) -> str | None:
        """Why the engine cannot run these operations; None where it can."""
        ...

    def compile(
        self, inputs: Sequence[Output], outputs: Sequence[Output], donate: Sequence[int] = ()
    ) -> Compiled:
        """A function of the inputs' values. Inputs at the positions in *donate* may be overwritten by it."""
        ...

    def hold(self, array: Any) -> Any:
        """The engine's own copy of an array, which it may keep and overwrite."""
        ...

    def is_native(self, x: Any) -> bool:
        """Whether *x* is an array that the engine takes without looking at it."""
        ...
