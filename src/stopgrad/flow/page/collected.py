"""Collects and numbers the operations that a page shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stopgrad.base.errors import StopgradError
from stopgrad.flow.reaches import Reaches
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation
from stopgrad.graph.kinds import Kind
from stopgrad.rewrite import rewrite
from stopgrad.transforms.gradients.reverse import gradients

GENERATED = 20_000
"""The most operations of a graph whose gradient is generated for the page."""


Inside = tuple[int, str, list[int], Body]
"""A body: the number of the operation that runs it, its name there, the numbers of its operations, itself."""


@dataclass
class Collected:
    """The operations of a page, numbered: first those asked about, then those made for gradients.

    Attributes:
        top: the operations asked about that are outside of bodies.
        bodies: for each body of these, the operation that runs it, its name there, its operations, itself.
        made_bodies: the same for bodies of operations made for gradients, outer ones first.
        forward: the number of operations that were asked about, also in bodies.
        generated: whether the gradient was generated for the page.
    """

    operations: list[Operation] = field(default_factory=list)
    number: dict[Operation, int] = field(default_factory=dict)
    top: list[int] = field(default_factory=list)
    bodies: list[Inside] = field(default_factory=list)
    made_bodies: list[Inside] = field(default_factory=list)
    forward: int = 0
    generated: bool = False

    def add(self, operations: Iterable[Operation]) -> list[int]:
        """Number operations; those that are new."""
        new = []
        for op in operations:
            if op not in self.number:
                self.number[op] = len(self.operations)
                new.append(len(self.operations))
                self.operations.append(op)
        return new

    def add_graph(self, operations: Iterable[Operation], bodies: list[Inside]) -> list[int]:
        """Number operations, and those in their bodies, nested ones included; those outside that are new."""
        top = self.add(operations)
        waiting = list(top)
        for holder in waiting:  # Grows.
            op = self.operations[holder]
            for label, body in _bodies(op) if op.definition.has_bodies else ():
                # Several operations may share a body, which is shown in the first.
                inner = self.add(body.graph.subgraph_to(body.results))
                if inner:
                    bodies.append((holder, label, inner, body))
                    waiting.extend(inner)
        return top


def _bodies(op: Operation) -> Iterator[tuple[str, Body]]:
    for (name, kind), value in zip(op.definition.kinds.items(), op.values, strict=True):
        if kind is Kind.BODY:
            yield name, value
        elif kind is Kind.BODIES:
            yield from ((f"{name}[{i}]", body) for i, body in enumerate(value))


def collect(report: Reaches, generate: bool = True) -> Collected:
    """The operations from which a report's ys are computed, and those made for their gradient.

    If there is no gradient yet, it is generated in a copy of the graph if wanted, unless that is large.
    """
    collected = Collected()
    forward = report.graph.subgraph_to([*report.ys, *report.xs.values()])
    collected.top = collected.add_graph(forward, collected.bodies)
    collected.forward = len(collected.operations)
    backward = [op for op in report.graph.operations if _is_backward(op, collected)]
    if not backward and generate and len(report.graph) <= GENERATED:
        backward = _generate(report, collected)
        collected.generated = bool(backward)
    # With their operands: a loop, for example, runs again and returns what its gradient needs.
    with_operands = backward[0].graph.subgraph_to(op.outputs[0] for op in backward) if backward else ()
    collected.add_graph(with_operands, collected.made_bodies)
    return collected


def _is_backward(op: Operation, collected: Collected) -> bool:
    """Whether an operation is not among those found, and was made for the gradient of one of them."""
    origin = op.origin
    while origin is not None and origin not in collected.number:
        origin = origin.origin
    return origin is not None and op not in collected.number


def _generate(report: Reaches, collected: Collected) -> list[Operation]:
    """Generate the gradient in a copy, whose operations get the numbers of the originals."""
    xs = [x for x, reach in zip(report.xs.values(), report.values(), strict=True) if reach.arrives]
    if not xs:
        return []
    copied = rewrite([*report.ys, *xs])
    try:
        with copied.graph.as_default():
            gradients([copied.mapping[y] for y in report.ys], [copied.mapping[x] for x in xs])
    except StopgradError:
        return []  # The gradient is undefined, as the report says: there is nothing to show.
    for old, new in copied.mapping.items():
        collected.number.setdefault(new.op, collected.number[old.op])
    return [op for op in copied.graph.operations if _is_backward(op, collected)]
