"""Shows a loss and its gradient as a picture and as a listing.

The left has the forward operations in layers (laid out by igraph); the right has each gradient operation, in
the row of its forward operation. Where a stop cuts the gradient, the right is empty: nothing was generated.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import stopgrad as sg
from stopgrad.base.namespaces import require
from stopgrad.tools.recipes.result import LossGraph
from stopgrad.transforms.gradients.reach import between

CHAR, HEIGHT, ROW, GAP, MARGIN = 6.7, 22.0, 40.0, 16.0, 14.0
"""In pixels: the width of a character, the height of a box, and the distances of rows, boxes and margins."""


@dataclass
class Box:
    """An operation and where it is drawn."""

    op: sg.Operation
    kind: str
    text: str
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return CHAR * len(self.text) + 14.0


def kind_of(op: sg.Operation, graph: LossGraph) -> str:
    """The role of a forward operation for the gradient, which gives its colour."""
    if op.outputs[0] in set(graph.parameters):
        return "parameter"
    if op.type == "Placeholder":
        return "input"
    if op.definition.gate and op in graph.stops():
        return "stop"
    live = op in _live(graph)
    return "gate" if op.definition.gate and live else "forward" if live else "hidden"


def _live(graph: LossGraph) -> set[sg.Operation]:
    """Forward operations that a gradient passes on its way to the parameters."""
    return {op for op, _ in between([graph.loss], set(graph.parameters))}


def _without_constants(operations: Iterable[sg.Operation]) -> list[sg.Operation]:
    return [op for op in operations if op.type != "Const"]


def _text(op: sg.Operation) -> str:
    if op.type in ("Placeholder", "Parameter"):
        return op.name
    return "stop_gradient" if op.type == "StopGradient" else op.type


# -------------------------------------------------------------------------------------------- picture


def to_svg(graph: LossGraph) -> str:
    """The picture as SVG, coloured by the classes of the page's style sheet.

    Boxes show a description when the pointer is over them.
    """
    forward = [Box(op, kind_of(op, graph), _text(op)) for op in _without_constants(graph.forward)]
    generated = [Box(op, "gradient", _text(op)) for op in _without_constants(graph.generated)]
    _place_forward(forward)
    divide = max(b.x + b.width / 2 for b in forward) + 3 * GAP
    _place_generated(generated, forward, divide)
    boxes = {b.op: b for b in [*forward, *generated]}
    width = max(b.x + b.width / 2 for b in boxes.values()) + MARGIN
    height = max(b.y for b in boxes.values()) + HEIGHT / 2 + MARGIN
    arriving = {g for g in graph.gradients if g is not None}
    parts = [_band(b.y, width) for b in _row_heads(forward)]
    parts += [_edge(boxes[x.op], box) for box in boxes.values() for x in box.op.inputs if x.op in boxes]
    parts += [_box(box, any(y in arriving for y in box.op.outputs)) for box in boxes.values()]
    label = html.escape(
        f"{graph.title}: {len(graph.forward)} forward and {len(graph.generated)} gradient operations"
    )
    heads = (
        f'<text class="head" x="{MARGIN}" y="16">forward</text>'
        f'<text class="head" x="{divide:.0f}" y="16">generated for the gradient</text>'
    )
    return (
        f'<svg class="graph" role="img" aria-label="{label}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">{heads}{"".join(parts)}</svg>'
    )


def _place_forward(boxes: Sequence[Box]) -> None:
    """Layers from top to bottom, by igraph's implementation of Sugiyama, Tagawa & Toda 1981.

    Boxes of a layer do not overlap.
    """
    igraph = require("igraph", "drawing graphs", "tour")
    index = {box.op: i for i, box in enumerate(boxes)}
    edges = [(index[x.op], index[box.op]) for box in boxes for x in box.op.inputs if x.op in index]
    layout = igraph.Graph(len(boxes), edges, directed=True).layout_sugiyama(hgap=30, vgap=1, maxiter=500)
    for box, (x, y) in zip(boxes, layout.coords[: len(boxes)], strict=True):
        box.x, box.y = x, MARGIN + 28.0 + round(y) * ROW
    _close_up(boxes)


def _close_up(boxes: Sequence[Box]) -> None:
    """Move columns together, in their order, as far as possible without boxes of a row touching.

    The layout leaves room for edges, which are drawn over it.
    """
    edge: dict[float, float] = {}
    column = MARGIN
    for _, group in groupby(sorted(boxes, key=lambda box: box.x), key=lambda box: round(box.x)):
        members = list(group)
        column = max(column + 18.0, *(edge.get(box.y, 0.0) + GAP + box.width / 2 for box in members))
        for box in members:
            box.x = column
            edge[box.y] = column + box.width / 2


def _place_generated(generated: Sequence[Box], forward: Sequence[Box], divide: float) -> None:
    """Each in the row of its forward operation, one beside the other in the order of generation."""
    rows = {box.op: box.y for box in forward}
    lowest = max(rows.values())
    edge: dict[float, float] = {}
    for box in sorted(generated, key=lambda b: b.op.id):
        origin = box.op.origin
        while origin is not None and origin not in rows:
            origin = origin.origin
        box.y = rows.get(origin, lowest) if origin is not None else lowest
        left = edge.get(box.y, divide)
        box.x = left + box.width / 2
        edge[box.y] = left + box.width + GAP


def _row_heads(forward: Sequence[Box]) -> list[Box]:
    return list({box.y: box for box in forward}.values())[::2]


def _band(y: float, width: float) -> str:
    return f'<rect class="band" x="0" y="{y - ROW / 2:.1f}" width="{width:.0f}" height="{ROW:.0f}"/>'


def _edge(start: Box, end: Box) -> str:
    """A curve; between gradients in their colour, faint for forward values that the gradient uses."""
    kind = (
        "gradient"
        if start.kind == "gradient"
        else "use"
        if end.kind == "gradient"
        else "hidden"
        if start.kind == "hidden"
        else "forward"
    )
    below = end.y > start.y
    y1, y2 = start.y + (HEIGHT / 2 if below else -HEIGHT / 2), end.y + (-HEIGHT / 2 if below else HEIGHT / 2)
    x1, x2 = start.x, end.x
    if start.y == end.y:
        y1, y2 = start.y, end.y
        x1, x2 = (
            (start.x + start.width / 2, end.x - end.width / 2)
            if end.x > start.x
            else (start.x - start.width / 2, end.x + end.width / 2)
        )
    bend = (y1 + y2) / 2
    curve = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {bend:.1f} {x2:.1f} {bend:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class="edge {kind}" d="{curve}"/>'


def _box(box: Box, arrives: bool) -> str:
    tip = html.escape(_describe(box.op))
    extra = " result" if arrives else ""
    x, y = box.x - box.width / 2, box.y - HEIGHT / 2
    radius = 2 if box.kind == "stop" else 5
    return (
        f'<g class="op {box.kind}{extra}"><title>{tip}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{HEIGHT}" rx="{radius}"/>'
        f'<text x="{box.x:.1f}" y="{box.y + 4:.1f}">{html.escape(box.text)}</text></g>'
    )


def _describe(op: sg.Operation) -> str:
    purpose = f", for the gradient of {op.origin.name}" if op.origin is not None else ""
    return f"{op.type} {op.name}{purpose}\n{op.outputs[0].type!r}\n{place(op)}"


# -------------------------------------------------------------------------------------------- listing


def place(op: sg.Operation) -> str:
    """The user's line, as ``file:line  expression``."""
    location = None if op.type == "Placeholder" else op.location
    return (
        f"{Path(location.file).name}:{location.line}  {' '.join(location.source.split())}"
        if location is not None
        else ""
    )


