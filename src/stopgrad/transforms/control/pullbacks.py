"""The pullback of a body that keeps no intermediate values: it computes the body again first."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Acting, Body, Operation, Output
from stopgrad.ops.structural.sources import zeros_like
from stopgrad.transforms.gradients.reach import between
from stopgrad.transforms.gradients.reverse import backpropagate


def recomputed_pullback(
    body: Body, gs: Sequence[Output | None], live: Sequence[int], acting: Acting, op: Operation, what: str
) -> tuple[Body, list[bool]]:
    """A body that computes *body* again and pulls cotangents back through it.

    Args:
        body: the forward body.
        gs: the cotangents of its results; None for results without one.
        live: the positions of the parameters whose cotangents are wanted.
        acting: the selective gates that are closed.
        op: the operation that runs the body.
        what: names the pullback in errors.

    Returns:
        The pullback, which takes the cotangents that are not None and then the body's operands, and returns a
        cotangent for each live parameter; and whether each of these is reached. The cotangents of those that
        are not reached are zero.
    """
    with d.tracing(what, op.graph, origin=op) as trace:
        seeds = [d.parameter_of(trace.graph, g.type, g.op) for g in gs if g is not None]
        parameters = [d.parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
        built: dict[Output, Output] = {}
        results = d.inline(body.results, dict(zip(body.inputs, parameters, strict=True)), built)
        ys = [y for y, g in zip(results, gs, strict=True) if g is not None]
        xs = [parameters[i] for i in live]
        inside = acting.union(built[gate.outputs[0]].op for gate in acting if gate.outputs[0] in built)
        found = backpropagate(ys, xs, seeds, between(ys, set(xs), (), inside), inside)
        filled = [zeros_like(x) if dx is None else dx for x, dx in zip(xs, found, strict=True)]
        return d.close(trace, [*seeds, *parameters], filled), [dx is not None for dx in found]
