"""Finds repeated parts of a graph: runs of segments with the same operations, wired in the same way.

In the list of operations, the segments of a run follow each other. An operand is computed in the segment
itself; in one of the last few, and carried; or before the run, one for all segments or one for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.indexing.slices import StridedSlice, StridedSliceGrad
from stopgrad.rewrite.periods import Stretch, stretches

_SLICES = frozenset({StridedSlice, StridedSliceGrad})
"""Slices, which may differ between segments if they can be computed outside of the loop."""

_MOST_DELAY = 4  # The most segments over which a value is carried.
_MOST_LAG = 32  # The most equal parts that may be wired differently before the wiring repeats.
_BEFORE = (0, -1)  # An operand from before the run; others are (number of operations ago, output).

_Wiring = tuple[Any, ...]


class Slot(NamedTuple):
    """An operand in a segment: its operation and position, and where it is computed.

    ``delay`` is the number of segments ago, None for before the run; ``source`` is the operation of that
    segment, and ``output`` the position among its outputs.
    """

    offset: int
    operand: int
    delay: int | None
    source: int
    output: int


class Run(NamedTuple):
    """Segments that are the same.

    Attributes:
        start: the position of the first operation.
        period: the number of operations of a segment.
        times: the number of segments.
        inside: the offsets of operations that stay in the loop.
        hoisted: the offsets of operations that are computed before it.
        sunk: the offsets of operations that are computed after it.
        slots: the operands of operations in the loop.
    """

    start: int
    period: int
    times: int
    inside: Sequence[int]
    hoisted: Collection[int]
    sunk: Collection[int]
    slots: Sequence[Slot]

    @property
    def end(self) -> int:
        return self.start + self.period * self.times


class Listing:
    """The operations of a graph that have operands, in order, and the users of their results.

    Attributes:
        operations: the operations.
        place: the position of each.
        uses: for each output, the positions of those that take it.
        wanted: the outputs asked for.
    """

    operations: list[Operation]
    place: dict[Operation, int]
    wanted: frozenset[Output]

    def __init__(self, operations: Sequence[Operation], wanted: Sequence[Output]) -> None:
        self.operations = [op for op in operations if op.inputs]
        self.place = {op: i for i, op in enumerate(self.operations)}
        self.wanted = frozenset(wanted)
        self.uses: dict[Output, list[int]] = {}
        for i, op in enumerate(self.operations):
            for x in op.inputs:
                self.uses.setdefault(x, []).append(i)

    def runs(self, least: int) -> list[Run]:
        """Runs of at least *least* segments, in order."""
        return [run for stretch in stretches(self._tokens(), least) for run in self._in(stretch, least)]

    def _tokens(self) -> np.ndarray[Any, Any]:
        """A number for each operation, equal for operations that may correspond."""
        numbers: dict[Any, int] = {}
        tokens = []
        for i, op in enumerate(self.operations):
            definition = op.definition
            values = () if definition in _SLICES else definition.identity(op.values)
            alone = i if definition.stateful else -1
            key = (definition, values, alone, *[x.type for x in op.inputs], *[y.type for y in op.outputs])
            tokens.append(numbers.setdefault(key, len(numbers)))
        return np.asarray(tokens, np.int64)

    def _in(self, stretch: Stretch, least: int) -> Iterator[Run]:
        """The runs in a stretch of equal operations."""
        start, period, length = stretch
        period *= self._lag(stretch, least)
        if not period or length < least * period:
            return
        shift = self._best_shift(start, period, length)
        if length - shift < least * period:
            shift = 0
        part = _Part(self, start + shift, period, (length - shift) // period)
        yield from part.runs(least)

    def _lag(self, stretch: Stretch, least: int) -> int:
        """The number of periods after which the wiring repeats; 0 if it does not."""
        start, period, length = stretch
        wirings = _Part(self, start, period, length // period, _MOST_LAG + _MOST_DELAY).wirings()
        numbers: dict[_Wiring, int] = {}
        labels = np.asarray([numbers.setdefault(wiring, len(numbers)) for wiring in wirings])
        for lag in range(1, min(_MOST_LAG, len(labels) // least) + 1):
            same = np.concatenate([[False], labels[lag:] == labels[:-lag], [False]])
            edges = np.flatnonzero(same[1:] != same[:-1])
            # The first segment's wiring differs: its carries come from before the run.
            if len(edges) and (edges[1::2] - edges[::2]).max() >= (least - 2) * lag:
                return lag
        return 0

    def _best_shift(self, start: int, period: int, length: int) -> int:
        """Where to cut the segments, so that they carry as little as possible."""
        middle = start + (length // period // 2) * period
        crossing = np.zeros(2 * period + 1, np.int64)
        for i in range(middle, min(middle + period, start + length)):
            for y in self.operations[i].outputs:
                near = [u for u in self.uses.get(y, ()) if u - i <= period and u < start + length]
                if near:
                    size = y.type.size
                    weight = (size if isinstance(size, int) else 1) * y.dtype.itemsize + 1
                    crossing[i + 1 - middle] += weight
                    crossing[max(near) + 1 - middle] -= weight
        carried = np.cumsum(crossing)[:-1].reshape(2, period).sum(0)
        return int(np.argmin(carried))


class _Part:
    """A stretch of segments of equal operations, which may be wired differently."""

    def __init__(
        self, listing: Listing, start: int, period: int, count: int, reach: int = _MOST_DELAY
    ) -> None:
        self.listing = listing
        self.start, self.period, self.count = start, period, count
        self.reach = reach * period
        self.latest = [-1] * count  # For each segment, the last operation before it that it needs.
        self.hoisted: set[int] = set()
        self.sunk: set[int] = set()
        self.strict: set[int] = set()
        for offset in range(period):
            if listing.operations[start + offset].definition in _SLICES:
                self._place_slice(offset)

    def _operations_at(self, offset: int) -> Sequence[Operation]:
        end = self.start + self.count * self.period
        return self.listing.operations[self.start + offset : end : self.period]

    def _place_slice(self, offset: int) -> None:
        """Decide where the slices at an offset are computed, if they are not all equal."""
        slices, place = self._operations_at(offset), self.listing.place
        end = self.start + self.count * self.period
        if all(op.values == slices[0].values for op in slices):
            return
        if all(place.get(op.inputs[0].op, -1) < self.start for op in slices):
            self.hoisted.add(offset)
        elif all(u >= end for op in slices for u in self.listing.uses.get(op.outputs[0], ())):
            self.sunk.add(offset)
        else:
            self.strict.add(offset)

    def inside(self) -> list[int]:
        return [p for p in range(self.period) if p not in self.hoisted and p not in self.sunk]

    def wirings(self) -> list[_Wiring]:
        """For each segment, where its operands are computed, as far as it matters."""
        operations, place, start, period = (
            self.listing.operations,
            self.listing.place,
            self.start,
            self.period,
        )
        inside, hoisted, reach = self.inside(), self.hoisted, self.reach
        wirings = []
        for k in range(self.count):
            wiring: list[Any] = []
            base = start + k * period
            for p in inside:
                i = base + p
                op = operations[i]
                for x in op.inputs:
                    source = place.get(x.op, -1)
                    if source < start or i - source > reach:
                        wiring.append(_BEFORE)
                        self.latest[k] = max(self.latest[k], source)
                    elif hoisted and (source - start) % period in hoisted:
                        wiring.append(_BEFORE)
                    else:
                        wiring.append((i - source, x.index))
                if p in self.strict:
                    wiring.append(op.values)
            wirings.append(tuple(wiring))
        return wirings

    def runs(self, least: int) -> Iterator[Run]:
        wirings = self.wirings()
        first = taken = 0
        while first < self.count:
            last = first + 1
            begin = self.start + first * self.period
            while last < self.count and wirings[last] == wirings[first] and self.latest[last] < begin:
                last += 1
            slots = self._slots(wirings[last - 1])
            opened = first
            if first > taken and self._may_open(first - 1, last) and self._begins(first - 1, slots, wirings):
                opened -= 1
            if last - opened >= least and all((slot.delay or 0) <= first for slot in slots):
                yield Run(
                    self.start + opened * self.period,
                    self.period,
                    last - opened,
                    self.inside(),
                    self.hoisted,
                    self.sunk,
                    slots,
                )
                taken = last
            first = last

    def _slots(self, wiring: _Wiring) -> list[Slot]:
        """The operands of a segment, from its wiring."""
        slots = []
        entries = iter(wiring)
        for p in self.inside():
            for i in range(len(self.listing.operations[self.start + p].inputs)):
                ago, index = next(entries)
                if (ago, index) == _BEFORE:
                    slots.append(Slot(p, i, None, 0, 0))
                else:
                    periods, source = divmod(p - ago, self.period)
                    slots.append(Slot(p, i, -periods, source, index))
            if p in self.strict:
                next(entries)
        return slots

    def _may_open(self, k: int, last: int) -> bool:
        """Whether later segments take nothing from segment *k* as a value from before the run."""
        begin = self.start + k * self.period
        return all(latest < begin for latest in self.latest[k:last])

    def _begins(self, k: int, slots: Sequence[Slot], wirings: Sequence[_Wiring]) -> bool:
        """Whether segment *k* can be the first of a run: equal, except that its carries come from before."""
        if any((slot.delay or 0) > 1 for slot in slots):
            return False
        mine = self._slots(wirings[k])
        carried: dict[tuple[int, int], Output] = {}
        for own, other in zip(mine, slots, strict=True):
            if own == other:
                if other.delay == 1:
                    x = self.listing.operations[self.start + k * self.period + own.offset].inputs[own.operand]
                    if carried.setdefault((other.source, other.output), x) is not x:
                        return False
                continue
            if own.delay is not None or other.delay != 1:
                return False
            x = self.listing.operations[self.start + k * self.period + own.offset].inputs[own.operand]
            if carried.setdefault((other.source, other.output), x) is not x:
                return False
        return [w for p, w in self._values(wirings[k])] == [w for p, w in self._values(wirings[k + 1])]

    def _values(self, wiring: _Wiring) -> Iterator[tuple[int, Any]]:
        """The attributes in a wiring, by offset."""
        entries = iter(wiring)
        for p in self.inside():
            for _ in self.listing.operations[self.start + p].inputs:
                next(entries)
            if p in self.strict:
                yield p, next(entries)
