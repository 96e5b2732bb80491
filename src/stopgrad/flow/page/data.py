"""What a page holds, as plain lists: operations in columns, so that 100,000 of them stay small.

The scripts of the page read it in ``model.js``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stopgrad.autodiff.reasons import wall
from stopgrad.body import Body
from stopgrad.flow.page.grouping import Grouping
from stopgrad.flow.page.sources import Sources
from stopgrad.graph import Operation
from stopgrad.op import Kind

MARKS = {"live": "l", "cut": "c", "hidden": "h", "idle": "i", "aside": "a"}
GRADIENT = "g"
"""The mark of an operation that was made for a gradient."""

SHOWN_OUTPUTS = 4
"""Of so many outputs of an operation the types are shown."""


class Table:
    """Different texts, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        return list(self._numbers)


@dataclass
class Collected:
    """The operations of a page, numbered: those asked about and then those made for gradients.

    Attributes:
        top: the operations in no body, of the one kind and of the other.
        bodies: who runs the body, what it is called there, and its operations.
        forward: how many operations were asked about, those in bodies among them.
    """

    operations: list[Operation] = field(default_factory=list)
    number: dict[Operation, int] = field(default_factory=dict)
    top: list[list[int]] = field(default_factory=list)
    bodies: list[tuple[int, str, list[int]]] = field(default_factory=list)
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
                    self.bodies.append((holder, label, inner))
                    waiting.extend(inner)


def _bodies(op: Operation) -> Iterator[tuple[str, Body]]:
    for (name, kind), value in zip(op.definition.kinds.items(), op.values, strict=True):
        if kind is Kind.BODY:
            yield name, value
        elif kind is Kind.BODIES:
            yield from ((f"{name}[{i}]", body) for i, body in enumerate(value))


def collect(flow: Any) -> Collected:
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


# -------------------------------------------------------------------------------------------- columns


def page_data(flow: Any) -> dict[str, Any]:
    """All that the page of a report shows, in lists, texts and numbers."""
    found = collect(flow)
    sources, types, shapes, prefixes = Sources(), Table(), Table(), Table()
    operations = found.operations
    inputs = [[found.number[x.op] for x in op.inputs] for op in operations]
    places = [sources.of(op) for op in operations]
    names = [op.name.rpartition("/") for op in operations]
    columns = {
        "type": [types.number(op.type) for op in operations],
        "shape": [shapes.number(_shape(op)) for op in operations],
        "prefix": [prefixes.number(prefix) for prefix, _, _ in names],
        "name": [_short(op.type, last) for op, (_, _, last) in zip(operations, names, strict=True)],
        "place": places,
        "mark": _marks(flow, found),
        "count": [len(row) for row in inputs],
        "inputs": [i - x for i, row in enumerate(inputs) for x in row],
        "origin": [_origin(op, found) for op in operations[found.forward :]],
    }
    grouping = _grouped(found, inputs, [sources.places[p][1] if p >= 0 else 0 for p in places])
    columns["group"] = grouping.group_of
    told = _Told(flow, found, sources)
    return {
        "operations": columns,
        "closed": _closed(found, columns["mark"]),
        "groups": {
            "kind": [group.kind for group in grouping.groups],
            "label": [group.label for group in grouping.groups],
            "parent": [group.parent for group in grouping.groups],
            "op": [group.op for group in grouping.groups],
        },
        "order": _flat(grouping),
        "types": types.texts(),
        "shapes": shapes.texts(),
        "prefixes": prefixes.texts(),
        "ys": [found.number[y.op] for y in flow.ys],
        **told.lists(),
        "places": sources.places,
        "files": sources.files(),
    }


def _shape(op: Operation) -> str:
    shown = ", ".join(repr(y.type) for y in op.outputs[:SHOWN_OUTPUTS])
    more = len(op.outputs) - SHOWN_OUTPUTS
    return f"{shown}, and {more} more" if more > 0 else shown


def _short(type: str, name: str) -> str | int:
    """A name that follows from the type as its number: 0 for the type itself, 7 for ``type_7``."""
    if name == type:
        return 0
    digits = name[len(type) + 1 :]
    if name.startswith(f"{type}_") and digits.isascii() and digits.isdigit() and digits[0] != "0":
        return int(digits) if len(digits) < 10 else name
    return name


def _origin(op: Operation, found: Collected) -> int:
    return -1 if op.origin is None else found.number.get(op.origin, -1)


def _marks(flow: Any, found: Collected) -> str:
    marks = flow.marks()
    letters = [MARKS[marks.get(op, "aside")] for op in found.operations[: found.forward]]
    return "".join(letters) + GRADIENT * (len(found.operations) - found.forward)


