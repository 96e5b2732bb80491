"""Groups the operations of a page, so that any graph opens with few boxes.

Operations are grouped by their paths of scopes and calls (:mod:`stopgrad.flow.page.nesting`), and inside a
body by the operation that runs it. Groups with too many members are divided into consecutive blocks,
recursively. With any groups contracted, the graph has no cycles: a scope that was left and entered again
becomes several groups if a single one would be both before and behind something else.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from stopgrad.flow.page.nesting import Path, Step, label_of

LIMIT = 30
"""The most members of a group, apart from blocks and operations outside of blocks."""
BLOCK, FAN = 15, 12
"""The approximate number of members of a block, and the most blocks of blocks next to each other.

Smaller numbers mean fewer boxes until an operation is visible; a chain of 5,000 takes 36.
"""

Member = int
"""An operation, by its position on the page; or a group, as ``-1 - its position`` among the groups."""


@dataclass
class Group:
    """A box that can be opened.

    Attributes:
        kind: ``"scope"``, ``"call"``, ``"block"`` (consecutive operations), ``"op"`` (an operation that has
            bodies) or ``"body"``.
        label: the name of the scope, function or body; empty for others.
        parent: the position of the group that it is in; -1 for none.
        op: for the kind ``"op"``, the operation's position; else -1.
        members: its members, each after those from which it is computed.
    """

    kind: str
    label: str
    parent: int
    op: int = -1
    members: list[Member] = field(default_factory=list)


@dataclass
class _Part:
    """Operations that stay together: those of one scope or call, or a single one."""

    step: Step | None
    operations: list[int]


class Grouping:
    """The groups of a page's operations.

    Args:
        inputs: for each operation, the positions of those from which it takes values.
        paths: for each operation that is grouped, its path of scopes and calls.
        lines: for each operation, a number that goes up and down with the user's line.
        apart: operations without inputs that are put into no block, if they are few.

    Attributes:
        groups: all groups, each after the one that it is in.
        group_of: for each operation the position of its group, -1 for none; an operation with bodies is in
            its own group.
        top: the members that are in no group.
    """

    group_of: list[int]

    def __init__(
        self,
        inputs: Sequence[Sequence[int]],
        paths: Sequence[Path],
        lines: Sequence[int],
        apart: Collection[int] = (),
    ) -> None:
        self.groups: list[Group] = []
        self.group_of = [-1] * len(inputs)
        self.top: list[Member] = []
        self._inputs = inputs
        self._paths = paths
        self._lines = lines
        self._apart = apart
        self._run_of = [-1] * len(inputs)  # Used while operations are divided.

    def add(self, operations: Sequence[int], parent: int = -1) -> None:
        """Group operations of one graph, each after its inputs, inside *parent*."""
        waiting = [(list(operations), 0, parent)]
        while waiting:
            chosen, depth, position = waiting.pop()
            for part, place in self._placed(self._parts(chosen, depth), position):
                below = _shared([self._paths[i] for i in part.operations], depth)
                steps = self._paths[part.operations[0]][depth:below]
                group = self._new(steps[0].kind, label_of(steps), place)
                waiting.append((part.operations, below, group))

    def open(self, op: int) -> int:
        """Make an operation, which has been placed, a group for its bodies; returns its position."""
        parent = self.group_of[op]
        members = self._members(parent)
        at = members.index(op)
        self.group_of[op] = position = self._new("op", "", parent, op)
        members[at] = members.pop()
        return position

    def body(self, label: str, parent: int) -> int:
        """Make a group for a body; returns its position."""
        return self._new("body", label, parent)

    def _members(self, position: int) -> list[Member]:
        return self.top if position < 0 else self.groups[position].members

    def _new(self, kind: str, label: str, parent: int, op: int = -1) -> int:
        position = len(self.groups)
        self.groups.append(Group(kind, label, parent, op))
        self._members(parent).append(-1 - position)
        return position

    # -------------------------------------------------------------------------------------- scopes

    def _parts(self, operations: Sequence[int], depth: int) -> list[_Part]:
        """A part for each scope or call, and one for each other operation; each part after its inputs."""
        runs: list[_Part] = []
        for op in operations:
            path = self._paths[op]
            step = path[depth] if len(path) > depth else None
            if step is None or not runs or runs[-1].step != step:
                runs.append(_Part(step, []))
            runs[-1].operations.append(op)
        inputs = self._sources_of_runs(runs)
        together = _by_step(runs)
        number = list(together)
        while True:
            contracted = _contract(inputs, number)
            order = _sorted(contracted)
            if len(order) == len(contracted):
                break
            # What is left is in cycles or behind them. Runs in order have none.
            circles = _circles(contracted, set(contracted).difference(order))
            number = [n if together[n] in circles else number[n] for n in range(len(runs))]
        parts: dict[int, _Part] = {}
        for run, n in zip(runs, number, strict=True):
            parts.setdefault(n, _Part(run.step, [])).operations.extend(run.operations)
        return [parts[n] for n in order]

    def _sources_of_runs(self, runs: Sequence[_Part]) -> list[set[int]]:
        """For each run, the runs from which it takes values."""
        run_of = self._run_of
        for n, run in enumerate(runs):
            for op in run.operations:
                run_of[op] = n
        sources_of = []
        for n, run in enumerate(runs):
            sources = {run_of[x] for op in run.operations for x in self._inputs[op]}
            sources_of.append(sources - {-1, n})
        for run in runs:
            for op in run.operations:
                run_of[op] = -1
        return sources_of

    # -------------------------------------------------------------------------------------- blocks

    def _placed(self, parts: list[_Part], position: int) -> Iterable[tuple[_Part, int]]:
        """Place operations, in blocks if there are many; returns the scopes, and their groups."""
        waiting = [(parts, position)]
        while waiting:
            members, place = waiting.pop()
            for chunk in self._chunks(members):
                if len(chunk) > 1:
                    waiting.append((chunk, self._new("block", "", place)))
                elif len(chunk[0].operations) == 1:
                    self.group_of[chunk[0].operations[0]] = place
                    self._members(place).append(chunk[0].operations[0])
                else:
                    yield chunk[0], place

    def _chunks(self, parts: list[_Part]) -> list[list[_Part]]:
        """Unite consecutive parts, so that few remain; scopes stay alone, if that is enough."""
        if len(parts) <= LIMIT:
            return [[part] for part in parts]
        apart = [part for part in parts if self._stays(part)]
        if 0 < len(apart) <= LIMIT // 2:
            rest = self._chunks([part for part in parts if not self._stays(part)])
            return [*([part] for part in apart), *rest]
        chunks: list[list[_Part]] = []
        for part in parts:
            alone = len(part.operations) > 1
            if alone or not chunks or len(chunks[-1][0].operations) > 1:
                chunks.append([])
            chunks[-1].append(part)
        return chunks if 1 < len(chunks) <= LIMIT else self._even(parts)

    def _stays(self, part: _Part) -> bool:
        """Whether a part is put into no block. It has no inputs, so that no block is on both sides of it."""
        return len(part.operations) == 1 and part.operations[0] in self._apart

    def _even(self, parts: list[_Part]) -> list[list[_Part]]:
        """Chunks of about equal length, preferably cut where the user's line jumps back or changes."""
        blocks = len(parts) / BLOCK
        levels = math.ceil(math.log(blocks, FAN) - 1e-9)
        count = math.ceil(blocks ** (1 / levels) - 1e-9)
        lines = [self._lines[part.operations[0]] for part in parts]
        ends = [0]
        for n in range(1, count):
            target = round(n * len(parts) / count)
            room = len(parts) // (4 * count)
            ends.append(
                max(
                    range(target - room, target + room + 1),
                    key=lambda at: (lines[at] < lines[at - 1], lines[at] != lines[at - 1], -abs(at - target)),
                )
            )
        ends.append(len(parts))
        return [parts[start:end] for start, end in itertools.pairwise(ends)]


