"""Unites loops over the same body: the forward loop, and the one that returns what the gradient needs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from stopgrad.graph.body import Body, scan_key
from stopgrad.graph.graph import Operation, Output
from stopgrad.rewrite.engine import Copying, only
from stopgrad.transforms.control.scans import Scan


@only(Scan)
def unite_scans(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output | None] | None:
    """Replaces scans that differ only in what they return by one, without unused results. Exact.

    It saves a forward loop for each gradient.
    """
    carries: int = op.carries
    key = (Scan, scan_key(op))
    united = copying.table.get(key)
    if united is None:
        handed_out = _handed_out(copying)[key]
        body: Body = op.body
        wider = Body(body.graph, body.inputs, [*body.outputs[:carries], *handed_out])
        outputs = copying.add(Scan, inputs, (wider, *values[1:]), op)
        united = copying.table[key] = outputs[:carries], dict(zip(handed_out, outputs[carries:], strict=True))
    last, by_result = united
    return [*last, *(by_result.get(y) for y in op.body.outputs[carries:])]


def _handed_out(copying: Copying) -> dict[Hashable, dict[Output, None]]:
    """For scans that can be united, the results of the body that any of them returns and that are used."""
    by_scan: dict[Hashable, dict[Output, None]] | None = copying.table.get(Scan)
    if by_scan is None:
        by_scan = copying.table[Scan] = {}
        used = {x for op in copying.coming for x in op.inputs}.union(copying.wanted)
        for op in copying.coming:
            if op.definition is Scan:
                results = zip(op.outputs[op.carries :], op.body.outputs[op.carries :], strict=True)
                by_scan.setdefault((Scan, scan_key(op)), {}).update(
                    (result, None) for y, result in results if y in used
                )
    return by_scan
