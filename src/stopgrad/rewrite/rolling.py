"""Rolls up repeated layers and time steps, which a Python loop wrote out, into loops that are compiled once.

Compilation time grows with the graph, XLA's even faster. A run of equal segments (:mod:`.segments`) becomes a
:class:`Scan`: what a segment takes from the one before is its carry; what each has of its own (a layer's
weights, a slice of the input, what the forward run kept) is stacked; and so is what is used outside.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stopgrad.base.garbage import without_gc
from stopgrad.base.types import DType, float32
from stopgrad.graph.body import Body, bodies_in
from stopgrad.graph.graph import Graph, Operation, Output, needed
from stopgrad.graph.operands import Literal
from stopgrad.graph.verify import verify_if_enabled
from stopgrad.ops.elementwise.arithmetic import AddN
from stopgrad.ops.elementwise.convert import Cast
from stopgrad.ops.indexing.slices import StridedSliceGrad
from stopgrad.ops.shapes.join import Pack
from stopgrad.ops.structural.sharding import declared_sharding
from stopgrad.ops.structural.sources import Assign, Const, Fill, Placeholder
from stopgrad.rewrite.engine import Copying, Rewritten, rewrite
from stopgrad.rewrite.repeated_parts import Listing, Run
from stopgrad.rewrite.stacks import Stacks, arranged, spans_together
from stopgrad.transforms.control.scans import Scan

LEAST_TIMES = 8
"""The fewest equal segments that become a loop."""
LEAST_SAVED = 1500
"""The fewest operations that all loops must save. Below it, XLA compiles the unrolled graph as fast."""
_LEAST_IN_ONE = 30
"""The fewest operations that each loop must save."""
_COPIED = 2**15
"""The most bytes that may be copied into and out of stacks at each run, for each operation saved."""
_SCATTERED = 8
"""The most parts of results that may be cut out one by one, for each operation saved."""
_SMALL = 64

Source = tuple[int, int]
"""An output of a segment: the operation's offset, and the output's position."""


def roll(prepared: Rewritten) -> Rewritten:
    """Replaces runs of equal segments by loops, in the graph and in its bodies.

    The same operations run on the same values, in the same order. Only the terms of a sum over all segments
    may be added in another order, if they are not all known before.
    """
    return without_gc(_roll, prepared)


def _roll(prepared: Rewritten) -> Rewritten:
    if len(prepared.graph) >= LEAST_SAVED and any(
        op.definition is Assign for op in prepared.graph.operations
    ):
        done = rewrite(prepared.outputs, prepared.inputs, (_assigned,))
        rolled = _roll(done)
        mapping = {old: rolled.mapping[new] for old, new in done.mapping.items() if new in rolled.mapping}
        return replace(rolled, mapping=mapping)
    notes: list[str] = []
    mapping, graph = _rolled(prepared.outputs, prepared.inputs, {}, notes)
    verify_if_enabled(graph)
    inputs, outputs = [mapping[x] for x in prepared.inputs], [mapping[y] for y in prepared.outputs]
    return Rewritten(graph, inputs, outputs, mapping, notes)


def _assigned(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Replaces an assignment by its value: the session knows the parameter."""
    return (inputs[1],) if op.definition is Assign else None


def _rolled(
    outputs: Sequence[Output], inputs: Sequence[Output], bodies: dict[Body, Body], notes: list[str]
) -> tuple[dict[Output, Output], Graph]:
    operations = needed(outputs, set(inputs))
    for op in operations:
        for body in bodies_in(op.values) if op.definition.has_bodies else ():
            if body not in bodies:
                bodies[body] = _rolled_body(body, bodies, notes)
    listing = Listing(operations, outputs)
    runs = _worthwhile(listing, notes) if len(listing.operations) >= LEAST_SAVED else []
    roller = _Roller(listing, runs, inputs, outputs, bodies)
    roller.build()
    return roller.stacks.mapping, roller.copying.graph


def _rolled_body(body: Body, bodies: dict[Body, Body], notes: list[str]) -> Body:
    mapping, graph = _rolled(body.results, body.inputs, bodies, notes)
    outputs = [None if y is None else mapping[y] for y in body.outputs]
    return Body(graph, [mapping[x] for x in body.inputs], outputs)


