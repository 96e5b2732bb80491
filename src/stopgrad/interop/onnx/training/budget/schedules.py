"""The order of a training step in which some tensors of the forward pass are computed again."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from stopgrad.interop.onnx.training.budget.tape import Tape

Use = tuple[Collection[Any], Mapping[Any, int], bool]
"""The memory that a node reads, what it takes with the bytes, and whether this may be some that it reads."""


class Place(NamedTuple):
    """A step at its place in the order.

    Attributes:
        number: of the step.
        again: whether it is computed again here.
    """

    number: int
    again: bool


class Schedule:
    """A tape that keeps certain tensors of the forward pass for the backward pass, and computes others again.

    Args:
        tape: the graph.
        kept: the tensors that are kept, by the names under which they have memory of their own.

    Attributes:
        places: in order. What is computed again stands before the first step that reads it.
        seconds: what computing again takes, roughly, on one core.
    """

    def __init__(self, tape: Tape, kept: Collection[str]) -> None:
        self.tape, self.kept = tape, frozenset(kept) | tape.fixed
        self._again: set[int] = set()
        self.places: list[Place] = []
        for i in range(len(tape.steps)):
            if i not in tape.forward:
                self._compute_again(i)
            self.places.append(Place(i, False))
        self.seconds = sum(tape.steps[i].seconds for i in self._again)

    def copied(self, place: Place) -> frozenset[str]:
        """What a step reads, at its place, of that which is computed again."""
        if not place.again and place.number in self.tape.forward:
            return frozenset()
        stored = self.tape.stored
        inputs = self.tape.steps[place.number].inputs
        return frozenset(x for x in inputs if x in stored and stored[x] not in self.kept)

    def _before(self, number: int) -> list[int]:
        """The steps that must be done again for a step, in reverse."""
        return [
            one.maker
            for one in reversed(self.tape.memory[number].stored)
            if one.root not in self.kept and one.maker not in self._again
        ]

    def _compute_again(self, number: int) -> None:
        waiting = [(i, False) for i in self._before(number)]
        while waiting:
            i, ready = waiting.pop()
            if i in self._again:
                continue
            if ready:
                self._again.add(i)
                self.places.append(Place(i, True))
            else:
                waiting.append((i, True))
                waiting += [(j, False) for j in self._before(i)]

    @cached_property
    def peak(self) -> int:
        """The most bytes of what the graph makes that are held at once, without its results."""
        return max(self.held_bytes, default=0)

    @cached_property
    def held_bytes(self) -> list[int]:
        """The bytes of what the graph makes that are held at each place."""
        return held_in(self._memory)

    @cached_property
    def _memory(self) -> list[Use]:
        """Of each place: what memory it reads, what it takes with the bytes, and whether this may be that."""
        tape, kept = self.tape, self.kept
        memory: list[Use] = []
        for i, again in self.places:
            step = tape.memory[i]
            read: Collection[int] = step.reads
            if (again or i not in tape.forward) and any(one.root not in kept for one in step.stored):
                stored = [one.own if one.root in kept else one.copy for one in step.stored]
                read = {*step.others, *stored} - {-1}
            memory.append((read, step.writes_again if again else step.writes, tape.steps[i].over))
        return memory

    def at_peak(self) -> tuple[frozenset[str], frozenset[str]]:
        """Which kept tensors are held at the place of the peak, and which others would be, were they kept."""
        peak = self.held_bytes.index(self.peak)
        before, after = self._touched(self._memory[: peak + 1]), self._touched(self._memory[peak:])
        own, other = set(), set()
        for root in self.tape.kept:
            number = self.tape.numbers[root]
            copy = number + 1
            if root in self.kept:
                if number in before and number in after:
                    own.add(root)
            elif number in before and copy in after and copy not in before:
                other.add(root)
        return frozenset(own), frozenset(other)

    @staticmethod
    def _touched(memory: Iterable[Use]) -> set[Hashable]:
        return {key for read, written, _ in memory for key in (*read, *written)}


def held_in(memory: Sequence[Use]) -> list[int]:
    """The bytes that are held while each node runs, where memory is given back after its last use."""
    last: dict[Hashable, int] = {}
    for position, (read, written, _) in enumerate(memory):
        for key in read:
            last[key] = position
        for key in written:
            last[key] = position
    now, totals = 0, []
    live: dict[Hashable, int] = {}
    for position, (read, written, over) in enumerate(memory):
        live |= written
        now += sum(written.values())
        ending = [key for key in {*read, *written} if last[key] == position and key in live]
        total = now
        if over and ending:
            spare = [live[key] for key in ending if key not in written]
            for size in written.values():
                if size in spare:  # It is in the memory of what is not needed any more.
                    spare.remove(size)
                    total -= size
        totals.append(total)
        for key in ending:
            now -= live.pop(key)
    return totals


def worth(tape: Tape, kept: Collection[str], again: Collection[int], root: str) -> tuple[float, set[int]]:
    """What computing one more tensor again adds.

    Args:
        tape: the graph.
        kept: the tensors that are kept.
        again: the steps that are computed again already.
        root: the tensor.

    Returns:
        The seconds, and the steps that are then computed again.
    """
    waiting, more, seconds = [tape.makers[root]], set(), 0.0
    while waiting:
        i = waiting.pop()
        if i not in more and i not in again:
            more.add(i)
            seconds += tape.steps[i].seconds
            waiting += [one.maker for one in tape.memory[i].stored if one.root not in kept]
    return seconds, more
