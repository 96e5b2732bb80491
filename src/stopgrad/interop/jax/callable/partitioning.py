"""Parts a graph and its gradient into what is computed forwards and kept, and what needs cotangents.

JAX parts a function that it linearises in the same way: all that depends on no cotangent is known when the
function is called.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from stopgrad.base.errors import GradientError
from stopgrad.graph.batch_rules import BROADCAST, ELEMENTWISE
from stopgrad.graph.body import bodies_in, walk
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph, Operation, Output, needed
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import rewrite
from stopgrad.rewrite.loop_fusion import unite_scans
from stopgrad.transforms.gradients.reverse import gradients


class Parted:
    """A copy of a graph, to which gradients are added.

    Args:
        inputs: of the graph.
        outputs: what it computes.
        live: the inputs with respect to which it is differentiated.
        moves: the outputs that depend on these.

    Attributes:
        inputs, outputs: those of the copy.
        xs, ys: the inputs and outputs that are live.
        used: the inputs that the gradient of all ys uses; all of them if that gradient is an error, since
            gradients of some ys alone may not be.
        saved: what else the gradient uses that depends on no cotangent; nothing if it is an error.
    """

    used: list[bool]
    inputs: list[Output]
    outputs: list[Output]
    xs: list[Output]
    ys: list[Output]

    def __init__(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        live: Sequence[bool],
        moves: Sequence[bool],
    ) -> None:
        self._live, self._moves = live, moves
        self.used = [True for _ in inputs]
        self.saved: list[Output] = []
        self._seeds: list[Output] = []
        self._gradients: list[Output | None] | None = None
        copied = rewrite(outputs, inputs)
        self._take(copied.inputs, copied.outputs)
        try:
            self._seeds, self._gradients = self._differentiated(self.ys)
        except GradientError:
            return
        self._unite(self._gradients)
        arriving = [g for g in self._gradients if g is not None]
        self.saved = saved_for(arriving, self.inputs, self._seeds)
        steps = needed(arriving, {*self.inputs, *self.saved, *self._seeds})
        used = {x for op in steps for x in op.inputs}.union(arriving)
        self.used = [x in used for x in self.inputs]

    @property
    def residuals(self) -> list[Output]:
        """The tensors from which gradients are computed, besides cotangents."""
        return [*itertools.compress(self.inputs, self.used), *self.saved]

    def _take(self, inputs: Sequence[Output], outputs: Sequence[Output]) -> None:
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.xs = [x for x, is_live in zip(inputs, self._live, strict=True) if is_live]
        self.ys = [y for y, moves in zip(outputs, self._moves, strict=True) if moves]

    def _unite(self, cotangents: Sequence[Output | None]) -> None:
        """Take the loops that also output what the gradient keeps in place of the original ones."""
        inputs, outputs = (
            [*self.inputs, *self._seeds],
            [*self.outputs, *(g for g in cotangents if g is not None)],
        )
        united = rewrite(outputs, inputs, (unite_scans,))
        self._seeds = united.inputs[len(self.inputs) :]
        copies = iter(united.outputs[len(self.outputs) :])
        self._gradients = [None if g is None else next(copies) for g in cotangents]
        self._take(united.inputs[: len(self.inputs)], united.outputs[: len(self.outputs)])

    def _differentiated(self, ys: Sequence[Output]) -> tuple[list[Output], list[Output | None]]:
        """Placeholders for cotangents of ys, and the gradient at each x."""
        graph = ys[0].op.graph
        seeds = [placeholder_like(y, graph) for y in ys]
        with graph.as_default():
            return seeds, gradients(list(ys), self.xs, seeds)

    def pulled(self, asked: Sequence[bool]) -> tuple[list[Output | None], list[Output | None]]:
        """Placeholders for cotangents of the ys that are *asked* for, and the gradient at each x.

        If that would run a loop again, or use other inputs, there are cotangents for all ys.

        Raises:
            GradientError: the gradient is an error.
        """
        complete = self._gradients
        if complete is not None and all(asked):
            return [*self._seeds], complete
        seeds, cotangents = self._differentiated(
            [y for y, is_asked in zip(self.ys, asked, strict=True) if is_asked]
        )
        if complete is not None:
            arriving = [g for g in cotangents if g is not None]
            steps = needed(arriving, {*self.residuals, *seeds})
            late, inputs = set(_dependents(steps, seeds)), {x.op for x in self.inputs}
            if any(op in inputs or any(bodies_in(op.values)) for op in steps if op not in late):
                return [*self._seeds], complete
        remaining = iter(seeds)
        return [next(remaining) if is_asked else None for is_asked in asked], cotangents


def placeholder_like(x: Output, graph: Graph) -> Output:
    """A placeholder of the type of *x*."""
    return emit(Placeholder, (), (x.dtype, x.shape, ()), "", graph).outputs[0]


def saved_for(
    cotangents: Sequence[Output], inputs: Sequence[Output], seeds: Sequence[Output]
) -> list[Output]:
    """The tensors that gradients use and that depend on no seed, without inputs and seeds.

    Tensors that are as cheap to compute again as to keep are left out. If there are gates that act towards
    some tensors only, none are kept: the paths to these tensors must not be cut in two.
    """
    boundary = {*inputs, *seeds}
    operations = needed(cotangents, boundary)
    pulling = _dependents(operations, seeds)
    if any(op.definition.selective for op in walk(operations)):
        return []
    varying, late = _results(_dependents(operations, inputs)), _results(pulling)
    used = dict.fromkeys(x for op in pulling for x in op.inputs if x not in late)
    used.update(dict.fromkeys(g for g in cotangents if g not in late))
    saved: dict[Output, None] = {}
    for x in used:
        while x in varying:
            sources = [s for s in dict.fromkeys(x.op.inputs) if s in varying or s in boundary]
            if not _is_cheap(x.op) or len(sources) > 1:
                saved[x] = None
                break
            x = sources[0]
    return list(saved)


def _dependents(operations: Iterable[Operation], sources: Iterable[Output]) -> list[Operation]:
    """The operations, out of some in order, that depend on *sources*."""
    moved = set(sources)
    dependents = []
    for op in operations:
        if any(x in moved for x in op.inputs):
            dependents.append(op)
            moved.update(op.outputs)
    return dependents


def _results(operations: Iterable[Operation]) -> set[Output]:
    return {y for op in operations for y in op.outputs}


def _is_cheap(op: Operation) -> bool:
    """Whether an operation only repeats elements, or is elementwise and the gradient's own."""
    rule = op.definition.batch
    return rule is BROADCAST or (rule is ELEMENTWISE and op.origin is not None)