def _worthwhile(listing: Listing, notes: list[str]) -> list[Run]:
    """The runs that save enough, and of whose results few values have to be cut out."""
    runs = [r for r in listing.runs(LEAST_TIMES) if _saved(r) >= _LEAST_IN_ONE]
    refused: list[tuple[Run, str]] = []
    while True:
        homes = _homes(runs)
        against = [_against(listing, r, homes) for r in runs]
        if not any(against):
            break
        refused += [(r, why) for r, why in zip(runs, against, strict=True) if why]
        runs = [r for r, why in zip(runs, against, strict=True) if not why]
    if sum(map(_saved, runs)) < LEAST_SAVED:
        runs = []
    notes += [f"{_named(listing, r)} run as a loop" for r in runs]
    notes += [
        f"{_named(listing, r)} are compiled one by one, since {why}; sg.scan, over stacks, is compiled once"
        for r, why in refused
        if _saved(r) >= LEAST_SAVED
    ]
    return runs


def _against(listing: Listing, run: Run, homes: Collection[int]) -> str:
    """Why a loop would cost more than it saves; empty if it does not."""
    scattered, copied = _scattered(listing, run, homes), _copied(listing, run, homes)
    if scattered * _SCATTERED > _saved(run):
        return f"{scattered:,} of their values are used one by one outside"
    if copied > _saved(run) * _COPIED:
        return f"{copied / 2**20:,.0f} MiB would be copied at every run"
    return ""


def _named(listing: Listing, run: Run) -> str:
    """The name of a run in notes."""
    location = listing.operations[run.start + run.inside[0]].location
    place = f", built at {location!r}," if location else ""
    return f"{run.times} times {len(run.inside)} operations{place}"


def _saved(run: Run) -> int:
    return (run.times - 1) * len(run.inside)


def _copied(listing: Listing, run: Run, homes: Collection[int]) -> int:
    """The bytes that are copied into stacks, and out of them as results of the graph, at each run."""
    middle = run.start + run.times // 2 * run.period
    segments = [
        listing.operations[middle : middle + run.period],
        listing.operations[middle - run.period : middle],
    ]
    moved: set[Output] = set()
    for slot in run.slots:
        if slot.delay is None:
            x, other = (segment[slot.offset].inputs[slot.operand] for segment in segments)
            if x is not other and x.op.definition is not Const and listing.place.get(x.op) not in homes:
                moved.add(x)
    moved.update(y for op in segments[0] for y in op.outputs if y in listing.wanted)
    return run.times * sum([_bytes(x) for x in moved])


def _bytes(x: Output) -> int:
    size = x.type.size
    return size * x.dtype.itemsize if isinstance(size, int) else 0


def _homes(runs: Sequence[Run]) -> frozenset[int]:
    return frozenset([i for run in runs for i in range(run.start, run.end)])


def _scattered(listing: Listing, run: Run, homes: Collection[int]) -> int:
    """The number of a run's values that operations outside of runs take, but not all of them together."""
    count, operations = 0, listing.operations
    for offset in run.inside:
        for op in operations[run.start + offset : run.end : run.period]:
            for y in op.outputs:
                users = [operations[u] for u in listing.uses.get(y, ()) if u not in homes]
                count += any(
                    user.definition not in (AddN, Pack) or len(user.inputs) < run.times for user in users
                )
    return count


def _adds_in(x: Output) -> DType:
    """The dtype in which 16-bit terms are added; the sum is rounded once."""
    return float32 if x.dtype.is_floating and x.dtype.itemsize == 2 else x.dtype


def _as(copying: Copying, x: Output, dtype: DType) -> Output:
    return x if x.dtype is dtype else copying.add(Cast, (x,), (dtype,), x.op)[0]


