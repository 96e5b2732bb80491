"""The report as dicts and lists. docs/flow-report.md describes the fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from stopgrad.flow.lines import Surveyed
from stopgrad.flow.magnitudes.magnitude_parts import data_of, summary_data, trouble_data
from stopgrad.flow.parts import ARRIVES, Cut, Finding, GateUse, Place
from stopgrad.flow.reaches import Reaches
from stopgrad.flow.reports.json_form import integer, operation_of, place_of
from stopgrad.flow.updates import data_of as update_data, summary_data as updates_data
from stopgrad.graph.graph import Output
from stopgrad.graph.op import Status


def document_of(report: Reaches) -> dict[str, Any]:
    """The report as dicts, lists, strings, numbers and None."""
    cuts = report.cuts
    index = {report.place(cut): i for i, cut in enumerate(cuts)}
    return {
        "summary": _summary(report, cuts),
        "ys": [_tensor(y) for y in report.ys],
        "xs": [
            _tensor_asked(label, x, report[label], index, report.frozen) for label, x in report.xs.items()
        ],
        "cuts": [_cut(cut) for cut in cuts],
        "gates": _gates(report),
        "troubles": [trouble_data(trouble) for trouble in report.troubles],
        "findings": [_finding(finding) for finding in report.findings],
    }


def _summary(report: Reaches, cuts: Sequence[Cut]) -> dict[str, Any]:
    statuses = Counter(reach.status for reach in report.values())
    return {
        "tensors": len(report),
        "reached": sum(statuses[status] for status in ARRIVES),
        "statuses": {str(status): statuses[status] for status in Status},
        "cuts": len(cuts),
        "idle": sum(finding.kind == "idle" for finding in report.findings),
        "frozen": len([x for x in report.xs.values() if x in report.frozen]),
        "magnitudes": summary_data(report.troubles, report.magnitudes),
        "updates": updates_data(report.updates),
    }


def _tensor(x: Output) -> dict[str, Any]:
    sizes = [size if isinstance(size, int) else str(size) for size in x.shape]
    return {"name": x.name, "dtype": x.dtype.name, "shape": sizes}


def _tensor_asked(
    label: str, x: Output, reach: Surveyed, index: Mapping[Place, int], frozen: Container[Output]
) -> dict[str, Any]:
    return {
        "key": label,
        **_tensor(x),
        "status": str(reach.status),
        "paths": integer(reach.paths),
        "cut_paths": integer(reach.cut_paths),
        "cuts": sorted([index[at] for at in reach.places]),
        "frozen": x in frozen,
        "magnitude": data_of(reach.magnitude),
        "update": update_data(reach.update),
    }


def _cut(cut: Cut) -> dict[str, Any]:
    return {
        "status": str(cut.status),
        "reason": cut.reason,
        "location": place_of(cut.location),
        "uses": cut.uses,
        "operations": [operation_of(op) for op in cut.operations],
        "switched": cut.switched,
        "behind": list(cut.behind),
        "opens": list(cut.opens),
    }


def _gates(report: Reaches) -> list[dict[str, Any]]:
    """The gates; those of one line that do the same are one entry."""
    lines: dict[Any, list[GateUse]] = {}
    for gate in report.gates:
        does = gate.operation.type, gate.fully, gate.partly, gate.why_idle
        lines.setdefault((report.line(gate.operation), *does), []).append(gate)
    return [
        {
            "location": place_of(gates[0].location),
            "uses": len(gates),
            "operations": [operation_of(gate.operation) for gate in gates],
            "fully": list(gates[0].fully),
            "partly": list(gates[0].partly),
            "idle": gates[0].idle,
            "why_idle": gates[0].why_idle or None,
        }
        for gates in lines.values()
    ]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "message": finding.message,
        "location": place_of(finding.location),
        "operations": [op.name for op in finding.operations],
        "keys": list(finding.keys),
        "frozen": finding.frozen,
    }
