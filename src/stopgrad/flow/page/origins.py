"""Of each operation that was made for a gradient, the one asked about beside which the page shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stopgrad.flow.page.collected import Collected
from stopgrad.graph.graph import Operation


def origins_of(collected: Collected, inputs: Sequence[Sequence[int]], first: int) -> list[int]:
    """For each operation made for a gradient, the one that was asked about for which it was made.

    One without an origin, such as a loop that runs again, was made for what takes its values; the seed, which
    nothing may take, for the *first* result; and one in a body for one in the bodies of what that body's
    operation was made for, or else for that itself.

    Args:
        inputs: for each operation, those from which it takes values.
    """
    twins = _Twins(collected)
    inside = {i for _, _, operations, _ in collected.made_bodies for i in operations}
    outside = [i for i in range(collected.forward, len(collected.operations)) if i not in inside]
    origins: dict[int, int] = {}
    for operations, holder in [
        (outside, -1),
        *((operations, holder) for holder, _, operations, _ in collected.made_bodies),
    ]:
        default = origins.get(holder, first)
        for i in reversed(operations):
            for op in _origins(collected.operations[i], holder >= 0):
                number = collected.number.get(op, collected.forward)
                origin = (
                    number if number < collected.forward else twins.find(op, default) if holder >= 0 else None
                )
                if origin is not None:
                    origins[i] = origin
                    break
            for x in inputs[i]:
                origins.setdefault(x, origins.get(i, default))
        for i in operations:
            origins.setdefault(i, default)
    return [origins[i] for i in range(collected.forward, len(collected.operations))]


def _origins(op: Operation, in_body: bool) -> Iterator[Operation]:
    """What an operation was made for, and what that was; in a body first itself, which may only run again."""
    if in_body and op._place is not None:
        yield op
    while op.origin is not None:
        op = op.origin
        yield op


class _Twins:
    """The operations in bodies by what their copies in bodies of gradients share with them."""

    def __init__(self, collected: Collected) -> None:
        self._holders = holders = {
            i: holder for holder, _, operations, _ in collected.bodies for i in operations
        }
        self._with_bodies = {holder for holder, *_ in collected.bodies}
        self._by_home: dict[tuple[object, ...], list[tuple[str, int]]] = defaultdict(list)
        for i, holder in holders.items():
            op, home = collected.operations[i], holder
            while home >= 0:
                self._by_home[(home, *_same(op))].append((op.name, i))
                home = holders.get(home, -1)

    def find(self, op: Operation, near: int) -> int | None:
        """The twin of an operation in *near*, or in what holds that; of several one of its name."""
        home = near if near in self._with_bodies else self._holders.get(near, -1)
        candidates = self._by_home.get((home, *_same(op)))
        if not candidates or op._place is None:
            return None
        return next((i for name, i in candidates if name == op.name), candidates[0][1])


def _same(op: Operation) -> tuple[object, ...]:
    # A code object is found by its identity: Python's own hash of it reads all of it.
    return op.type, id(op._place), op._instruction
