"""The data of a page as plain lists: operations in columns, so that 100,000 of them stay small.

The page's script ``model.js`` reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stopgrad.base.source import Location
from stopgrad.base.types import TensorType
from stopgrad.flow import updates
from stopgrad.flow.magnitudes.troubles import KINDS
from stopgrad.flow.page.collected import Collected, collect
from stopgrad.flow.page.grouping import Grouping
from stopgrad.flow.page.marks import closed_operands, marks_of
from stopgrad.flow.page.nesting import Path, paths_of
from stopgrad.flow.page.origins import origins_of
from stopgrad.flow.page.page_sources import Sources
from stopgrad.flow.parts import Cut, Reach
from stopgrad.flow.reaches import FROZEN, Reaches
from stopgrad.flow.source_lines import place
from stopgrad.flow.stories import summary_of
from stopgrad.flow.words import READ, counted, names, number, paths_cut, plain
from stopgrad.graph.graph import Operation

SHOWN_OUTPUTS = 4
"""The most outputs of an operation whose types are shown."""

SHOWN_CUTS = 50
"""The most cuts that are shown with a tensor."""


class Table:
    """Numbers distinct texts."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        return list(self._numbers)


# -------------------------------------------------------------------------------------------- columns


def page_data(report: Reaches, with_gradient: bool = True) -> dict[str, Any]:
    """Everything that the page of a report shows, as lists, texts and numbers.

    Args:
        with_gradient: whether the gradient is generated, if there is none yet.
    """
    collected = collect(report, with_gradient)
    sources, types, shapes, prefixes = Sources(), Table(), Table(), Table()
    operations = collected.operations
    inputs = [[collected.number[x.op] for x in op.inputs] for op in operations]
    places = [sources.of(op) for op in operations]
    parts = [op.name.rpartition("/") for op in operations]
    kinds = [op.definition.called(op) for op in operations]
    marks = marks_of(report, collected)
    columns = {
        "type": [types.number(kind) for kind in kinds],
        "shape": _shapes(operations, shapes),
        "prefix": [prefixes.number(prefix) for prefix, _, _ in parts],
        # Operations of another framework have the names of that framework, which the reader knows.
        "name": [
            _short(op.type, last) if kind == op.type else 0
            for op, kind, (_, _, last) in zip(operations, kinds, parts, strict=True)
        ],
        "place": places,
        "mark": "".join(marks),
        "count": [len(row) for row in inputs],
        "inputs": [i - x for i, row in enumerate(inputs) for x in row],
        "origin": origins_of(collected, inputs, collected.number[report.ys[0].op]),
    }
    lines = [sources.places[p][1] if p >= 0 else 0 for p in places]
    paths = paths_of(collected, report.calls, inputs)
    grouping = _grouped(collected, inputs, paths, lines, [collected.number[x.op] for x in report.xs.values()])
    columns["group"] = grouping.group_of[: collected.forward]
    content = _content(report, collected, sources)
    return {
        "operations": columns,
        "closed": closed_operands(collected, marks),
        **_wired(collected),
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
        "summary": summary_of(report),
        "generated": collected.generated,
        "ys": [collected.number[y.op] for y in report.ys],
        **content,
        "places": sources.places,
        "files": sources.files(),
    }


def _shapes(operations: Sequence[Operation], texts: Table) -> list[int]:
    """For each operation, the number of the text of its types. Texts are cached: making one is slow."""
    numbers: dict[tuple[TensorType, ...], int] = {}
    row = []
    for op in operations:
        types = tuple([y.type for y in op.outputs])
        number = numbers.get(types)
        if number is None:
            number = numbers[types] = texts.number(_shape(types))
        row.append(number)
    return row


def _shape(types: Sequence[TensorType]) -> str:
    text = ", ".join(map(repr, types[:SHOWN_OUTPUTS]))
    more = len(types) - SHOWN_OUTPUTS
    return f"{text}, and {more} more" if more > 0 else text


def _short(type: str, name: str) -> str | int:
    """A name as a number if it follows from the type: 0 for the type itself, 7 for ``type_7``."""
    if name == type:
        return 0
    digits = name[len(type) + 1 :]
    if name.startswith(f"{type}_") and digits.isascii() and digits.isdigit() and digits[0] != "0":
        return int(digits) if len(digits) < 10 else name
    return name


Place = tuple[int, int]
"""An operation and the position of one of its operands or outputs."""


