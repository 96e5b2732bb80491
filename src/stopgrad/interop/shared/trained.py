"""What calls that compute gradients gave to the parameters that code trains, for the marker of pytest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stopgrad.base.source import Location
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.patterns import matching
from stopgrad.flow.source_lines import place
from stopgrad.flow.stories import stories_of
from stopgrad.flow.words import listed, some

SHOWN = 4
"""The most names in a message."""
CALLS = 200
"""The most calls that are looked at, in the order in which they were made."""


class Call(Protocol):
    """A call that computed gradients, such as one of ``backward()`` or ``tape.gradient``."""

    @property
    def location(self) -> Location | None:
        """The user's line."""

    def explain(self, xs: Any) -> Flow:
        """The report on those of these parameters that the call was asked for, by their names."""


class Group(NamedTuple):
    """Parameters that are trained together.

    Attributes:
        name: whose they are, for messages.
        keys: their names.
        wholly: whether each must be trained; else only if any is.
    """

    name: str
    keys: tuple[str, ...]
    wholly: bool


class Trained(NamedTuple):
    """The calls that some code made, and the parameters that it trains.

    Attributes:
        does: what a call is, for messages, such as ``"backward()"``.
        calls: the calls, in order.
        parameters: what is trained, by name.
        groups: which of them are trained together.
    """

    does: str
    calls: Sequence[Call]
    parameters: Mapping[str, Any]
    groups: Sequence[Group]

    def wrong(self, only: Sequence[str] = (), blocked: Sequence[str] = (), ignore: Sequence[str] = ()) -> str:
        """What is wrong, with the report of the call that shows it; empty if nothing is.

        Args:
            only: patterns of names; gradients arrive at these and at no others.
            blocked: patterns of names; gradients arrive at none of these.
            ignore: patterns of names that are not looked at.

        Raises:
            ArgumentError: nothing is called as a pattern says.
        """
        groups = list(self.groups)
        reports = _Reports(self.does, self.calls[:CALLS], self.parameters)
        names = dict.fromkeys(key for group in groups for key in group.keys)
        ignored, barred = _matching(ignore, names, "ignore"), _matching(blocked, names, "blocked")
        if only:
            wanted = _matching(only, names, "only")
            groups, barred = [Group("only", tuple(wanted), True)], names.keys() - wanted
        required = [g._replace(keys=tuple(k for k in g.keys if k not in ignored | barred)) for g in groups]
        closed = [key for key in names if key in barred - ignored]
        return _missing(reports, required) or _arriving(reports, closed)


class _Reports:
    """The reports on the calls, made when they are asked for."""

    def __init__(self, does: str, calls: Sequence[Call], parameters: Mapping[str, Any]) -> None:
        self.does, self.calls, self._parameters = does, calls, dict(parameters)
        self._reports: dict[int, Flow] = {}

    def __getitem__(self, i: int) -> Flow:
        if i not in self._reports:
            self._reports[i] = self.calls[i].explain(self._parameters)
        return self._reports[i]

    def first(self, keys: Iterable[str]) -> dict[str, int]:
        """For each key that gets a gradient, the number of the first report in which it does."""
        first: dict[str, int] = {}
        left = dict.fromkeys(keys)
        for i in range(len(self.calls)):
            if not left:
                break
            flow = self[i]
            arrived = [key for key in left if key in flow and flow[key].arrives]
            first |= dict.fromkeys(arrived, i)
            for key in arrived:
                del left[key]
        return first

    def shown(self, i: int, keys: Sequence[str]) -> str:
        """The part of a report about these keys, below the line of its call.

        Where that call was not asked for any of them, it is that of the first that was.
        """
        asked = next(n for n in (i, *range(len(self.calls))) if any(key in self[n] for key in keys))
        location = self.calls[asked].location
        where = f"{self.does} at {place(location)}\n" if location is not None else ""
        return f"{where}\n{stories_of(self[asked][[key for key in keys if key in self[asked]]])}"


def _matching(patterns: Sequence[str], keys: Iterable[str], option: str) -> set[str]:
    """The keys that match patterns, with or without the module's name at their beginning."""
    both = {name: key for key in keys for name in (key.partition(".")[2], key) if name}
    return {both[name] for name in matching(option, patterns, both)}


def _missing(reports: _Reports, groups: Sequence[Group]) -> str:
    """The message about trained parameters that get no gradient."""
    for group in groups:
        first = reports.first(group.keys)
        missing = [key for key in group.keys if key not in first]
        if missing and (group.wholly or first):
            shown = reports.shown(min(first.values(), default=0), missing)
            return f"no {reports.does} gives a gradient to {_some(missing)} ({group.name})\n{shown}"
    return ""


def _arriving(reports: _Reports, barred: Sequence[str]) -> str:
    """The message about parameters that get a gradient but should not."""
    first = reports.first(barred)
    if not first:
        return ""
    arrived = [key for key, i in first.items() if i == min(first.values())]
    shown = reports.shown(min(first.values()), arrived)
    return f"{reports.does} gives a gradient to {_some(arrived)}, and should not\n{shown}"


def _some(names: Sequence[str]) -> str:
    """Names listed for a sentence, only the first few of many."""
    return listed(list(names)) if len(names) <= SHOWN else some(list(names), SHOWN)
