"""Which tensors lie behind which walls, for any number of both.

A set of walls for each tensor, or of tensors for each wall, would be as large as the product of the two. So
the graph behind walls is contracted first: tensors from which the same ways lead up to walls are one node.
All parameters of a model that a single stop cuts off are, whatever their number. What is asked later, about
one tensor or one wall, is a search among the nodes.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from stopgrad.flow.walls import OPEN
from stopgrad.flow.ways import Spot, Sweep
from stopgrad.graph.graph import Operation, Output

BITS = 1 << 31
"""The most memory, in bits, for the lines of nodes that :meth:`Hidden.kinds` compares at once."""


class Hidden:
    """The tensors asked about that lie behind walls, also behind those that nobody sees from ys.

    Nodes are numbered, those nearer to ys first. A wall is a node; node 0 stands for what lies behind none.

    Args:
        sweep: the operations.
        xs: the tensors asked about.
        leads: for each place, whether it leads to any of them.
        seen: the walls at which paths from ys end.

    Attributes:
        node: by the position of each tensor asked about, its node.
    """

    node: array[int]

    def __init__(
        self, sweep: Sweep, xs: Sequence[Output], leads: Sequence[int], seen: Iterable[Spot]
    ) -> None:
        contracted = _Contracted(sweep, leads)
        self._above, self._walls = contracted.above, contracted.walls
        places = [sweep.place(x) for x in xs]
        self.node = array("l", [0 if at < 0 else contracted.node(at) for at in places])
        self._cut = bytearray(len(self._above))
        for spot in seen:
            self._cut[self._walls[spot]] = True
        for node, edges in enumerate(self._above):
            for edge in edges:
                self._cut[node] |= self._cut[edge >> 1]

    def is_cut(self, k: int) -> bool:
        """Whether a path from ys to the k-th tensor ends at a wall."""
        return bool(self._cut[self.node[k]])

    def wall(self, spot: Spot) -> int:
        """The node of a wall that leads to some tensor."""
        return self._walls[spot]

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """The positions of the tensors that each node stands for, if any."""
        positions: dict[int, list[int]] = {}
        for k, node in enumerate(self.node):
            if node:
                positions.setdefault(node, []).append(k)
        return positions

    @cached_property
    def _below(self) -> list[list[int]]:
        """For each node, those right below it, as edges."""
        below: list[list[int]] = [[] for _ in self._above]
        for node, edges in enumerate(self._above):
            for edge in edges:
                below[edge >> 1].append(node << 1 | edge & 1)
        return below

    def before(self, nodes: Iterable[int]) -> set[int]:
        """Nodes and all above them, among which are the walls that they lie behind."""
        reached = set(nodes)
        stack = list(reached)
        while stack:
            for edge in self._above[stack.pop()]:
                if edge >> 1 not in reached:
                    reached.add(edge >> 1)
                    stack.append(edge >> 1)
        return reached

    def tensors(
        self, walls: Iterable[int], openly: bool = False, visited: set[int] | None = None
    ) -> list[int]:
        """The positions of the tensors behind walls, in order.

        Args:
            walls: their nodes.
            openly: only those to which gradients would pass from there.
            visited: nodes that are left out, with all behind them. What is found is added to them.
        """
        visited = set() if visited is None else visited
        stack = [wall for wall in walls if wall not in visited]
        visited.update(stack)
        positions: list[int] = []
        while stack:
            node = stack.pop()
            positions += self.members.get(node, ())
            for edge in self._below[node]:
                if edge >> 1 not in visited and not (openly and edge & 1):
                    visited.add(edge >> 1)
                    stack.append(edge >> 1)
        positions.sort()
        return positions

    def alike(self, walls: Collection[int]) -> frozenset[int]:
        """A key for the tensors behind walls: where it is the same, these are."""
        right_below = {edge >> 1 for wall in walls for edge in self._below[wall]}
        return frozenset(right_below.union([wall for wall in walls if wall in self.members]))

    def first(self, numbers: Mapping[int, int]) -> dict[int, int]:
        """For nodes with numbers, and all above them, the least number of those at or below each."""
        least = dict(numbers)
        for node in range(len(self._above) - 1, 0, -1):
            own = least.get(node)
            if own is not None:
                for edge in self._above[node]:
                    least[edge >> 1] = min(own, least.get(edge >> 1, own))
        return least

    def kinds(self, lines: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Which nodes with tensors lie behind walls of the same lines.

        Args:
            lines: for the walls that count, by their nodes, the numbers of their lines.

        Returns:
            For each of these nodes the same number as for those that lie behind the same lines, and how many
            these are.
        """
        kinds = dict.fromkeys(self.members, (0, 0))
        width = max(BITS // len(self._above), 1)
        count = 1
        for begin in range(0, max(lines.values(), default=-1) + 1, width):
            same: dict[tuple[int, int], int] = {}
            for node, row in self._rows(lines, begin, width):
                kind, size = kinds[node]
                next_kind = same.setdefault((kind, row), count)
                count += next_kind == count
                kinds[node] = next_kind, size + row.bit_count()
        return kinds

    def _rows(self, lines: Mapping[int, int], begin: int, width: int) -> Iterator[tuple[int, int]]:
        """For nodes with tensors that lie behind some of *width* lines, these as bits."""
        rows = [0] * len(self._above)
        for node, edges in enumerate(self._above):
            line = lines.get(node, -1) - begin
            row = 1 << line if 0 <= line < width else 0
            for edge in edges:
                row |= rows[edge >> 1]
            if row:
                rows[node] = row
                if node in self.members:
                    yield node, row


class _Contracted:
    """The graph behind walls, contracted.

    An edge is twice the number of the node that it leads up to, and one more if gradients do not pass.

    Attributes:
        above: for each node, the edges from it.
        walls: the nodes of walls.
    """

    def __init__(self, sweep: Sweep, leads: Sequence[int]) -> None:
        self.above: list[tuple[int, ...]] = [()]
        self.walls: dict[Spot, int] = {}
        self._sweep, self._leads = sweep, leads
        self._edges: list[int | set[int]] = [0] * sweep.places  # From each place: none, one or several.
        self._known: dict[tuple[int, ...], int] = {}
        first, ways, edges = sweep.first, sweep.ways, self._edges
        for op in reversed(sweep.operations):
            at, way = first[op.id], ways.get(op.id)
            if way is None:
                for place in range(at, at + len(op.outputs)):
                    if edges[place]:
                        self._lead(op, [(i, OPEN) for i in range(len(op.inputs))], self.node(place))
                continue
            for o, (inputs, _, walls) in enumerate(way):
                if edges[at + o]:
                    self._lead(op, inputs, self.node(at + o))
                for number, (_, behind) in enumerate(walls):
                    if any(leads[sweep.place(op.inputs[i])] for i, _ in behind):
                        wall = self.walls[op.id, o, number] = self._new(())
                        self._lead(op, behind, wall)

    def node(self, place: int) -> int:
        """The node of a place, to which no edges are added any more."""
        edges = self._edges[place]
        if isinstance(edges, set):
            edges = self._joined(edges)
        elif edges & 1:
            edges = self._known_as((edges,))
        self._edges[place] = edges
        return edges >> 1

    def _joined(self, edges: set[int]) -> int:
        """One edge instead of several."""
        for edge in list(edges):
            if edge & 1 == 0:  # What such an edge leads to also leads to all that is above.
                edges.discard(edge | 1)
                for further in self.above[edge >> 1]:
                    edges.discard(further)
                    edges.discard(further | 1)
        if len(edges) == 1:
            (edge,) = edges
            return self._known_as((edge,)) if edge & 1 else edge
        return self._known_as(tuple(sorted(edges)))

    def _known_as(self, edges: tuple[int, ...]) -> int:
        node = self._known.get(edges)
        if node is None:
            node = self._known[edges] = self._new(edges)
        return node << 1

    def _new(self, edges: tuple[int, ...]) -> int:
        self.above.append(edges)
        return len(self.above) - 1

    def _lead(self, op: Operation, inputs: Iterable[tuple[int, int]], node: int) -> None:
        """Add edges to a node from inputs of an operation that lead to tensors asked about."""
        for i, level in inputs:
            x = op.inputs[i]
            place = self._sweep.first[x.op.id] + x.index
            if self._leads[place]:
                edge = node << 1 | (level != OPEN)
                before = self._edges[place]
                if not before:
                    self._edges[place] = edge
                elif isinstance(before, set):
                    before.add(edge)
                elif before != edge:
                    self._edges[place] = {before, edge}
