"""The operations that a page shows, numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stopgrad.base.errors import StopgradError
from stopgrad.flow.reaches import Reaches
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Kind
from stopgrad.rewrite import rewrite
from stopgrad.transforms.gradients.reverse import gradients

GENERATED = 20_000
"""Of a graph of at most so many operations the gradient is generated."""


@dataclass
class Collected:
    """The operations of a page, numbered: those asked about and then those made for gradients.

    Attributes:
        top: the operations in no body, of the one kind and of the other.
        bodies: who runs the body, what it is called there, and its operations; and the body itself.
        forward: how many operations were asked about, those in bodies among them.
        generated: whether the gradient was generated for the page.
    """

    operations: list[Operation] = field(default_factory=list)
    number: dict[Operation, int] = field(default_factory=dict)
    top: list[list[int]] = field(default_factory=list)
    bodies: list[tuple[int, str, list[int], Body]] = field(default_factory=list)
    forward: int = 0
    generated: bool = False

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


def collect(report: Reaches) -> Collected:
    """The operations that a report's ys are computed from, and those made for their gradient.

    Where nobody has built a gradient yet, it is generated, in a copy of the graph, unless that is large.
    """
    found = Collected()
    found.add_graph(report.graph.subgraph_to([*report.ys, *report.xs.values()]))
    found.forward = len(found.operations)
    made = [op for op in report.graph.operations if _made_for(op, found)]
    if not made and len(report.graph) <= GENERATED:
        made = _generate(report, found)
        found.generated = bool(made)
    # With what they are computed from: a loop, for one, runs once more and hands out what its gradient needs.
    found.add_graph(made[0].graph.subgraph_to(op.outputs[0] for op in made) if made else ())
    return found


def _made_for(op: Operation, found: Collected) -> bool:
    """Whether an operation was made for the gradient of one of those found, and is none of them."""
    origin = op.origin
    while origin is not None and origin not in found.number:
        origin = origin.origin
    return origin is not None and op not in found.number


def _generate(report: Reaches, found: Collected) -> list[Operation]:
    """The gradient of a copy, whose operations get the numbers of those that they are copies of."""
    xs = [x for x, reach in zip(report.xs.values(), report.values(), strict=True) if reach.arrives]
    if not xs:
        return []
    copied = rewrite([*report.ys, *xs])
    try:
        with copied.graph.as_default():
            gradients([copied.mapping[y] for y in report.ys], [copied.mapping[x] for x in xs])
    except StopgradError:
        return []  # Of an undefined gradient there is nothing to show; the report says so.
    for old, new in copied.mapping.items():
        found.number.setdefault(new.op, found.number[old.op])
    return [op for op in copied.graph.operations if _made_for(op, found)]
