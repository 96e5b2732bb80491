"""The operations that a page shows, numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stopgrad.body import Body
from stopgrad.flow.page.report import Report
from stopgrad.graph import Operation
from stopgrad.op import Kind


@dataclass
class Collected:
    """The operations of a page, numbered: those asked about and then those made for gradients.

    Attributes:
        top: the operations in no body, of the one kind and of the other.
        bodies: who runs the body, what it is called there, and its operations; and the body itself.
        forward: how many operations were asked about, those in bodies among them.
    """

    operations: list[Operation] = field(default_factory=list)
    number: dict[Operation, int] = field(default_factory=dict)
    top: list[list[int]] = field(default_factory=list)
    bodies: list[tuple[int, str, list[int], Body]] = field(default_factory=list)
    forward: int = 0

    def _add(self, operations: Iterable[Operation]) -> list[int]:
        new = []
        for op in operations:
            if op not in self.number:
                self.number[op] = len(self.operations)
                new.append(len(self.operations))
                self.operations.append(op)
        return new

    def add_graph(self, operations: Iterable[Operation]) -> None:
        """Number operations, and what stands in their bodies, and in the bodies of that."""
        top = self._add(operations)
        self.top.append(top)
        waiting = list(top)
        for holder in waiting:  # Grows.
            op = self.operations[holder]
            for label, body in _bodies(op) if op.definition.has_bodies else ():
                # Several operations may share a body: it is shown in the first.
                inner = self._add(body.graph.subgraph_to(body.results))
                if inner:
                    self.bodies.append((holder, label, inner, body))
                    waiting.extend(inner)


def _bodies(op: Operation) -> Iterator[tuple[str, Body]]:
    for (name, kind), value in zip(op.definition.kinds.items(), op.values, strict=True):
        if kind is Kind.BODY:
            yield name, value
        elif kind is Kind.BODIES:
            yield from ((f"{name}[{i}]", body) for i, body in enumerate(value))


def collect(flow: Report) -> Collected:
    """The operations that a report's ys are computed from, and those made for their gradient."""
    found = Collected()
    asked = [x.op for x in flow.xs.values()]
    above = flow.graph.subgraph_to([*flow.ys, *asked])
    found.add_graph(above)
    found.forward = len(found.operations)
    found.add_graph(op for op in flow.graph.operations if _made_for(op, found))
    return found


def _made_for(op: Operation, found: Collected) -> bool:
    """Whether an operation was made for the gradient of one of those found."""
    origin = op.origin
    while origin is not None:
        if origin in found.number:
            return True
        origin = origin.origin
    return False