def _closed(found: Collected, marks: str) -> list[int]:
    """Operands through which no gradient passes, though it passes the operation and comes to the operand.

    They are positions among all operands, in the operations' order.
    """
    closed, position = [], 0
    for op, mark in zip(found.operations[: found.forward], marks, strict=False):
        for i, x in enumerate(op.inputs):
            if mark == "l" and marks[found.number[x.op]] == "l" and wall(op, i, frozenset()) is not None:
                closed.append(position + i)
        position += len(op.inputs)
    return closed


def _grouped(found: Collected, inputs: Sequence[Sequence[int]], lines: Sequence[int]) -> Grouping:
    # A constant is built once and used in other scopes too: it puts none of them before another.
    constant = [op.type == "Const" for op in found.operations]
    ordering = [[x for x in row if not constant[x]] for row in inputs]
    grouping = Grouping(ordering, [_scopes(op) for op in found.operations], lines)
    for top in found.top:
        grouping.add(top)
    held = Counter(holder for holder, _, _ in found.bodies)
    opened: dict[int, int] = {}
    for holder, label, operations in found.bodies:
        if holder not in opened:
            opened[holder] = grouping.open(holder)
        parent = grouping.body(label, opened[holder]) if held[holder] > 1 else opened[holder]
        grouping.add(operations, parent)
    return grouping


def _scopes(op: Operation) -> tuple[str, ...]:
    """The path of scopes in an operation's name; what was made for a gradient lies there as its origin does."""
    own = tuple(op.name.split("/")[:-1])
    if op.origin is None:
        return own
    origin = op.origin
    while origin.origin is not None:
        origin = origin.origin
    return (*own, *origin.name.split("/")[:-1])


def _flat(grouping: Grouping) -> list[int]:
    """The members of no group and then of each, one list after the other, each begun by its length."""
    flat = []
    for members in [grouping.top, *(group.members for group in grouping.groups)]:
        flat.append(len(members))
        flat.extend(members)
    return flat


# -------------------------------------------------------------------------------------------- findings


class _Told:
    """What the report says: about tensors, cuts, gates and findings."""

    def __init__(self, flow: Any, found: Collected, sources: Sources) -> None:
        self._flow = flow
        self._found = found
        self._sources = sources
        self._cuts: dict[Any, int] = {}
        self._shown: list[dict[str, Any]] = []

    def lists(self) -> dict[str, Any]:
        tensors = [
            {
                "label": str(label),
                "op": self._found.number[x.op],
                "status": str(reach.status),
                "paths": counted(reach.paths),
                "cutPaths": counted(reach.cut_paths),
                "cuts": [self._cut(cut) for cut in reach.cuts],
            }
            for (label, x), reach in zip(self._flow.xs.items(), self._flow.values(), strict=True)
        ]
        gates = [
            {
                "op": self._found.number.get(gate.operation, -1),
                "place": self._sources.at(gate.location),
                "idle": bool(gate.idle),
                "cuts": [str(label) for label in gate.cuts],
                "uses": gate.uses,
            }
            for gate in self._flow.gates
        ]
        findings = [
            {
                "kind": finding.kind,
                "message": finding.message,
                "place": self._sources.at(finding.location),
                "ops": self._numbers(finding.operations),
            }
            for finding in self._flow.findings
        ]
        return {"tensors": tensors, "cuts": self._shown, "gates": gates, "findings": findings}

    def _numbers(self, operations: Iterable[Operation]) -> list[int]:
        return [self._found.number[op] for op in operations if op in self._found.number]

    def _cut(self, cut: Any) -> int:
        key = cut.operations, cut.status, cut.reason
        number = self._cuts.setdefault(key, len(self._shown))
        if number == len(self._shown):
            self._shown.append(
                {
                    "ops": self._numbers(cut.operations),
                    "status": str(cut.status),
                    "reason": cut.reason,
                    "place": self._sources.at(cut.location),
                    "uses": cut.uses,
                    "behind": [str(label) for label in cut.behind],
                    "opens": [str(label) for label in cut.opens],
                    "switched": bool(cut.switched),
                }
            )
        return number


def counted(number: int) -> str:
    """A number of paths: exact up to nine digits, else as ``1.2e34``.

    Examples:
        >>> counted(12), counted(2**200), counted(10**5000)
        ('12', '1.6e60', '1.0e5000')
    """
    if number < 10**9:
        return str(number)
    spare = max(0, number.bit_length() - 64)
    exponent, tenths = divmod(math.log10(number >> spare) + spare * math.log10(2), 1)
    mantissa = f"{10**tenths:.1f}"
    return f"1.0e{int(exponent) + 1}" if mantissa == "10.0" else f"{mantissa}e{int(exponent)}"
