"""The pullback of a body that keeps no intermediate values: it computes the body again first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Acting, Body, Operation, Output
from stopgrad.ops.structural.sources import zeros_like
from stopgrad.transforms.gradients.cotangents import NOWHERE, Key, Parts
from stopgrad.transforms.gradients.holding import is_open
from stopgrad.transforms.gradients.reach import between
from stopgrad.transforms.gradients.reverse import parts_in_body


class Pulled(NamedTuple):
    """The pullback of a body.

    Attributes:
        body: takes the cotangents that are not None, and then the operands of the forward body.
        parts: of its results, the cotangents of each live parameter.
        zeros: of its results, those of each live parameter that stand for a part that there is not; None if
            there is no need of them.
    """

    body: Body
    parts: list[Parts]
    zeros: list[Output | None]


def recomputed_pullback(
    body: Body, gs: Sequence[Output | None], live: Sequence[int], acting: Acting, op: Operation, what: str
) -> Pulled:
    """A body that computes *body* again and pulls cotangents back through it.

    Args:
        body: the forward body.
        gs: the cotangents of its results; None for results without one.
        live: the positions of the parameters whose cotangents are wanted.
        acting: the selective gates that are closed.
        op: the operation that runs the body.
        what: names the pullback in errors.
    """
    apart = is_open(op, acting)  # Another branch may have parts that this one has not.
    with d.tracing(what, op.graph, origin=d.current().origin) as trace:
        seeds = [d.parameter_of(trace.graph, g.type, g.op) for g in gs if g is not None]
        parameters = [d.parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
        built: dict[Output, Output] = {}
        results = d.inline(body.results, dict(zip(body.inputs, parameters, strict=True)), built)
        ys = [y for y, g in zip(results, gs, strict=True) if g is not None]
        xs = [parameters[i] for i in live]
        inside = acting.union(built[gate.outputs[0]].op for gate in acting if gate.outputs[0] in built)
        operands = {x: i for i, x in enumerate(parameters, len(op.inputs) - len(parameters))}
        cotangents = parts_in_body(operands, ys, xs, seeds, between(ys, set(xs), (), inside), inside)
        lacking = [apart or NOWHERE not in parts for parts in cotangents]
        zeros = [zeros_like(x) if lacks else None for x, lacks in zip(xs, lacking, strict=True)]
        flat = [y for parts, zero in zip(cotangents, zeros, strict=True) for y in (*parts.values(), zero)]
        pullback = d.close(trace, [*seeds, *parameters], flat)
    outputs = iter(pullback.outputs)
    parts, none = [], []
    for some in cotangents:
        parts.append(Parts({holds: y for holds in some if (y := next(outputs)) is not None}))
        none.append(next(outputs))
    return Pulled(pullback, parts, none)


def keys_of(pulled: Sequence[Pulled]) -> list[Key]:
    """What arrives in any of these bodies: the positions of live parameters, with what is held."""
    rows = zip(*(branch.parts for branch in pulled), strict=True)  # A row for each parameter.
    return [(k, holds) for k, row in enumerate(rows) for holds in dict.fromkeys(h for p in row for h in p)]


def results_for(keys: Sequence[Key], pulled: Pulled) -> list[Output | None]:
    """The results of a pullback for these keys."""
    return [pulled.parts[k].get(holds, pulled.zeros[k]) for k, holds in keys]
