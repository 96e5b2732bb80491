"""What the losses of a training compare: columns of predictions with rows of targets, by mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from stopgrad.base.source import RawLocation
from stopgrad.flow.problems.problem import Problem
from stopgrad.interop.tensorflow.explaining import sites
from stopgrad.interop.tensorflow.recording.places import of_operation
from stopgrad.interop.tensorflow.recording.record import Asking, Event, Kind, Symbol, Value, above
from stopgrad.interop.tensorflow.recording.recorder import READS

COMPARES = frozenset({"Sub", "SquaredDifference"})
"""The operations that compare a prediction with a target, element by element."""

Sizes = tuple[int | None, ...]


@dataclass
class Comparison:
    """A column compared with a row.

    Attributes:
        shapes: of both; None where a size is not known.
        calls: at how many gradients that were asked for at its line it was part of the loss.
        place: the line.
        asked: where these gradients were asked for.
    """

    shapes: tuple[Sizes, Sizes]
    calls: int
    place: RawLocation | None
    asked: Any


class Losses:
    """What the recorded losses had in common."""

    def __init__(self) -> None:
        self.compared: dict[Any, Comparison] = {}

    def asked(self, asking: Asking, point: Any) -> None:
        """A gradient was asked for: what do its losses compare, and with what?"""
        found: dict[Any, tuple[Sizes, Sizes]] = {}
        eager = [loss for loss in asking.losses if isinstance(loss, Value)]
        for event, shapes in _of_events(eager):
            found[event.place] = shapes
        traced = [loss.tensor for loss in asking.losses if isinstance(loss, Symbol)]
        for op, shapes in _of_graph(traced):
            found[of_operation(op)] = shapes
        for place, shapes in found.items():
            known = self.compared.setdefault((place, point), Comparison(shapes, 0, place, point))
            known.calls += 1

    def problems(self, calls: Any) -> Iterator[Problem]:
        """What is wrong with the losses, of those that compare so each time that they are differentiated."""
        for one in self.compared.values():
            if one.calls == calls[one.asked].calls:
                yield _broadcast(one)


def is_column_with_row(a: Sizes, b: Sizes) -> bool:
    """Whether shapes are ``[n, 1]`` and ``[n]``, or the other way round.

    Examples:
        >>> is_column_with_row((8, 1), (8,)), is_column_with_row((8, 1), (8, 1))
        (True, False)
    """
    column, row = sorted((a, b), key=len, reverse=True)
    return len(column) == 2 and len(row) == 1 and column[1] == 1 and row[0] == column[0] and row[0] != 1


def _of_events(losses: Sequence[Value]) -> Iterator[tuple[Event, tuple[Sizes, Sizes]]]:
    """What ran eagerly and compares a column of one with a row of the other."""
    trained: set[Event] = set()
    held: set[Event] = set()  # What was made of stops is no data.
    for event in above(losses):
        inputs = [value.event for value in event.inputs]
        if event.kind is Kind.VARIABLE or trained.intersection(inputs):
            trained.add(event)
        if event.call == "StopGradient" or held.intersection(inputs):
            held.add(event)
        if event.call in COMPARES and len(inputs) == 2:
            a, b = (tuple(value.event.results[value.number][1:]) for value in event.inputs)
            data = [one for one in inputs if one not in trained and one not in held]
            if len(data) == 1 and trained.intersection(inputs) and is_column_with_row(a, b):
                yield event, (a, b)


def _of_graph(losses: Sequence[Any]) -> Iterator[tuple[Any, tuple[Sizes, Sizes]]]:
    """The same in a graph that is traced."""
    trained: set[str] = set()
    held: set[str] = set()
    for op in _operations(losses):
        inputs = [x.op.name for x in op.inputs]
        if any(x.dtype == tf.resource for x in op.inputs) or op.type in READS or trained.intersection(inputs):
            trained.add(op.name)
        if op.type == "StopGradient" or held.intersection(inputs):
            held.add(op.name)
        if op.type in COMPARES and all(x.shape.rank is not None for x in op.inputs):
            a, b = (tuple(x.shape.as_list()) for x in op.inputs)
            data = [name for name in inputs if name not in trained and name not in held]
            if len(data) == 1 and trained.intersection(inputs) and is_column_with_row(a, b):
                yield op, (a, b)


def _operations(losses: Sequence[Any]) -> Iterable[Any]:
    """The operations of a graph that led to losses, in order."""
    stack = [loss.op for loss in losses]
    found = {op.name: op for op in stack}
    while stack:
        for x in stack.pop().inputs:
            if x.op.name not in found:
                found[x.op.name] = x.op
                stack.append(x.op)
    order = {op.name: i for loss in losses[:1] for i, op in enumerate(loss.graph.get_operations())}
    return sorted(found.values(), key=lambda op: order.get(op.name, 0))


def _broadcast(one: Comparison) -> Problem:
    a, b = (list(sizes) for sizes in one.shapes)
    n = a[0]
    told = "[{}]".format
    words = [
        told(", ".join("n" if size is None else str(size) for size in sizes)) for sizes in (a, b, [n, n])
    ]
    return Problem(
        "broadcast-loss",
        f"shapes {words[0]} and {words[1]} are broadcast to {words[2]}: each prediction is compared with "
        "every target",
        sites("made", "compared here", one.place),
        [],
        {"shapes": [a, b], "result": [n, n]},
        "give both one shape: tf.squeeze(pred, -1), or target[:, None]",
    )