def _wired(collected: Collected) -> dict[str, list[int]]:
    """For operands by position, the parameters of bodies that they go into, and what computes them.

    Each is a flat list of pairs.
    """
    bodies = [*collected.bodies, *collected.made_bodies]
    holders = {i: holder for holder, _, operations, _ in bodies for i in operations}
    parameters: dict[Place, set[Place]] = {}
    results: dict[Place, set[Place]] = {}
    for holder in sorted(set(holders.values())):
        op = collected.operations[holder]
        for wire in op.definition.wires(op):
            ends = [(parameters, i, x) for i, x in zip(wire.operands, wire.body.inputs, strict=True)]
            ends += [(results, i, y) for i, y in zip(wire.outputs, wire.body.outputs, strict=True)]
            for inner_places, i, x in ends:
                inner = None if x is None else collected.number.get(x.op)
                if i is not None and inner is not None and holders.get(inner) == holder:
                    inner_places.setdefault((holder, i), set()).add((inner, x.index))
    lists: dict[str, list[int]] = {"into": [], "out": []}
    position = 0
    for n, op in enumerate(collected.operations):
        for i, x in enumerate(op.inputs):
            for inner, _ in sorted(parameters.get((n, i), ())):
                lists["into"] += [position, inner]
            for inner in _innermost((collected.number[x.op], x.index), results):
                lists["out"] += [position, inner]
            position += 1
    return lists


def _innermost(output: Place, results: Mapping[Place, set[Place]]) -> list[int]:
    """The operations in bodies, nested ones included, whose result an output is."""
    innermost: list[int] = []
    waiting = list(results.get(output, ()))
    while waiting:
        place = waiting.pop()
        further = results.get(place)
        if further is None:
            innermost.append(place[0])
        else:
            waiting.extend(further)
    return sorted(set(innermost))


def _grouped(
    collected: Collected,
    inputs: Sequence[Sequence[int]],
    paths: Sequence[Path],
    lines: Sequence[int],
    asked: Iterable[int],
) -> Grouping:
    """The groups of the operations asked about. What was made for a gradient is shown beside these."""
    # A constant is built once and used in several scopes, so it must not order them.
    constant = [op.type == "Const" for op in collected.operations]
    ordering = [[x for x in row if not constant[x]] for row in inputs]
    apart = {i for i in asked if not inputs[i]}
    grouping = Grouping(ordering, paths, lines, apart)
    grouping.add(collected.top)
    held = Counter(holder for holder, *_ in collected.bodies)
    opened: dict[int, int] = {}
    for holder, label, operations, _ in collected.bodies:
        if holder not in opened:
            opened[holder] = grouping.open(holder)
        parent = grouping.body(label, opened[holder]) if held[holder] > 1 else opened[holder]
        grouping.add(operations, parent)
    return grouping


def _flat(grouping: Grouping) -> list[int]:
    """The members outside of groups, and then those of each group, as lists that begin with their length."""
    flat = []
    for members in [grouping.top, *(group.members for group in grouping.groups)]:
        flat.append(len(members))
        flat.extend(members)
    return flat


# -------------------------------------------------------------------------------------------- findings


def _content(report: Reaches, collected: Collected, sources: Sources) -> dict[str, Any]:
    """The content of the report: tensors, cuts, stops that do nothing, and findings."""
    index = {report.place(cut): i for i, cut in enumerate(report.cuts)}
    idle = {sources.at(_user_line(gate.location)) for gate in report.idle}
    return {
        "tensors": [
            {
                "label": plain(label),
                "op": collected.number[x.op],
                "status": str(reach.status),
                "paths": _joined(
                    f"{FROZEN}, {report.requires}" if x in report.frozen else _paths(reach), reach
                ),
                "cuts": [index[report.place(cut)] for cut in reach.cuts[:SHOWN_CUTS]],
            }
            for (label, x), reach in zip(report.xs.items(), report.values(), strict=True)
        ],
        "cuts": [
            {
                "ops": _numbers(cut.operations, collected),
                "uses": cut.uses,
                "status": str(cut.status),
                "reason": _reason(cut),
                "place": sources.at(_user_line(cut.location)),
                "behind": names(cut.behind, report.xs),
                "opens": names(cut.opens, report.xs),
                "switched": cut.switched,
            }
            for cut in report.cuts
        ],
        "idle": sorted(idle),
        "findings": [
            {
                "kind": finding.kind,
                "message": f"{finding.kind}: {names(finding.keys, report.xs)}"
                if finding.keys and not finding.frozen and finding.kind not in KINDS
                else finding.message,
                "place": sources.at(_user_line(finding.location)),
                "ops": _numbers(finding.operations, collected),
            }
            for finding in report.findings
        ],
    }


def _user_line(location: Location | None) -> Location | None:
    """The line that the reader looks for."""
    return None if location is None else location.cause


def _reason(cut: Cut) -> str:
    location = cut.location
    return (
        cut.reason
        if location is None or location.cause is location
        else f"{cut.reason}, in {place(location)}"
    )


def _joined(text: str, reach: Reach) -> str:
    """What is said of the paths to a tensor, and what an update does to it."""
    return text if reach.update is None else f"{text}; {updates.told(reach.update)}"


def _paths(reach: Reach) -> str:
    """What is said of the paths to a tensor."""
    if reach.cut_paths:
        return paths_cut([(reach.cut_paths, reach.paths)]) or "the only path is cut"
    return counted(reach.paths, "path") if reach.paths <= READ else f"more than {number(READ)} paths"


def _numbers(operations: Iterable[Operation], collected: Collected) -> list[int]:
    return [collected.number[op] for op in operations if op in collected.number]
