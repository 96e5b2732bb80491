"""The parts of a report: for each tensor, for each line that cuts, for each gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from stopgrad.base.source import Location
from stopgrad.flow.asked import label
from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.flow.updates import Update
from stopgrad.graph.graph import Operation, describe
from stopgrad.graph.op import Status

ARRIVES = (Status.FLOWS, Status.PARTLY_STOPPED)
"""The statuses for which a gradient is generated."""

Names = tuple[str, ...]
"""The names of tensors that were asked about."""


class Tensors:
    """The names of tensors that a cut concerns: those behind it, and those that it alone keeps closed."""

    @cached_property
    def behind(self) -> Names:
        return ()

    @cached_property
    def opens(self) -> Names:
        return ()


class Ends(Protocol):
    """Where paths end: a wall, or a cut."""

    @property
    def operation(self) -> Operation: ...

    @property
    def status(self) -> Status: ...


def is_discrete(ends: Ends) -> bool:
    """Whether paths end in integers or booleans: at a comparison, an index or a mask."""
    return ends.status is Status.NOT_DIFFERENTIABLE and not all(
        y.type.differentiable for y in ends.operation.outputs
    )


class Cut:
    """A line of the user's source at which paths end, seen from ys: nothing behind another cut is a cut.

    Attributes:
        operations: the operations that end them, built at this line.
        status: the status that they cause.
        reason: the reason.
        switched: whether a condition at run time decides if it acts.
    """

    operations: tuple[Operation, ...]
    status: Status
    reason: str
    switched: bool

    def __init__(
        self,
        operations: tuple[Operation, ...],
        status: Status,
        reason: str,
        tensors: Tensors | None = None,
        switched: bool = False,
    ) -> None:
        self.operations, self.status, self.reason, self.switched = operations, status, reason, switched
        self._tensors = tensors or Tensors()

    @property
    def behind(self) -> Names:
        """The tensors asked about that are behind it, by at least one path."""
        return self._tensors.behind

    @property
    def opens(self) -> Names:
        """The tensors that a gradient would reach if only this cut were removed."""
        return self._tensors.opens

    @property
    def operation(self) -> Operation:
        """The first of the operations."""
        return self.operations[0]

    @property
    def uses(self) -> int:
        """The number of its operations."""
        return len(self.operations)

    @property
    def location(self) -> Location | None:
        """Where the first operation was built: ``file``, ``line``, and the sub-expression."""
        return self.operation.location

    @property
    def is_discrete(self) -> bool:
        """Whether paths end in integers or booleans: at a comparison, an index or a mask."""
        return is_discrete(self)

    def _facts(self) -> tuple[object, ...]:
        return self.operations, self.status, self.reason, self.switched

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Cut)
            and self._facts() == other._facts()
            and (self.behind, self.opens) == (other.behind, other.opens)
        )

    def __hash__(self) -> int:
        return hash(self._facts())

    def __str__(self) -> str:
        return f"{self.reason}: {describe(self.operation)}"

    def __repr__(self) -> str:
        return f"Cut({self}, behind={self.behind}, opens={self.opens})"


class Reach:
    """Whether the gradient of ys reaches x, what cuts the other paths, and how many these are.

    Attributes:
        status: see :func:`explain`.
        paths: the number of paths from ys to x, cut ones included. An operation with bodies, such as a loop,
            counts as one step of a path; as two if one way through it is open and another is cut.
        cut_paths: the number of those that a cut ends.
        cuts: the cuts on them, in the order of their operations.
        magnitude: how large the gradient is that arrived; None where it was not measured, or none arrived.
        update: what one update of the user's optimizer does to x; None where none is known.
    """

    magnitude: Magnitude | None = None
    update: Update | None = None
    status: Status

    def __init__(
        self, status: Status | str, cuts: tuple[Cut, ...] = (), paths: int = 0, cut_paths: int = 0
    ) -> None:
        self.status = Status(status)
        self._given = cuts, paths, cut_paths

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        return self._given[0]

    @property
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

    @property
    def moves(self) -> bool | None:
        """Whether one update changes x; None where no optimizer is known."""
        return None if self.update is None else self.update.moves

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reach) and (self.status, self.cuts) == (other.status, other.cuts)

    def __hash__(self) -> int:
        return hash((self.status, self.cuts))

    def __repr__(self) -> str:
        return f"Reach({self.status!r}, {self.cuts!r})"


class GateUse:
    """A gate between ys and the tensors asked about that may end paths.

    Attributes:
        operation: the gate.
        idle: whether it does nothing: no path ends first at it that would be open without any gates. Of two
            stops one behind the other, the one behind is idle.
        why_idle: why it is idle; empty if it is not.
    """

    operation: Operation
    why_idle: str

    def __init__(
        self, operation: Operation, cuts: Callable[[], tuple[Names, Names]], why_idle: str = ""
    ) -> None:
        self.operation, self.why_idle = operation, why_idle
        self._find = cuts

    @cached_property
    def _fully_and_partly(self) -> tuple[Names, Names]:
        return self._find()

    @property
    def fully(self) -> Names:
        """The tensors that it cuts and that no gradient reaches."""
        return self._fully_and_partly[0]

    @property
    def partly(self) -> Names:
        """The tensors that it cuts, but that a gradient reaches by other paths."""
        return self._fully_and_partly[1]

    @property
    def cuts(self) -> Names:
        """The tensors that it cuts."""
        return self.fully + self.partly

    @property
    def idle(self) -> bool:
        return bool(self.why_idle)

    @property
    def location(self) -> Location | None:
        return self.operation.location

    def __repr__(self) -> str:
        return f"GateUse({self.operation!r}, why_idle={self.why_idle!r})"


@dataclass(frozen=True)
class Finding:
    """Something that a reader should look at.

    Attributes:
        kind: ``"idle"``, for a stop that does nothing, or the status of tensors that no gradient reaches.
        message: the finding, in a sentence.
        operations: its operations; for a status, those of the cuts.
        keys: the tensors that it is about.
        reason: for an idle stop, why it does nothing.
        frozen: whether it only says that tensors are frozen, as somebody will have meant.
    """

    kind: str
    message: str
    operations: tuple[Operation, ...]
    keys: tuple[str, ...] = ()
    reason: str = ""
    frozen: bool = False

    @property
    def location(self) -> Location | None:
        return self.operations[0].location if self.operations else None


class Story:
    """Tensors with the same result, which are reported together.

    Attributes:
        keys: the tensors, as they were asked about.
        status: their status.
        is_cut: whether any paths to them are cut.
        frozen: whether they are those that require no gradient, by whatever else they are cut besides.
    """

    keys: tuple[Any, ...]
    status: Status
    is_cut: bool
    frozen: bool

    def __init__(
        self,
        keys: tuple[Any, ...],
        status: Status,
        is_cut: bool,
        cuts: Callable[[], tuple[Cut, ...]],
        frozen: bool = False,
    ) -> None:
        self.keys, self.status, self.is_cut, self.frozen = keys, status, is_cut, frozen
        self._find = cuts

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """The cuts on the paths to them, in the order of their operations."""
        return self._find() if self.is_cut else ()

    @property
    def labels(self) -> Names:
        return tuple(map(label, self.keys))

    def __repr__(self) -> str:
        return f"Story({self.labels}, {self.status!r})"


Place = tuple[Any, ...]
"""The key by which operations form one cut for the reader: a line of source and what happens there."""
