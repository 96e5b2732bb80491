"""What an engine is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stopgrad.errors import EngineError
from stopgrad.graph import Operation, Output, describe
from stopgrad.op import Unsupported

Compiled = Callable[[Sequence[Any]], Sequence[Any]]
"""From the values of the inputs to those of the outputs."""


class Engine(Protocol):
    """Compiles prepared graphs: all sizes numbers, no gates, inputs that are placeholders."""

    name: str

    def compile(self, inputs: Sequence[Output], outputs: Sequence[Output], donate: Sequence[int] = ()) -> Compiled:
        """A function of the inputs' values. Inputs at the positions in *donate* may be overwritten by it."""
        ...

    def hold(self, array: Any) -> Any:
        """The engine's own copy of an array, which it may keep and overwrite."""
        ...

    def is_native(self, x: Any) -> bool:
        """Whether *x* is an array that the engine takes without looking at it."""
        ...


def failed(op: Operation, engine: str, error: Exception) -> EngineError:
    """What is raised where an operation's definition for an engine does not work."""
    why = error.message if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    return EngineError(f"the {engine} engine could not compute {describe(op)}: {why}")


def program(inputs: Sequence[Output], outputs: Sequence[Output]) -> list[Operation]:
    """The operations that an engine computes, in order."""
    given = {x.op for x in inputs}
    return [op for op in outputs[0].op.graph.subgraph_to(outputs) if op not in given] if outputs else []


def lowering(op: Operation, engine: str) -> Callable[..., Any]:
    """An operation's definition for an engine, or an error that says why there is none."""
    found = getattr(op.definition, engine)
    if isinstance(found, Unsupported):
        raise EngineError(f"the {engine} engine cannot compute {describe(op)}: {found.reason}")
    return found
