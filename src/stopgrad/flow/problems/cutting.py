"""The lines that end gradients in a report, as places of a finding."""

from __future__ import annotations

from collections.abc import Iterable

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.parts import ARRIVES
from stopgrad.flow.problems.problem import Site

MOST = 4
"""The most cutting lines that are named."""


def cutting(flow: Flow, names: Iterable[str]) -> list[Site]:
    """The lines that cut all paths to some of the tensors that a report is about."""
    wanted = {name for name in names if name in flow and flow[name].status not in ARRIVES}
    by_line: dict[tuple[str, int], Site] = {}
    operations = [(op, cut.reason) for name in wanted for cut in flow[name].cuts for op in cut.operations[:1]]
    operations += [
        (op, finding.message)
        for finding in flow.noted
        if finding.kind == "left" and (not finding.keys or wanted & set(finding.keys))
        for op in finding.operations
    ]
    for op, reason in operations:
        location = flow.location(op)
        if location is not None:
            by_line.setdefault(
                (location.own.file, location.own.line), Site("cut", f"cut here: {reason}", location.own)
            )
    return list(by_line.values())[:MOST]
