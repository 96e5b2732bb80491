"""Loops over one body are run once: the forward loop, and the same that hands out what the gradient keeps."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from stopgrad.body import Body
from stopgrad.control.scans import Scan
from stopgrad.graph import Operation, Output
from stopgrad.rewrite.engine import Copying


def unite_scans(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output | None] | None:
    """One scan for all that differ only in what they hand out, without what nobody uses. Exact.

    It saves a forward loop for each gradient.
    """
    if op.definition is not Scan:
        return None
    carries: int = op.carries
    found = copying.table.get(_key(op))
    if found is None:
        handed_out = _handed_out(copying)[_key(op)]
        body: Body = op.body
        wider = Body(body.graph, body.inputs, [*body.outputs[:carries], *handed_out])
        made = copying.add(Scan, inputs, (wider, *values[1:]), op)
        found = copying.table[_key(op)] = made[:carries], dict(zip(handed_out, made[carries:], strict=True))
    last, by_result = found
    return [*last, *(by_result.get(y) for y in op.body.outputs[carries:])]


def _key(op: Operation) -> Hashable:
    """What scans must share to be one."""
    body: Body = op.body
    return Scan, op.inputs, body.graph, body.inputs, body.outputs[: op.carries], op.values[1:]


def _handed_out(copying: Copying) -> dict[Hashable, list[Output]]:
    """For scans that can be one, the results of the body that any of them hands out and somebody uses."""
    found: dict[Hashable, list[Output]] | None = copying.table.get(Scan)
    if found is None:
        found = copying.table[Scan] = {}
        used = {x for op in copying.coming for x in op.inputs}.union(copying.wanted)
        for op in copying.coming:
            if op.definition is Scan:
                known = found.setdefault(_key(op), [])
                for y, result in zip(op.outputs[op.carries :], op.body.outputs[op.carries :], strict=True):
                    if y in used and result not in known:
                        known.append(result)
    return found
