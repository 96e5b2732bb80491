"""Chooses what a training step keeps for its backward pass, so that it fits at the least recomputation.

There are exponentially many choices, and no quick way to the best. Two ways are gone: from everything kept,
tensors are given up one by one, those first whose bytes cost the least time; and the forward pass is divided
into parts of which only the ends are kept, then as much is kept again as fits. The quicker result is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from stopgrad.interop.onnx.training.budget.schedules import Schedule
from stopgrad.interop.onnx.training.budget.tape import Tape

_PARTS = 64
"""Into how many parts the forward pass is divided at most."""


def chosen(tape: Tape, most: int) -> Schedule:
    """The schedule with the least recomputation, of those that were tried, that holds so many bytes at most.

    If there is none, the one of those that were tried that holds the fewest.
    """
    whole = Schedule(tape, tape.kept)
    if whole.peak <= most:
        return whole
    tried = [_given_up(whole, most), *_divided(tape)]
    fitting = [schedule for schedule in tried if schedule.peak <= most]
    if not fitting:
        return min(
            [_given_up(schedule, most) for schedule in _smallest(tried)], key=lambda schedule: schedule.peak
        )
    quick = sorted(fitting, key=lambda schedule: schedule.seconds)[:_REFINED]
    return min([_with_more(schedule, most) for schedule in quick], key=lambda schedule: schedule.seconds)


_REFINED = 3
"""How many schedules are looked at more closely."""


def _smallest(tried: Iterable[Schedule]) -> list[Schedule]:
    return sorted(tried, key=lambda schedule: schedule.peak)[:_REFINED]


def _given_up(now: Schedule, most: int) -> Schedule:
    """Give up what costs the least time for its bytes, as long as the peak gets lower."""
    tape = now.tape
    while True:
        before = now
        waiting = [
            (now.more(x) / tape.tensors[x].bytes, x)
            for x in sorted(now.kept - tape.fixed)
            if tape.tensors[x].bytes
        ]
        heapq.heapify(waiting)
        while waiting and now.peak > most:
            price, x = heapq.heappop(waiting)
            present = now.more(x) / tape.tensors[x].bytes
            if waiting and present > max(price, waiting[0][0]):
                heapq.heappush(waiting, (present, x))
                continue
            next_ = Schedule(tape, now.kept - {x})
            if next_.peak < now.peak:
                now = next_
        if now.peak <= most or now is before:
            return now


def _divided(tape: Tape) -> Iterator[Schedule]:
    """Schedules that keep what crosses the borders of so many equal parts of the forward pass."""
    order = sorted(tape.forward)
    crossing = _crossing(tape, order)
    sizes = [sum(tape.tensors[x].bytes for x in names) for names in crossing]
    total = [0]
    for i in order:
        step = tape.steps[i]
        new = [y for y in step.outputs if tape.stored.get(y) == y and y in tape.kept]
        total.append(total[-1] + sum(tape.tensors[y].bytes for y in new))
    seen = set()
    for parts in range(2, _PARTS + 1):
        kept: set[str] = set()
        width = total[-1] / parts
        for border in range(1, parts):
            near = [i for i, size in enumerate(total[1:]) if abs(size - border * width) <= width / 2]
            if near:
                kept |= crossing[min(near, key=lambda i: sizes[i])]
        if kept and frozenset(kept) not in seen:
            seen.add(frozenset(kept))
            yield Schedule(tape, kept)


def _crossing(tape: Tape, order: list[int]) -> list[set[str]]:
    """After each step of the forward pass, what later ones read of what has been made."""
    last: dict[str, int] = {}
    for position, i in enumerate(order):
        last |= {tape.stored[x]: position for x in tape.steps[i].inputs if x in tape.stored}
    crossing = []
    now: set[str] = set()
    for position, i in enumerate(order):
        now |= {tape.stored[y] for y in tape.steps[i].outputs if y in tape.stored}
        now = {x for x in now if last.get(x, -1) > position}
        crossing.append(now)
    return crossing


def _with_more(now: Schedule, most: int) -> Schedule:
    """Keep as much more as fits, first what costs the most time for its bytes."""
    tape = now.tape
    gone = [x for x in sorted(tape.kept - now.kept) if tape.tensors[x].bytes]
    for x in sorted(gone, key=lambda x: -tape.steps[tape.makers[x]].seconds / tape.tensors[x].bytes):
        next_ = Schedule(tape, now.kept | {x})
        if next_.peak <= most and next_.seconds < now.seconds:
            now = next_
    return now
