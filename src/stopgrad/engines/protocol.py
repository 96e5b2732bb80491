"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from stopgrad.body import walk
from stopgrad.graph import Operation, Output, describe
from stopgrad.interpreter import lowering
from stopgrad.op import Op, Unsupported

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""From the values of the inputs to those of the outputs."""


class Engine(ABC):
    """Compiles prepared graphs: no gates, and inputs that are placeholders.

    Attributes:
        name: what users call it by. An operation's own form for it stands under this name in its definition.
        priority: of the engines that are installed and can run a graph, ``"auto"`` takes that of the highest.
        needs: the modules without which it is not installed. They are imported when the engine is made.
        keeps_sizes: whether it is given graphs with their sizes symbolic, and compiles once for all; else the
            sizes are numbers, and it compiles for each.
        forms: lowerings of its own, or :func:`stopgrad.op.unsupported`, for operations whose definitions know
            nothing of the engine.
    """

    name: str
    priority: int
    needs: ClassVar[Sequence[str]] = ()
    keeps_sizes: ClassVar[bool] = False
    forms: ClassVar[Mapping[type[Op], Callable[..., Any] | Unsupported]] = {}

    def unsupported(self, operations: Sequence[Operation]) -> str | None:
        """Why the engine cannot run these operations and what is in their bodies; None where it can."""
        for op in walk(operations):
            form = lowering(op.definition, self.name)
            if isinstance(form, Unsupported):
                return f"cannot compute {describe(op)}: {form.reason}"
        return None

    @abstractmethod
    def compile(
        self, inputs: Sequence[Output], outputs: Sequence[Output], donate: Sequence[int] = ()
    ) -> Compiled:
        """A function of the inputs' values. Inputs at the positions in *donate* may be overwritten by it."""

    @abstractmethod
    def hold(self, array: Any) -> Any:
        """The engine's own copy of an array, which it may keep and overwrite."""

    @abstractmethod
    def is_native(self, x: Any) -> bool:
        """Whether *x* is an array that the engine takes without looking at it."""
