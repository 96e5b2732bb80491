"""What a page asks of a report: the parts of :class:`stopgrad.flow.model.Flow` that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, ValuesView
from typing import Any, Protocol

from stopgrad.graph import Graph, Operation, Output
from stopgrad.op import Status
from stopgrad.source import Location


class Cut(Protocol):
    """A line of the user's source at which paths end."""

    @property
    def operations(self) -> tuple[Operation, ...]: ...
    @property
    def status(self) -> Status: ...
    @property
    def reason(self) -> str: ...
    @property
    def location(self) -> Location | None: ...
    @property
    def behind(self) -> tuple[str, ...]: ...
    @property
    def opens(self) -> tuple[str, ...]: ...
    @property
    def switched(self) -> bool: ...


class Gate(Protocol):
    """A gate that may end paths."""

    @property
    def operation(self) -> Operation: ...
    @property
    def location(self) -> Location | None: ...
    @property
    def idle(self) -> bool: ...


class Finding(Protocol):
    """Something that a reader should look at."""

    @property
    def kind(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def operations(self) -> tuple[Operation, ...]: ...
    @property
    def location(self) -> Location | None: ...


class Report(Protocol):
    """Which tensors gradients reach, and what keeps them from the others."""

    @property
    def graph(self) -> Graph: ...
    @property
    def ys(self) -> Sequence[Output]: ...
    @property
    def xs(self) -> Mapping[str, Output]: ...
    @property
    def gates(self) -> Sequence[Gate]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...

    def marks(self) -> Mapping[Operation, str]: ...
    def values(self) -> ValuesView[Any]: ...
