"""Batching rules of control flow: bodies are batched, and one loop or choice runs all examples if it can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.batch_rules import build, changed, lengthened, moved, repeated, scalar_beside
from stopgrad.graph.batched_bodies import batched_body, for_all, replay
from stopgrad.graph.defining import Body, Flags, Graph, Operation, Output, Outputs, Partly, Size


def _carried(body: Body, count: int, batched: Flags, size: Size) -> list[bool]:
    """Which parameters are batched: those given, and the carries that become batched in some iteration."""
    flags = list(batched)
    while True:
        which = batched_body(body, flags, size)[1]
        wider = [flags[j] or which[j] for j in range(count)]
        if wider == flags[:count]:
            return flags
        flags[:count] = wider


def _started(operands: Outputs, batched: Flags, flags: Flags, size: Size) -> list[Output]:
    """The operands; unbatched ones whose parameters are batched are repeated for each example."""
    return [
        repeated(x, size) if now and not b else x for x, b, now in zip(operands, batched, flags, strict=True)
    ]


def SCAN(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Partly:  # noqa: N802
    """One scan for all examples; carries and slices that differ between examples are batched."""
    first, last = op.carries, op.carries + op.sequences
    flags = _carried(op.body, first, batched, size)
    batched_carries = [*flags[:first], *[False] * (len(op.body.outputs) - first)]
    body, which = batched_body(op.body, flags, size, batched_carries)
    inputs = _started(operands, batched, flags, size)
    inputs[first:last] = [
        moved(x, 0, 1) if b else x for x, b in zip(inputs[first:last], batched[first:last], strict=True)
    ]
    outputs = d.again(op, inputs, changed(op, body=body))
    results = [moved(y, 1, 0) if b else y for y, b in zip(outputs[first:], which[first:], strict=True)]
    return Partly([*outputs[:first], *results], which)


def CASE(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Partly:  # noqa: N802
    """One choice for an unbatched index; for a batched one, all branches are computed and selected from."""
    if batched[0]:
        return _select_from_all(op, operands, batched, size)
    flags_of_branches = [batched_body(body, batched[1:], size)[1] for body in op.branches]
    batched_results = [any(which) for which in zip(*flags_of_branches, strict=True)]
    bodies = tuple([batched_body(body, batched[1:], size, batched_results)[0] for body in op.branches])
    return Partly(d.again(op, operands, (bodies,)), batched_results)


def _select_from_all(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Partly:
    """Compute all branches, and select for each example the results of the branch that its index names."""
    index, graph = operands[0], d.current().graph
    assert graph is not None
    chosen: list[Output] = []
    for number, body in enumerate(op.branches):
        here = _hits(index, number, len(op.branches))
        shielded, flags = _shielded(here, operands[1:], batched[1:], size)
        names = dict(zip(body.inputs, operands[1:], strict=True))
        outputs, which = replay(body, shielded, flags, size, graph, names)
        results = d.everywhere([y for y in outputs if y is not None], which, size)
        if not number:
            chosen = results
            continue
        beyond = build("GreaterEqual", index, scalar_beside(index, number, np.int32))
        chosen = [
            build("SelectV2", lengthened(beyond, y.ndim), y, x) for x, y in zip(chosen, results, strict=True)
        ]
    return Partly(chosen, [True] * len(chosen))


def _hits(index: Output, number: int, count: int) -> Output | None:
    """Which examples take a branch; indices out of range are clipped. None for a single branch."""
    if count == 1:
        return None
    comparison = "LessEqual" if number == 0 else "GreaterEqual" if number == count - 1 else "Equal"
    return build(comparison, index, scalar_beside(index, number, np.int32))


def _shielded(
    here: Output | None, operands: Sequence[Output], batched: Flags, size: Size
) -> tuple[list[Output], list[bool]]:
    """The operands with gradients only for the examples that are *here*, and which of them are batched.

    A branch's results for the other examples are not used, but their derivatives may be infinite, and zero
    times infinity is NaN. So an unbatched operand is repeated for each example, as in JAX. With a single
    branch, *here* is None and nothing changes.
    """
    if here is None:
        return list(operands), list(batched)
    shielded = []
    for x, b in zip(operands, batched, strict=True):
        if x.type.differentiable:
            x = x if b else repeated(x, size)
            x = build("SelectV2", lengthened(here, x.ndim), x, build("ZeroGradient", x))
        shielded.append(x)
    return shielded, [b or x.type.differentiable for x, b in zip(operands, batched, strict=True)]


def WHILE(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Partly:  # noqa: N802
    """One loop for all examples; if its condition is batched, it runs until the last example has ended."""
    count = len(op.outputs)
    flags = _carried(op.body, count, batched, size)
    condition, (apart,) = batched_body(op.condition, flags, size)
    if not apart:
        body, which = batched_body(op.body, flags, size, flags[:count])
        outputs = d.again(
            op, _started(operands, batched, flags, size), changed(op, condition=condition, body=body)
        )
        return Partly(outputs, which)
    flags[:count] = [True] * count
    inputs = _started(operands, batched, flags, size)
    values = changed(op, condition=_any_goes_on(op, flags, size), body=_those_that_go_on(op, flags, size))
    return Partly(d.again(op, inputs, values), flags[:count])


def _any_goes_on(op: Operation, flags: Flags, size: Size) -> Body:
    """The condition of a loop whose examples end separately: whether any of them goes on."""
    with d.tracing("vmap", None) as trace:
        parameters = _parameters(trace.graph, op, flags, size)
        ((holds,), (apart,)) = replay(op.condition, parameters, flags, size, trace.graph)
        assert holds is not None
        assert apart
        return d.close(trace, parameters, [build("Any", holds, values=((0,), False))])


def _those_that_go_on(op: Operation, flags: Flags, size: Size) -> Body:
    """One step of such a loop, which leaves the examples that have ended unchanged."""
    with d.tracing("vmap", None) as trace:
        parameters = _parameters(trace.graph, op, flags, size)
        ((holds,), _) = replay(op.condition, parameters, flags, size, trace.graph)
        assert holds is not None
        names = dict(zip(op.body.inputs, parameters, strict=True))
        shielded, inside = _shielded(holds, parameters, flags, size)
        outputs, which = replay(op.body, shielded, inside, size, trace.graph, names)
        updated = d.everywhere([y for y in outputs if y is not None], which, size)
        selected = [
            build("SelectV2", lengthened(holds, new.ndim), new, old)
            for new, old in zip(updated, parameters, strict=False)
        ]
        return d.close(trace, parameters, selected)


def _parameters(graph: Graph, op: Operation, flags: Flags, size: Size) -> list[Output]:
    return [
        d.parameter_of(graph, for_all(x, size) if b else x.type, x.op)
        for x, b in zip(op.body.inputs, flags, strict=True)
    ]


def CHECKPOINT(op: Operation, operands: Outputs, batched: Flags, size: Size) -> Partly:  # noqa: N802
    """A checkpoint of the batched body."""
    body, which = batched_body(op.body, batched, size)
    return Partly(d.again(op, operands, changed(op, body=body)), which)