def _shared(paths: Sequence[Path], depth: int) -> int:
    """The depth to which all paths agree, which do up to *depth*."""
    first, last = min(paths), max(paths)
    while depth < len(first) and first[depth] == last[depth]:
        depth += 1
    return depth


def _by_step(runs: Sequence[_Part]) -> list[int]:
    """For each run the first of its scope or call, or itself if it has none."""
    first: dict[Step, int] = {}
    return [n if run.step is None else first.setdefault(run.step, n) for n, run in enumerate(runs)]


def _contract(inputs: Sequence[set[int]], number: Sequence[int]) -> dict[int, set[int]]:
    """The graph in which nodes of the same number are united."""
    contracted: dict[int, set[int]] = {n: set() for n in number}
    for n, sources in zip(number, inputs, strict=True):
        contracted[n].update(number[x] for x in sources)
    for n, sources in contracted.items():
        sources.discard(n)
    return contracted


def _sorted(inputs: dict[int, set[int]]) -> list[int]:
    """Nodes in topological order, otherwise in theirs; without those in cycles and behind them."""
    users: dict[int, list[int]] = {n: [] for n in inputs}
    missing = {n: len(sources) for n, sources in inputs.items()}
    for n, sources in inputs.items():
        for x in sources:
            users[x].append(n)
    ready = [n for n, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for user in users[order[-1]]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, user)
    return order


def _circles(inputs: dict[int, set[int]], left: set[int]) -> set[int]:
    """Of the nodes *left* by sorting, those from which others of them are computed.

    They contain all cycles, and paths from one cycle to the next.
    """
    turned: dict[int, set[int]] = {n: set() for n in left}
    for n in left:
        for x in inputs[n]:
            if x in left:
                turned[x].add(n)
    return left.difference(_sorted(turned))