class _Roller:
    """Copies a graph, with its runs as loops.

    Attributes:
        listing: its operations.
        runs: the runs, by the positions where they start.
        homes: the positions of the operations in runs.
        copying: the new graph.
        stacks: the new tensors for old outputs.
        terms: for sums of which a loop adds some terms, the terms that are left: old and new outputs.
    """

    def __init__(
        self,
        listing: Listing,
        runs: Sequence[Run],
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        bodies: dict[Body, Body],
    ) -> None:
        self.listing = listing
        self.runs = {run.start: run for run in runs}
        self.homes = _homes(runs)
        self.copying = Copying(Graph(), (), None, bodies=bodies)
        self.stacks = Stacks(self.copying)
        for x in inputs:
            self.stacks.mapping[x] = self.copying.input(x.type, x.op, declared_sharding(x))
        self.outputs = outputs
        self.terms: dict[Operation, list[Output]] = {}

    def build(self) -> None:
        operations, position = self.listing.operations, 0
        while position < len(operations):
            run = self.runs.get(position)
            if run is None:
                self._copy(operations[position])
                position += 1
            else:
                _Loop(self, run).build()
                position = run.end
        for y in self.outputs:
            self.stacks.value(y)

    def _copy(self, op: Operation) -> None:
        terms = self.terms.get(op)
        if terms is None:
            self.stacks.copy(op)
        else:
            self.stacks.mapping[op.outputs[0]] = _as(self.copying, self.total(terms, op), op.outputs[0].dtype)

    def total(self, terms: Sequence[Output], like: Operation) -> Output:
        """The sum of terms of the old graph and of the new one, without rounding."""
        graph, dtype = self.copying.graph, _adds_in(like.outputs[0])
        values = [x if x.op.graph is graph else self.stacks.value(x) for x in terms]
        wide = tuple([_as(self.copying, x, dtype) for x in values])
        return wide[0] if len(wide) == 1 else self.copying.add(AddN, wide, (), like)[0]

    def split_terms(self, op: Operation, absorbed: Collection[Output], start: int) -> list[Output]:
        """The terms before those that a loop will add, if they are known before it starts.

        These and the absorbed ones are removed from the sum, whose first term will be the loop's.
        """
        terms = self.terms.setdefault(op, list(op.inputs))
        first = next(i for i, x in enumerate(terms) if x in absorbed)
        graph, place = self.copying.graph, self.listing.place
        before, rest = terms[:first], [x for x in terms[first:] if x not in absorbed]
        if any(x.op.graph is not graph and place.get(x.op, -1) >= start for x in before):
            before, rest = [], [*before, *rest]
        self.terms[op] = rest
        return before


