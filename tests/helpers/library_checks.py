"""What a test of somebody's library says: which gradients arrive, and which line cuts the others.

Lines are found by their text, not by their number, so that another release does not break a test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, TypeVar

import stopgrad as sg

Lines = set[tuple[str, int]]
Case = TypeVar("Case")


class Entry(NamedTuple, Generic[Case]):
    """A case, and the package that it is about, as the registry calls it."""

    package: str
    build: Callable[[], Case]


class Cases(dict[str, Entry[Case]]):
    """Losses of libraries, and what is true of them, by the names of the functions that build them."""

    def of(self, package: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
        """Decorator: a case of a package."""

        def keep(build: Callable[[], Case]) -> Callable[[], Case]:
            self[build.__name__] = Entry(package, build)
            return build

        return keep


@dataclass
class Findings:
    """What is wrong of a loss; of a case that is right itself, what the watch does wrong.

    Attributes:
        parameters: how many verdicts there were.
        case: what the case says wrongly: not what autograd does.
        verdicts, lines: what the report says wrongly.
        changed: values and gradients that are others under a watch.
        texts: reports that nobody reads at a glance.
    """

    parameters: int = 0
    case: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[str]:
        return [*self.case, *self.verdicts, *self.lines, *self.changed, *self.texts]


def lines(owner: Any, *texts: str) -> Lines:
    """The lines of a function, class or module in which one of these texts stands.

    Raises:
        LookupError: a text stands nowhere in it: another release, perhaps, says it in another way.
    """
    code, start = inspect.getsourcelines(owner)
    file = inspect.getsourcefile(owner)
    assert file is not None
    found: Lines = set()
    for text in texts:
        there = {(file, max(start, 1) + i) for i, line in enumerate(code) if text in line}
        if not there:
            raise LookupError(f"{text!r} does not stand in {owner}")
        found |= there
    return found


def matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def check_flow(
    flow: sg.Flow,
    gradients: Mapping[str, bool],
    held: Mapping[str, Lines | str],
    cut: Mapping[str, Lines] | None = None,
) -> None:
    """A report says what the framework's own gradients say, and names the lines.

    Args:
        flow: the report.
        gradients: for each key, whether the framework's gradient is not zero.
        held: patterns of keys that must get no gradient, each with the lines that cut every path, or with a
            status that has no lines. All other keys must get one.
        cut: patterns of keys that get a gradient, some of whose paths are cut at these lines.
    """
    assert set(gradients) <= set(flow)
    for pattern in held:
        assert any(fnmatchcase(key, pattern) for key in gradients), f"{pattern} is the name of nothing"
    for key, arrives in gradients.items():
        wanted = not matches(key, list(held))
        assert flow[key].arrives == arrives, f"{key}: {flow[key].status}, and the gradient is {arrives}"
        assert arrives == wanted, f"{key} gets {'a' if arrives else 'no'} gradient"
        for pattern, expected in {**held, **(cut or {})}.items():
            if not fnmatchcase(key, pattern):
                continue
            if isinstance(expected, str):
                assert flow[key].status == expected, key
            else:
                assert cut_lines(flow, key) == expected, key


def cut_lines(flow: sg.Flow, key: str) -> Lines:
    """The lines of the stops that cut paths to a tensor; where there is none, of whatever cuts them."""
    stops = [one for one in flow[key].cuts if one.status == sg.Status.STOPPED]
    places = [one.location for one in stops or flow[key].cuts]
    return {(place.file, place.line) for place in places if place is not None}


def any_draw(nonzero: Callable[[int], Mapping[str, bool]], draws: int = 3) -> dict[str, bool]:
    """Whether a gradient is not zero for one of several draws of the data."""
    found: dict[str, bool] = {}
    for draw in range(draws):
        for key, arrives in nonzero(draw).items():
            found[key] = found.get(key, False) or arrives
    return found
