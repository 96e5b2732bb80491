"""How notebooks show graphs, outputs, functions and sessions.

Each class names this module, which is imported when one of them is shown for the first time.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from types import CodeType

from stopgrad.base.source import Location
from stopgrad.flow.asked import Asked
from stopgrad.flow.explain import flow_of
from stopgrad.flow.page.html import drawing, is_drawn
from stopgrad.flow.reports.notebook_html import html_of
from stopgrad.flow.reports.sections import DIM, STRONG, Excerpt, Paragraph, Part, Table
from stopgrad.flow.words import counted, number
from stopgrad.graph.graph import Graph, Output
from stopgrad.ops.structural.sources import Parameter, Placeholder
from stopgrad.run.function import Function
from stopgrad.run.session import Session

ROWS = 30
"""The most parameters, placeholders or types of operations that are listed."""


def _graph(graph: Graph) -> str:
    parts = [Paragraph((f"Graph of {counted(len(graph), 'operation')}", STRONG)), *_inputs(graph)]
    used = {x for op in graph.operations for x in op.inputs}
    ends = tuple([op.outputs[0] for op in graph.operations if op.outputs and used.isdisjoint(op.outputs)])
    if not is_drawn(graph):
        parts.append(Paragraph(("sg.explain(ys, xs).to_html(path) draws it.", DIM)))
        parts.append(_table([(kind, number(n)) for kind, n in _kinds(graph)], "<>"))
        return html_of(parts)
    return html_of(parts) + drawing(flow_of(Asked(graph, ends, {})))


def _kinds(graph: Graph) -> list[tuple[str, int]]:
    return Counter(op.type for op in graph.operations).most_common(ROWS)


def _inputs(graph: Graph) -> Iterator[Part]:
    """The placeholders and parameters of a graph."""
    operations = [op for op in graph.operations if op.definition in (Placeholder, Parameter)]
    rows = [(op.type.lower(), op.name, repr(op.outputs[0].type)) for op in operations[:ROWS]]
    if rows:
        yield _table(rows, "<<<")
    if len(operations) > ROWS:
        yield Paragraph(f"and {number(len(operations) - ROWS)} more")


def _table(rows: Sequence[Sequence[str]], align: str) -> Table:
    return Table(rows, align, 0, 0)


def _output(output: Output) -> str:
    op = output.op
    parts = [Paragraph((output.name, STRONG), f" {output.type!r}, made by {op.type}"), *_place(op.location)]
    return html_of(parts)


def _place(location: Location | None) -> Iterator[Part]:
    """A line of the user's, and its source."""
    if location is not None:
        yield Paragraph((location.cause, DIM))
        yield Excerpt([location.cause])


def _function(function: Function) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    at = Location(code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else None
    traced = f" traced for {counted(function.traces, 'signature')}"
    return html_of([Paragraph((f"Function {function.__name__}", STRONG), traced), *_place(at)])


def _session(session: Session) -> str:
    engine = f" on the engine {session.engine}"
    return html_of([Paragraph(("Session", STRONG), engine), *_inputs(session.graph)])


Graph._repr_html_ = _graph
Output._repr_html_ = _output
Function._repr_html_ = _function
Session._repr_html_ = _session