class _Loop:
    """Builds the scan for a run."""

    def __init__(self, roller: _Roller, run: Run) -> None:
        self.roller, self.run = roller, run
        self.stacks, self.copying = roller.stacks, roller.copying
        self.body = Copying(Graph(), (), None, bodies=roller.copying.bodies)
        self.like = self.op(0, run.inside[0])
        self.delays: dict[Source, int] = {}  # The number of segments over which each output is carried.
        self.own: dict[tuple[Output, ...], Output] = {}  # Parameters, by their values in each segment.
        self.shared: dict[Output, Output] = {}
        self.carried: dict[tuple[Source, int], Output] = {}
        self.first: dict[tuple[Source, int], Output] = {}  # The first values of carries, as old outputs.
        self.inner: dict[Source, Output] = {}  # The outputs inside the body.
        self.sums: list[tuple[Source, Operation, list[Output]]] = []
        self.handed_out: list[Source] = []

    def op(self, segment: int, offset: int) -> Operation:
        return self.roller.listing.operations[self.run.start + segment * self.run.period + offset]

    def each(self, source: Source) -> list[Output]:
        """An output in each of the segments."""
        offset, index = source
        return [self.op(k, offset).outputs[index] for k in range(self.run.times)]

    def build(self) -> None:
        self._find_carries()
        inputs = self._inputs()
        self._find_results()
        self._fill_body(inputs)
        self._emit()
        self._sink()

    # ------------------------------------------------------------------------------------- the body

    def _find_carries(self) -> None:
        for slot in self.run.slots:
            if slot.delay:
                source = (slot.source, slot.output)
                self.delays[source] = max(self.delays.get(source, 0), slot.delay)
                if slot.delay == 1:
                    self.first[source, 1] = self.op(0, slot.offset).inputs[slot.operand]
        operations, run = self.roller.listing.operations, self.run
        for source, delay in self.delays.items():
            for ago in range(1, delay + 1):
                if (source, ago) not in self.first:
                    made_by = operations[run.start + source[0] - ago * run.period]
                    self.first[source, ago] = made_by.outputs[source[1]]
                self.carried[source, ago] = self._parameter(self.first[source, ago])

    def _parameter(self, like: Output) -> Output:
        return self.body.input(like.type, self.like)

    def _inputs(self) -> dict[tuple[int, int], Output]:
        """The tensors in the body for operands from outside of the segment."""
        inputs = {}
        for slot in self.run.slots:
            key = slot.offset, slot.operand
            if slot.delay:
                inputs[key] = self.carried[(slot.source, slot.output), slot.delay]
            elif slot.delay is None:
                values = [self.op(k, slot.offset).inputs[slot.operand] for k in range(self.run.times)]
                inputs[key] = self._input(values)
        return inputs

    def _input(self, values: list[Output]) -> Output:
        """The parameter for values from before the run."""
        x = values[0]
        if all(value is x for value in values):
            if x not in self.shared:
                constant = self._constant(x)
                self.shared[x] = self._parameter(x) if constant is None else constant
            return self.shared[x]
        key = tuple(values)
        if key not in self.own:
            self.own[key] = self._parameter(x)
        return self.own[key]

    def _constant(self, x: Output) -> Output | None:
        """A small constant, built again in the body, where compilers see it."""
        small = x.op.definition is Const and x.op.values[0].array.size <= _SMALL
        return self.body.add(Const, (), x.op.values, x.op)[0] if small else None

    def _fill_body(self, inputs: dict[tuple[int, int], Output]) -> None:
        inner = {(s.offset, s.operand): (s.source, s.output) for s in self.run.slots if s.delay == 0}
        for offset in self.run.inside:
            op = self.op(0, offset)
            operands = [
                inputs[offset, i] if (offset, i) in inputs else self.inner[inner[offset, i]]
                for i in range(len(op.inputs))
            ]
            outputs = self.body.add(op.definition, tuple(operands), op.values, op)
            self.inner.update(((offset, j), y) for j, y in enumerate(outputs))

    # ------------------------------------------------------------------------------------- results

    def _find_results(self) -> None:
        """Find what is used outside, and how: the last value, a sum, or each value."""
        for offset in self.run.inside:
            for index in range(len(self.op(0, offset).outputs)):
                source = offset, index
                values = self.each(source)
                used = [k for k, y in enumerate(values) if self._is_used_outside(y)]
                delay = self.delays.get(source, 0)
                if not used or used[0] >= self.run.times - delay:
                    continue
                total = self._total(values) if len(used) == len(values) else None
                if total is None:
                    self.handed_out.append(source)
                else:
                    before = self.roller.split_terms(total, frozenset(values), self.run.start)
                    self.sums.append((source, total, before))

    def _is_used_outside(self, y: Output) -> bool:
        run, listing = self.run, self.roller.listing
        if y in listing.wanted:
            return True
        return any(
            not run.start <= u < run.end or (u - run.start) % run.period in run.sunk
            for u in listing.uses.get(y, ())
        )

    def _total(self, values: Sequence[Output]) -> Operation | None:
        """The sum that takes each of these values once, if it is their only user outside."""
        total: Operation | None = None
        for y in values:
            outside = self._outside(y)
            if y in self.roller.listing.wanted or len(outside) != 1:
                return None
            op = self.roller.listing.operations[outside[0]]
            if (
                op.definition is not AddN
                or outside[0] in self.roller.homes
                or (total is not None and op is not total)
            ):
                return None
            total = op
        return total

    def _outside(self, y: Output) -> list[int]:
        run = self.run
        return [
            u
            for u in self.roller.listing.uses.get(y, ())
            if not run.start <= u < run.end or (u - run.start) % run.period in run.sunk
        ]

    # ------------------------------------------------------------------------------------- the loop

    def _emit(self) -> None:
        keys = list(self.carried)
        carries = [self.carried[key] for key in keys]
        following = [self.inner[s] if ago == 1 else self.carried[s, ago - 1] for s, ago in keys]
        first = [self.stacks.value(self.first[key]) for key in keys]
        for source, total, before in self.sums:
            y = self.inner[source]
            y = _as(self.body, y, _adds_in(y))
            carries.append(self._parameter(y))
            following.append(self.body.add(AddN, (carries[-1], y), (), total)[0])
            first.append(self._first_sum(y, total, before))
        backwards = self.stacks.run_backwards(self.own)
        stacked = [self.stacks.stack(x[::-1] if backwards else x, self.like) for x in self.own]
        constants = [(x, p) for x, p in self.shared.items() if p.op.definition is Placeholder]
        inputs = [*first, *stacked, *(self.stacks.value(x) for x, _ in constants)]
        parameters = [*carries, *self.own.values(), *(p for _, p in constants)]
        results = [*following, *(self.inner[source] for source in self.handed_out)]
        body = Body(self.body.graph, parameters, results)
        self.copying.bodies[body] = body
        values = (body, len(carries), len(stacked), self.run.times, backwards, 1)
        outputs = self.copying.add(Scan, tuple(inputs), values, self.like)
        self._place(keys, outputs, backwards)

    def _first_sum(self, y: Output, total: Operation, before: Sequence[Output]) -> Output:
        """The first value of a sum: the terms before, or else a zero."""
        if before:
            return self.roller.total(before, total)
        nothing = np.asarray(-0.0 if y.dtype.is_floating else 0, y.dtype.numpy)
        if y.dtype.is_complex:
            nothing = np.asarray(complex(-0.0, -0.0), y.dtype.numpy)
        zero = self.copying.add(Const, (), (Literal(nothing),), total)[0]
        return self.copying.add(Fill, (zero,), (y.shape,), total)[0] if y.shape else zero

    def _place(self, keys: Sequence[tuple[Source, int]], outputs: Sequence[Output], backwards: bool) -> None:
        """Record the new tensors for old outputs."""
        count = self.run.times
        for (source, ago), y in zip(keys, outputs, strict=False):
            self.stacks.mapping[self.op(count - ago, source[0]).outputs[source[1]]] = y
        for (_, total, _), y in zip(self.sums, outputs[len(keys) :], strict=False):
            self.roller.terms[total].insert(0, y)
        for source, y in zip(self.handed_out, outputs[len(keys) + len(self.sums) :], strict=True):
            values = self.each(source)
            self.stacks.hold(y, values[::-1] if backwards else values)

    # ----------------------------------------------------------------------------------- afterwards

    def _sink(self) -> None:
        """Compute what was left for after the loop: gradients of slices, together if they are added up."""
        for offset in sorted(self.run.sunk):
            sunk = [self.op(k, offset) for k in range(self.run.times)]
            if not self._sink_together(sunk):
                for op in sunk:
                    self.stacks.copy(op)

    def _sink_together(self, slices: Sequence[Operation]) -> bool:
        """One gradient of a slice for many adjacent ones that are added up."""
        values = [op.outputs[0] for op in slices]
        total = self._total_of_sunk(values)
        spans = spans_together([op.spans for op in slices])
        if total is None or spans is None or slices[0].definition is not StridedSliceGrad:
            return False
        parts = self.stacks.stack([op.inputs[0] for op in slices], slices[0])
        sunk = self.copying.add(
            StridedSliceGrad,
            (arranged(self.copying, parts, spans, slices[0]),),
            (slices[0].values[0], spans.spans),
            slices[0],
        )
        before = self.roller.split_terms(total, frozenset(values), self.run.start)
        self.roller.terms[total][:0] = [*before, *sunk]
        return True

    def _total_of_sunk(self, values: Sequence[Output]) -> Operation | None:
        users = {u for y in values for u in self.roller.listing.uses.get(y, ())}
        if (
            len(users) != 1
            or users & self.roller.homes
            or any(y in self.roller.listing.wanted for y in values)
        ):
            return None
        op = self.roller.listing.operations[users.pop()]
        once = op.definition is AddN and len(frozenset(values).intersection(op.inputs)) == len(values)
        return op if once and len(op.inputs) == len(set(op.inputs)) else None
