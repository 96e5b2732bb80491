"""Bodies: closed graphs with parameters, which operations hold as attributes and run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from stopgrad.base.types import TensorType
from stopgrad.graph.graph import Graph, Operation, Output, needed


class Body:
    """Results computed from parameters, in a graph of their own.

    Several bodies may share one graph: a loop, and the same loop that also returns what its gradient needs,
    differ only in their outputs. Two bodies are equal if they have the same graph, inputs and outputs.

    Attributes:
        graph: a graph in which everything is computed from the inputs.
        inputs: the parameters, which are placeholders.
        outputs: the results; None for one that is absent.
    """

    __slots__ = ("graph", "inputs", "memo", "outputs")

    graph: Graph
    inputs: tuple[Output, ...]
    outputs: tuple[Output | None, ...]

    def __init__(self, graph: Graph, inputs: Sequence[Output], outputs: Sequence[Output | None]) -> None:
        self.graph = graph
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.memo: dict[Any, Any] = {}  # Memoized properties; no arrays.

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple([x.type for x in self.inputs])

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple([y.type for y in self.results])

    @property
    def results(self) -> tuple[Output, ...]:
        """The outputs that are not absent."""
        return tuple([y for y in self.outputs if y is not None])

    @property
    def ends(self) -> tuple[Output, ...]:
        """The results, and then an output of each operation that runs for what it does."""
        return (*self.results, *[op.outputs[0] for op in self.graph.acting])

    def operations(self) -> list[Operation]:
        """The operations that it computes, in order, without its parameters."""
        return needed(self.ends, frozenset(self.inputs))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Body)
            and self.graph is other.graph
            and self.inputs == other.inputs
            and self.outputs == other.outputs
        )

    def __hash__(self) -> int:
        return hash((id(self.graph), self.inputs, self.outputs))

    def __repr__(self) -> str:
        inputs = ", ".join(repr(x.type) for x in self.inputs)
        outputs = ", ".join("None" if y is None else repr(y.type) for y in self.outputs)
        return f"<Body ({inputs}) -> ({outputs})>"


Bodies = tuple[Body, ...]


def walk(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations, and all those in their bodies, nested ones included; each body once."""
    seen: set[Body] = set()
    stack = [iter(operations)]
    while stack:
        for op in stack[-1]:
            yield op
            new = [body for body in bodies_in(op.values) if body not in seen]
            if new:
                seen.update(new)
                stack.append(iter([inner for body in new for inner in body.operations()]))
                break
        else:
            stack.pop()


def scan_key(op: Operation) -> Hashable:
    """A key that is equal for scans that differ only in what they return, and so can be run as one."""
    body: Body = op.body
    return op.inputs, body.graph, body.inputs, body.outputs[: op.carries], op.values[1:]


def bodies_in(values: Sequence[Any]) -> Iterator[Body]:
    """The bodies among an operation's attributes."""
    for value in values:
        if isinstance(value, Body):
            yield value
        elif isinstance(value, tuple) and value and isinstance(value[0], Body):
            yield from value
