"""The options ``--only``, which selects a part of a report, and ``--fail-on``, which makes a command fail."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import Location
from stopgrad.flow.asked import label
from stopgrad.flow.comparisons import KIND
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.patterns import matching
from stopgrad.flow.source_lines import place
from stopgrad.flow.updates import HANDED, VERDICTS
from stopgrad.flow.words import names
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Status

ROOM = 200
"""The columns of names in a condition that is met; of more, modules are named."""
IDLE = "idle"
"""A finding that is no status: a stop without effect."""
COMPARED = KIND.replace("-", " ")
"""Another: a loss that compares each prediction with every target."""
UPDATES = tuple(word for word in VERDICTS if word != HANDED)
"""What an update does to a parameter, where an optimizer is given."""


class Condition(NamedTuple):
    """One word of ``--fail-on``: a status or finding, and the name it is about; if empty, all."""

    word: str
    key: str


def conditions(text: str) -> list[Condition]:
    """The conditions in the option's value.

    Examples:
        >>> conditions("idle,partly-stopped:params")
        [Condition(word='idle', key=''), Condition(word='partly stopped', key='params')]
    """
    named = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, _, key = part.partition(":")
        word = " ".join(word.replace("-", " ").replace("_", " ").lower().split())
        words = [*map(str, Status), IDLE, COMPARED, *UPDATES]
        if word not in words:
            near = difflib.get_close_matches(word, words, 1)
            cure = f"did you mean {_dashed(near[0])}?" if near else f"take {', '.join(map(_dashed, words))}"
            raise ArgumentError(f"--fail-on: there is no {part.partition(':')[0]!r}; {cure}")
        named.append(Condition(word, key.strip()))
    if not named:
        raise ArgumentError("--fail-on: names nothing; write for instance --fail-on idle,stopped:w")
    return named


def _dashed(word: str) -> str:
    return word.replace(" ", "-")


def only(flow: Flow, patterns: Sequence[str]) -> Any:
    """The part of a report on names that match a pattern; all of it without patterns.

    Raises:
        ArgumentError: a pattern matches nothing.
    """
    if not patterns:
        return flow
    keys = {label(key): key for key in flow}
    return flow[[keys[name] for name in matching("--only", patterns, keys)]]


class Met(NamedTuple):
    """A part of a report that meets a condition: what it is, what it says, and the lines that it is about."""

    word: str
    message: str
    locations: tuple[Location, ...]

    def __str__(self) -> str:
        causes = [at.cause for at in self.locations]
        shown = dict.fromkeys(f"{place(at)}: {at.source}" for at in causes)
        return f"{self.word}: {self.message}" + (f" ({'; '.join(shown)})" if shown else "")


def met(flow: Flow, wanted: Iterable[Condition]) -> list[Met]:
    """The parts of a report that meet any condition, each once.

    Raises:
        ArgumentError: the report does not have the name in a condition.
    """
    matches: dict[Met, None] = {}
    for condition in wanted:
        if condition.word in UPDATES:
            matches |= dict.fromkeys(_updated(flow, condition))
        elif condition.word == COMPARED:
            compared = _part(flow, condition).compared
            matches |= dict.fromkeys([Met(KIND, x.message, _places(x.operations)) for x in compared])
        else:
            matches |= dict.fromkeys(
                _idle(flow, condition.key) if condition.word == IDLE else _with_status(flow, condition)
            )
    return list(matches)


def _part(flow: Flow, wanted: Condition) -> Flow:
    """The part of a report that a condition is about."""
    if not wanted.key:
        return flow
    try:
        part = flow[wanted.key]
    except KeyError as error:
        raise ArgumentError(f"--fail-on {_dashed(wanted.word)}:{wanted.key}: {error.args[0]}") from None
    selected: Flow = part if hasattr(part, "stories") else flow[[wanted.key]]
    return selected


def _updated(flow: Flow, wanted: Condition) -> Iterator[Met]:
    """The tensors with a verdict on what an update does to them."""
    if not flow.updates:
        raise ArgumentError(
            f"--fail-on {_dashed(wanted.word)}: it is not known what updates do; "
            "name an optimizer with --optimizer"
        )
    part = _part(flow, wanted)
    keys = [name for name, update in part.updates.items() if update.verdict == wanted.word]
    if keys:
        text = ", ".join(keys)
        cuts = [cut for name in keys for cut in part[name].cuts if not part[name].arrives]
        shown = text if len(text) <= ROOM else names(keys, part.xs, ROOM)
        yield Met(wanted.word, shown, _places(dict.fromkeys(cut.operation for cut in cuts)))


def _with_status(flow: Flow, wanted: Condition) -> Iterator[Met]:
    part = _part(flow, wanted)
    for story in part.stories:
        if not wanted.key and all(map(part.is_updated, story.labels)):
            continue
        if story.status == wanted.word:
            operations = [cut.operation for cut in story.cuts]
            if story.frozen:
                operations = [*part.freezing(story), *operations][:1]
            text = ", ".join(story.labels)
            if len(text) > ROOM:
                text = names(story.labels, part.xs, ROOM)
            yield Met(wanted.word, text, _places(operations))


def _idle(flow: Flow, key: str) -> Iterator[Met]:
    """The idle stops: all, or those of a name or below a scope."""
    gates = [gate.operation for gate in flow.gates]
    if key and not any(_is_called(op, key) for op in gates):
        existing = f"there are {', '.join(op.name for op in gates)}" if gates else "there are none"
        raise ArgumentError(f"--fail-on idle:{key}: no stop is called so; {existing}")
    for finding in flow.findings:
        if finding.kind == IDLE and (not key or any(_is_called(op, key) for op in finding.operations)):
            yield Met(IDLE, finding.message, _places(finding.operations[:1]))


def _is_called(op: Operation, key: str) -> bool:
    return op.name == key or op.name.startswith(f"{key}/")


def _places(operations: Iterable[Operation]) -> tuple[Location, ...]:
    """The places of operations that have one."""
    return tuple(location for location in (op.location for op in operations) if location is not None)