@dataclass(frozen=True)
class Line:
    """A forward operation, the user's expression for it, and what was generated for its gradient."""

    kind: str
    place: str
    operation: str
    generated: str


def listing(graph: LossGraph) -> list[Line]:
    """The forward operations in order, each with its gradient operations or the reason why there are none."""
    by_origin: dict[sg.Operation, list[str]] = {}
    for op in _without_constants(graph.generated):
        if op.origin is not None:
            by_origin.setdefault(op.origin, []).append(op.type)
    reasons = {
        "stop": "— stopped here —",
        "hidden": "nothing: no gradient comes here",
        "input": "nothing: not asked for",
        "parameter": "the gradient arrives",
    }
    lines = []
    for op in _without_constants(graph.forward):
        kind = kind_of(op, graph)
        if kind == "parameter" and graph.flow[op.outputs[0]].status not in ("flows", "partly stopped"):
            kind = "hidden"
        types = ", ".join(by_origin.get(op, []))
        says = (
            reasons.get(kind, "handed on")
            if not types
            else f"{types} (sum of all ways)"
            if kind == "parameter"
            else types
        )
        lines.append(Line(kind, place(op), _text(op), says))
    return lines


def to_text(graph: LossGraph) -> str:
    """The listing as aligned text."""
    lines = listing(graph)
    width = max(len(line.operation) for line in lines)
    place_width = min(64, max(len(line.place) for line in lines))
    return "\n".join(
        f"{line.place[:place_width]:<{place_width}}  {line.operation:<{width}}  {line.generated}"
        for line in lines
    )
