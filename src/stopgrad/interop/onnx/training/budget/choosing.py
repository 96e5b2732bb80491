"""Chooses what a training step keeps for its backward pass, so that it fits at the least recomputation.

There are exponentially many choices, and no quick way to the best. Two ways are gone: from everything kept,
tensors are given up, those first whose bytes cost the least time; and the forward pass is divided into parts
of which only the ends are kept. Then as much is kept again as fits, and the quickest result is taken.

What a choice holds at its peak is reckoned over the whole step, which takes milliseconds. So tensors are
given up, and kept again, many at a time, and singly only where many do not help.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from stopgrad.interop.onnx.training.budget.schedules import Schedule, worth
from stopgrad.interop.onnx.training.budget.tape import Tape

_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Into how many parts the forward pass is divided.

With all numbers from 2 to 64, ViT and GPT-2 of four layers have the same shares of recomputation, in four to
six times the time. Only the quickest choice is filled up afterwards: filling up the three quickest, or all,
led to the same shares with these two and a Llama.
"""


def choices(tape: Tape, most: int) -> list[Schedule]:
    """The schedule with the least recomputation, of those that were tried, that holds so many bytes at most.

    If there is none, all that were tried, those that hold fewer bytes first.
    """
    whole = Schedule(tape, tape.kept)
    if whole.peak <= most:
        return [whole]
    tried = [_given_up(whole, most), *_divided(tape)]
    fitting = [schedule for schedule in tried if schedule.peak <= most]
    if not fitting:
        tried = [_given_up(schedule, most) for schedule in tried]
        fitting = [schedule for schedule in tried if schedule.peak <= most]
    if not fitting:
        return sorted(tried, key=lambda schedule: schedule.peak)
    return [_with_more(min(fitting, key=lambda schedule: schedule.seconds), most)]


def _given_up(now: Schedule, most: int) -> Schedule:
    """Give up what costs the least time for its bytes, of what is held at the peak, until that fits."""
    refused: set[str] = set()
    excess = now.peak - most
    while now.peak > most:
        batch = _cheapest(now, refused, excess)
        if not batch:
            return now
        next_ = Schedule(now.tape, now.kept - batch)
        if next_.peak < now.peak:
            now, refused = next_, set()
            excess = now.peak - most
        elif len(batch) > 1:
            excess //= 2
        else:
            refused |= batch
    return now


def _cheapest(now: Schedule, refused: set[str], excess: int) -> set[str]:
    """Of what is held at the peak: as many bytes, or all, that cost the least time to compute again."""
    tape = now.tape
    kept, again = set(now.kept), {i for i, repeated in now.places if repeated}
    held, _ = now.at_peak()
    waiting = [
        (worth(tape, kept, again, x)[0] / tape.tensors[x].bytes, x)
        for x in sorted(held - tape.fixed - refused)
        if tape.tensors[x].bytes
    ]
    heapq.heapify(waiting)
    batch: set[str] = set()
    while waiting and excess > 0:
        price, x = heapq.heappop(waiting)
        seconds, more = worth(tape, kept, again, x)
        present = seconds / tape.tensors[x].bytes
        if waiting and present > max(price, waiting[0][0]):
            heapq.heappush(waiting, (present, x))
            continue
        batch.add(x)
        kept.discard(x)
        again |= more
        excess -= tape.tensors[x].bytes
    return batch


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
    for parts in _PARTS:
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
    gone = [x for x in tape.kept - now.kept if tape.tensors[x].bytes]
    order = sorted(gone, key=lambda x: (-tape.steps[tape.makers[x]].seconds / tape.tensors[x].bytes, x))
    waiting = [order]
    while waiting:
        some = waiting.pop()
        _, added = now.at_peak()
        room = most - now.peak
        some = [x for x in some if x not in added or tape.tensors[x].bytes <= room]
        if not some:
            continue
        next_ = Schedule(tape, now.kept.union(some))
        if next_.seconds >= now.seconds:
            continue
        if next_.peak <= most:
            now = next_
        elif len(some) > 1:
            middle = len(some) // 2
            waiting += [some[middle:], some[:middle]]
    return now
