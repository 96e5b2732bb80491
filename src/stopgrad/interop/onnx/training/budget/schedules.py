"""The order of a training step in which some tensors of the forward pass are computed again."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from stopgrad.interop.onnx.training.budget.tape import Step, Tape


Use = tuple[list[Hashable], dict[Hashable, int], bool]
"""The memory that a node reads, what it takes with the bytes, and whether this may be some that it reads."""


class Place(NamedTuple):
    """A step at its place in the order.

    Attributes:
        number: of the step.
        again: whether it is computed again here.
        copied: what it reads of that which is computed again.
    """

    number: int
    again: bool
    copied: frozenset[str]


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
        for i, step in enumerate(tape.steps):
            copied: frozenset[str] = frozenset()
            if i not in tape.forward:
                copied = self._copied(step)
                self._compute_again(copied)
            self.places.append(Place(i, False, copied))
        self.seconds = sum(tape.steps[i].seconds for i in self._again)

    def _copied(self, step: Step) -> frozenset[str]:
        """What a step reads that is not kept."""
        stored = self.tape.stored
        return frozenset(x for x in step.inputs if x in stored and stored[x] not in self.kept)

    def _compute_again(self, names: Collection[str]) -> None:
        steps, made = self.tape.steps, self.tape.made
        waiting = [(made[x], False) for x in sorted(names, key=made.__getitem__, reverse=True)]
        while waiting:
            i, ready = waiting.pop()
            if i in self._again:
                continue
            copied = self._copied(steps[i])
            if ready:
                self._again.add(i)
                self.places.append(Place(i, True, copied))
            else:
                waiting.append((i, True))
                order = sorted(copied, key=made.__getitem__, reverse=True)
                waiting += [(made[x], False) for x in order]

    def more(self, name: str) -> float:
        """What not keeping one more tensor would add, in seconds."""
        steps, made = self.tape.steps, self.tape.made
        waiting, seen, seconds = [made[name]], set(self._again), 0.0
        while waiting:
            i = waiting.pop()
            if i not in seen:
                seen.add(i)
                seconds += steps[i].seconds
                waiting += [made[x] for x in self._copied(steps[i])]
        return seconds

    @cached_property
    def peak(self) -> int:
        """The most bytes of what the graph makes that are held at once, without its results."""
        return max(self.held, default=0)

    @cached_property
    def held(self) -> list[int]:
        """The bytes of what the graph makes that are held at each place."""
        return held_in(list(self._memory()))

    def _memory(self) -> Iterator[Use]:
        """Of each place: what memory it reads, what it takes with the bytes, and whether this may be that."""
        tape = self.tape
        where: dict[tuple[str, bool], Hashable] = {}
        for place in self.places:
            step = tape.steps[place.number]
            keys = [where.get((x, x in place.copied)) for x in step.inputs]
            written: dict[Hashable, int] = {}
            for y in step.outputs:
                key: Hashable = (y, place.again)
                if step.view:
                    where[y, place.again] = keys[0]
                elif step.inputs and (place.again or y not in tape.results):
                    where[y, place.again] = key
                    written[key] = tape.tensors[y].bytes if y in tape.tensors else 0
            yield [key for key in keys if key is not None], written, step.over


def held_in(memory: Sequence[Use]) -> list[int]:
    """The bytes that are held while each of some nodes runs, where memory is given back after its last use."""
    last: dict[Hashable, int] = {}
    for at, (read, written, _) in enumerate(memory):
        last |= dict.fromkeys((*read, *written), at)
    now, found = 0, []
    live: dict[Hashable, int] = {}
    for at, (read, written, over) in enumerate(memory):
        ending = [key for key in dict.fromkeys((*read, *written)) if last[key] == at]
        spare = [live[key] for key in ending if key in live] if over else []
        over_others = 0
        live |= written
        now += sum(written.values())
        for size in written.values():
            if size in spare:  # It is in the memory of what is not needed any more.
                spare.remove(size)
                over_others += size
        found.append(now - over_others)
        now -= sum(live.pop(key, 0) for key in ending)
    return found
