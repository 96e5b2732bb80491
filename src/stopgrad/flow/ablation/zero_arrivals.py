"""Where the arriving gradient is zero: exactly, or up to the rounding of the terms of its sum.

A tensor's cotangent is a sum of contributions: one for each use, and if the tensor was broadcast, one for
each element. If they cancel, as at the maximum in a softmax, a rounding error is left. So a cotangent is
compared with the sum of the absolute contributions.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stopgrad.base.dtypes import DType
from stopgrad.base.types import float64
from stopgrad.graph.build import emit
from stopgrad.graph.builder import current
from stopgrad.graph.graph import Operation, Output, by_id
from stopgrad.graph.selective import Acting
from stopgrad.graph.traits import Magnitudes
from stopgrad.ops.elementwise.arithmetic import abs, add
from stopgrad.ops.elementwise.compare import equal
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.reductions.reduce import reduce_max
from stopgrad.ops.structural.sources import ones_like
from stopgrad.transforms.gradients.reach import Step, between, routes
from stopgrad.transforms.gradients.reverse import backpropagate, generating


def tolerance(dtype: DType) -> float:
    """The size, relative to its contributions, up to which a sum counts as zero: some units of rounding.

    For 16-bit floats these are few, because true results would count as zero otherwise.
    """
    bits = dtype.itemsize * 4 if dtype.is_complex else dtype.itemsize * 8
    if bits == 16:
        return 8 * (2.0**-8 if dtype.name == "bfloat16" else 2.0**-11)
    return 64 * float(np.finfo(np.float32 if bits == 32 else np.float64).eps)


@dataclass
class Arrivals:
    """The gradients that arrive, in one differentiation, at every tensor between ys and some targets.

    Attributes:
        ys: what is differentiated.
        cotangents: those of each tensor, one for each group of inputs for which the same selective gates
            act.
        gradients: the cotangents that arrive at the inputs.
        live: the tensors on a path to an input.
        groups: the selective gates that act for each group, and its targets.
    """

    ys: Sequence[Output]
    cotangents: dict[Output, list[Output]] = field(default_factory=dict)
    gradients: dict[Output, Output] = field(default_factory=dict)
    live: dict[Output, None] = field(default_factory=dict)
    groups: list[tuple[Acting, set[Output]]] = field(default_factory=list)

    def reached(self, walls: Collection[Output]) -> set[Output]:
        """The tensors at which something arrives if these let nothing pass."""
        tensors: set[Output] = set()
        for acting, targets in self.groups:
            tensors.update(_tensors_on(self.ys, between(self.ys, targets, walls, acting)))
        return tensors


def _tensors_on(ys: Iterable[Output], path: Iterable[Step]) -> Iterable[Output]:
    return [*ys, *(op.inputs[i] for op, live in path for i in live)]


def arrivals(
    ys: Sequence[Output],
    xs: Sequence[Output],
    others: Sequence[Output],
    seeds: Sequence[Output] | None = None,
    stops: Collection[Output] = (),
) -> Arrivals:
    """Differentiate, and keep the cotangents of all tensors on the way to xs and to *others*.

    Gradients reach the tensors in *stops* and go no further.
    """
    graph = ys[0].op.graph
    ys = [y for y in ys if y.type.differentiable]
    arriving = Arrivals(ys)
    with graph.as_default(), generating(graph, "arrivals"):
        builder = current()
        if seeds is None:
            builder.origin = ys[0].op if ys else None
            seeds = [ones_like(y) for y in ys]
        for acting, group, path in routes(ys, xs, stops):
            arriving.live.update(dict.fromkeys(_tensors_on((), path)))
            targets = {*group, *others}
            wider = between(ys, targets, stops, acting)
            tensors = list(dict.fromkeys([*_tensors_on((), wider), *targets]))
            cotangents = backpropagate(ys, tensors, seeds, wider, acting, stops)
            arriving.groups.append((acting, targets))
            for x, g in zip(tensors, cotangents, strict=True):
                if g is not None:
                    arriving.cotangents.setdefault(x, []).append(g)
            arrived = dict(zip(tensors, cotangents, strict=True))
            arriving.gradients |= {x: g for x in group if (g := arrived[x]) is not None}
    return arriving


def sizes(cotangents: Mapping[Output, Sequence[Output]]) -> dict[Output, list[Output]]:
    """For each tensor, the largest elements of its cotangents relative to their absolute contributions.

    They are float64 scalars, built in the graph: 1 if nothing cancels, 0 if all is exactly zero.
    """
    graph = next(iter(cotangents)).op.graph if cotangents else None
    if graph is None:
        return {}
    with graph.as_default():
        wanted = [g for some in cotangents.values() for g in some]
        sums = _absolute_sums(wanted)
        ratios: dict[Output, Output] = {}
        for g in wanted:
            if g not in ratios:
                total = sums[g]
                whole = where(equal(total, 0.0), ones_like(total), total)
                ratios[g] = reduce_max(_absolute(g) / whole)
    return {x: [ratios[g] for g in some] for x, some in cotangents.items()}


def _absolute(x: Output) -> Output:
    absolute: Output = cast(abs(x), float64)
    return absolute


def _absolute_sums(wanted: Sequence[Output]) -> dict[Output, Output]:
    """For each cotangent, the sum of absolute contributions, as far as these were only added and moved."""
    adding: set[Operation] = set()
    stack = [g.op for g in wanted]
    while stack:
        op = stack.pop()
        if op not in adding and _is_followed(op):
            adding.add(op)
            stack.extend([x.op for x in op.inputs])
    sums: dict[Output, Output] = {}
    for op in sorted(adding, key=by_id):
        for x in op.inputs:
            if x not in sums:
                sums[x] = _absolute(x)
        parts = [sums[x] for x in op.inputs]
        how = op.definition.magnitudes
        if how is Magnitudes.KEPT:
            total = parts[0]
        elif how is Magnitudes.ADDED:
            total = functools.reduce(add, parts)
        else:
            parts = _of_one_rule(op, sums) if how is Magnitudes.SCALED else parts
            total = emit(op.definition, tuple(parts), op.values, "").outputs[0]
        sums[op.outputs[0]] = total
    for g in wanted:
        if g not in sums:
            sums[g] = _absolute(g)
    return sums


def _is_followed(op: Operation) -> bool:
    has_rule = op.origin is not None and op.definition.magnitudes is not None
    return has_rule and all(x.type.differentiable for x in op.inputs)  # A mask is only a value.


def _of_one_rule(op: Operation, sums: Mapping[Output, Output]) -> list[Output]:
    """The sums for the operands of a product that come from the same gradient rule; the values of others.

    So sums that one rule computed and then scaled count. What earlier rules computed is one contribution:
    else the sums would grow from layer to layer, and true gradients would count as zeros.
    """
    return [sums[x] if x.op.origin is op.origin else _absolute(x) for x in op.inputs]
