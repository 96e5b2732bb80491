"""The ways through a body that runs several times, from those through one run of it.

A number has a bit for each parameter. The ways through some runs and those through some earlier ones make the
ways through all of these, so a million runs take twenty such steps, and two carries that swap are told
apart by whether their number is even.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stopgrad.flow.walls import BLIND, LEVELS, OPEN, Behind, Wall, Way
from stopgrad.graph.op import Wire
from stopgrad.transforms.gradients.reach import repeated

Sets = tuple[int, ...]
"""For each level, the parameters to which there is a way no worse."""

NOTHING = (0,) * len(LEVELS)


class Reached(NamedTuple):
    """What a result is reached from: at each level, in the dark, and behind each wall."""

    levels: Sets = NOTHING
    dark: int = 0
    walls: Mapping[Wall, Sets] = {}

    @property
    def seen(self) -> int:
        """The parameters to which no wall has ended the way."""
        return self.levels[OPEN] | self.dark

    def joined(self, other: Reached) -> Reached:
        walls = dict(self.walls)
        for wall, behind in other.walls.items():
            walls[wall] = joined(walls.get(wall, NOTHING), behind)
        return Reached(joined(self.levels, other.levels), self.dark | other.dark, walls)


def in_runs(wire: Wire, once: Sequence[Reached], asked: Way | None = None) -> list[Way]:
    """For each result of a body, the way to its parameters through all the runs that the wire says.

    Args:
        wire: says how often the body runs.
        once: what each result is reached from in one run.
        asked: the way through the condition that is evaluated before each run.
    """
    none = [_itself(wire, wire.feedback[m]) if m in wire.feedback else Reached() for m in range(len(once))]
    if wire.skipped:
        once = [run.joined(idle) for run, idle in zip(once, none, strict=True)]
    feeding = Feeding(wire.feedback)
    reached = repeated(list(once), none, wire.runs, feeding)
    if asked is not None and wire.runs != 0:
        # The last condition that is evaluated may come before any of the runs.
        dark = _in_the_dark(asked)
        last = [dark if _changes(wire, m) else Reached() for m in range(len(once))]
        before = repeated(list(once), none, None if wire.runs is None else wire.runs - 1, feeding)
        reached = [run.joined(other) for run, other in zip(feeding(last, before), reached, strict=True)]
    memo: dict[Sets, Behind] = {}  # Many walls and results have the same behind them.
    return [_way(run, memo) for run in reached]


def _itself(wire: Wire, k: int) -> Reached:
    """A parameter as it is."""
    if wire.body.inputs[k].type.differentiable:
        return Reached((1 << k,) * len(LEVELS))
    return Reached(_only_blind(1 << k), 1 << k)


def _changes(wire: Wire, m: int) -> bool:
    """Whether a loop changes this carry."""
    return wire.body.outputs[m] is not wire.body.inputs[wire.feedback[m]]


class Feeding:
    """Joins some runs of a body with the runs before them, which feed them."""

    def __init__(self, feedback: Mapping[int, int]) -> None:
        self._feedback = feedback
        self._by = {k: m for m, k in feedback.items()}
        self._fed = sum(1 << k for k in self._by)

    def __call__(self, later: Sequence[Reached], earlier: Sequence[Reached]) -> list[Reached]:
        memo: dict[tuple[int, int], int] = {}
        before: dict[int, Reached] = {}  # By what is fed, for results often have the same.

        def fed(bits: int, level: int) -> int:
            total = memo.get((bits, level))
            if total is None:
                total = bits & ~self._fed
                for k in _positions(bits & self._fed):
                    total |= earlier[self._by[k]].levels[level]
                memo[bits, level] = total
            return total

        def all_fed(sets: Sets) -> Sets:
            return tuple([fed(bits, level) for level, bits in enumerate(sets)])

        def seen_through(bits: int) -> Reached:
            reached = before.get(bits)
            if reached is None:
                reached = Reached()
                for k in _positions(bits):
                    reached = reached.joined(earlier[self._by[k]])
                before[bits] = reached
            return reached

        results = []
        for m, run in enumerate(later):
            behind = seen_through(run.seen & self._fed)
            walls = {wall: all_fed(sets) for wall, sets in run.walls.items()}
            through = Reached(all_fed(run.levels), run.dark & ~self._fed | behind.dark, walls)
            through = through.joined(Reached(walls=behind.walls))
            # What is no carry collects the results of all runs.
            results.append(through if m in self._feedback else through.joined(earlier[m]))
        return results


def _only_blind(bits: int) -> Sets:
    return (*NOTHING[:BLIND], bits)


def joined(some: Sets, others: Sets) -> Sets:
    return tuple([one | other for one, other in zip(some, others, strict=True)])


def _positions(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _in_the_dark(way: Way) -> Reached:
    """What a result without a gradient is reached from."""
    walls: dict[Wall, Sets] = {}
    for wall, inputs in way.walls:
        behind = [sum(1 << k for k, own in inputs if own <= level) for level in range(len(LEVELS))]
        walls[wall] = joined(walls.get(wall, NOTHING), tuple(behind))
    return Reached(_only_blind(sum(1 << k for k, _ in way.inputs)), sum(1 << k for k in way.dark), walls)


def _way(run: Reached, memo: dict[Sets, Behind]) -> Way:
    walls = [(wall, _best_levels(sets, memo)) for wall, sets in run.walls.items() if sets[-1]]
    return Way(_best_levels(run.levels, memo), set(_positions(run.dark)), walls)


def _best_levels(sets: Sets, memo: dict[Sets, Behind]) -> Behind:
    """The parameters, each with its best level."""
    behind = memo.get(sets)
    if behind is None:
        better = 0
        levels = []
        for level, bits in enumerate(sets):
            levels += [(k, level) for k in _positions(bits & ~better)]
            better |= bits
        behind = memo[sets] = levels
    return behind
