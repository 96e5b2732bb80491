"""What a report is made of: per tensor, per line that cuts, per gate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stopgrad.base.source import Location
from stopgrad.flow.asked import label
from stopgrad.graph.graph import Operation, describe
from stopgrad.graph.op import Status

ARRIVES = (Status.FLOWS, Status.PARTLY_STOPPED)
"""The statuses with which a gradient is generated."""


@dataclass(frozen=True)
class Cut:
    """A line of the user's source at which paths end, seen from ys: nothing behind another cut is one.

    Attributes:
        operations: those that end them, built at this line.
        status: the absence that they cause.
        reason: why.
        behind: the tensors asked about that lie behind it, at least by one path.
        opens: those that a gradient would reach if this cut alone were removed.
        switched: whether a condition, read when the graph runs, says if it acts.
    """

    operations: tuple[Operation, ...]
    status: Status
    reason: str
    behind: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    switched: bool = False

    @property
    def operation(self) -> Operation:
        """The first of the operations."""
        return self.operations[0]

    @property
    def uses(self) -> int:
        """How many operations it is."""
        return len(self.operations)

    @property
    def location(self) -> Location | None:
        """Where the first operation was built: ``file``, ``line``, and the sub-expression."""
        return self.operation.location

    def __str__(self) -> str:
        return f"{self.reason}: {describe(self.operation)}"


class Reach:
    """Whether the gradient of ys reaches x, what cuts the other paths, and how many these are.

    Attributes:
        status: see :func:`explain`.
        paths: the number of paths from ys to x, cut ones included. An operation that runs bodies, such as a
            loop, is one step of a path; where one way through it is open and another cut, it is two.
        cut_paths: the number of those that a cut ends.
        cuts: the cuts on them, in the order of their operations.
    """

    def __init__(
        self, status: Status | str, cuts: tuple[Cut, ...] = (), paths: int = 0, cut_paths: int = 0
    ) -> None:
        self.status = Status(status)
        self._given = cuts, paths, cut_paths

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        return self._given[0]

    @cached_property
    def _counted(self) -> tuple[int, int]:
        return self._given[1:]

    @property
    def paths(self) -> int:
        return self._counted[0]

    @property
    def cut_paths(self) -> int:
        return self._counted[1]

    @property
    def arrives(self) -> bool:
        """Whether a gradient is generated."""
        return self.status in ARRIVES

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reach) and (self.status, self.cuts) == (other.status, other.cuts)

    def __hash__(self) -> int:
        return hash((self.status, self.cuts))

    def __repr__(self) -> str:
        return f"Reach({self.status!r}, {self.cuts!r})"


@dataclass(frozen=True)
class GateUse:
    """A gate between ys and the tensors asked about that may end paths.

    Attributes:
        operation: the gate.
        fully: the tensors that it cuts and that no gradient reaches.
        partly: those that it cuts, and that a gradient reaches all the same.
        idle: whether it does nothing: no path ends first at it that would be open if no gate stopped any. Of
            two stops one behind the other, the one behind is.
        why_idle: how that comes; empty where it is not idle.
    """

    operation: Operation
    fully: tuple[str, ...]
    partly: tuple[str, ...]
    why_idle: str = ""

    @property
    def cuts(self) -> tuple[str, ...]:
        """The tensors that it cuts."""
        return self.fully + self.partly

    @property
    def idle(self) -> bool:
        return bool(self.why_idle)

    @property
    def location(self) -> Location | None:
        return self.operation.location


@dataclass(frozen=True)
class Finding:
    """Something that a reader should look at.

    Attributes:
        kind: ``"idle"``, for a stop that does nothing, or the status of tensors that no gradient reaches.
        message: what it is, in a sentence.
        operations: where it is; for a status, the operations of the cuts.
        keys: the tensors that it is about.
        reason: of an idle stop, why it does nothing.
    """

    kind: str
    message: str
    operations: tuple[Operation, ...]
    keys: tuple[str, ...] = ()
    reason: str = ""

    @property
    def location(self) -> Location | None:
        return self.operations[0].location if self.operations else None


@dataclass(frozen=True)
class Story:
    """Tensors of which the same is to be told."""

    keys: tuple[Any, ...]
    status: Status
    cuts: tuple[Cut, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(label, self.keys))


Place = tuple[Any, ...]
"""What the cuts have in common that are one for the reader: a line of the source and what happens there."""
