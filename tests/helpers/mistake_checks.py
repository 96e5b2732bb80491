"""What holds for every program of a gallery of mistakes, whatever framework it is written in."""

from __future__ import annotations

import re

from mistakes import MARK, Gallery, Mistake

import stopgrad as sg
from stopgrad.base.source import Location


def check_gallery(gallery: Gallery, at_least: int) -> None:
    """There are programs for every symptom, each is short, says where it was made, and marks its line."""
    assert len(gallery.mistakes) >= at_least
    assert {mistake.symptom for mistake in gallery.mistakes} == set(gallery.symptoms)
    for mistake in gallery.mistakes:
        assert mistake.lines, mistake.name
        assert mistake.seen
        assert mistake.story
        assert len(mistake.text.split('"""')[2].strip().splitlines()) <= 48, mistake.name


def explained(gallery: Gallery) -> list[Mistake]:
    """Programs that say what is to learn or to be held."""
    return [m for m in gallery.mistakes if (m.learns or m.held) and m.symptom != "error"]


def lines_of(places: list[Location | None], mistake: Mistake) -> set[int]:
    """The lines of places, all of them in the program."""
    found = [place for place in places if place is not None]
    assert len(found) == len(places)
    assert {place.file for place in found} <= {str(mistake.path)}
    return {place.line for place in found}


def check_cuts(mistake: Mistake, uneven: int = 0) -> None:
    """What was to learn is cut at the marked lines and nowhere else, and learns in the cured program.

    Args:
        mistake: the program.
        uneven: in how many lines an integer or a comparison ends a path as well, by right.
    """
    flow, cured = mistake.flow("broken"), mistake.flow("cured")
    cut = mistake.symptom in ("none", "inert") or (mistake.symptom == "large" and not mistake.held)
    named: set[int] = set()
    for key in mistake.learns:
        reach = flow[key]
        guilty = sg.Status.STOPPED if reach.arrives else reach.status
        cuts = [cut for cut in reach.cuts if cut.status is guilty]
        if cut:
            named |= lines_of([cut.location for cut in cuts], mistake)
            assert len(reach.cuts) - len(cuts) == (uneven if cuts else 0)
            assert all(key in cut.behind for cut in cuts)
        assert cured[key].arrives, key
    assert named == (set(mistake.lines) if cut else set())


def check_held(mistake: Mistake) -> None:
    """What was to be held is held by the cured program."""
    assert not mistake.complaint("cured")
    cured = mistake.flow("cured")
    assert not any(cured[key].arrives for key in mistake.held)


def check_leak(mistake: Mistake) -> None:
    """A gradient that should not arrive comes through the marked lines, and a stop there would block it."""
    flow = mistake.flow("broken")
    text = mistake.complaint("broken")
    assert mistake.path.name in text
    for line in mistake.lines:
        assert re.search(rf"^ *{line} \| .*{MARK}$", text, re.M), text
    arrives = [key for key in mistake.held if flow[key].arrives]
    assert lines_of([op.location for op in flow.open_path(arrives[0])[:-1]], mistake) >= set(mistake.lines)
    guilty = [op for op in flow.marks() if op.location is not None and op.location.line in mistake.lines]
    there = [y for op in guilty for y in op.outputs]
    stopped = sg.explain(list(flow.ys), list(flow.xs.values()), stop_gradients=there)
    for key in mistake.held:
        assert not stopped[flow.xs[key]].arrives


def check_idle(mistake: Mistake) -> None:
    """A stop that does nothing is a finding at the marked line."""
    idle = [f for f in mistake.flow("broken").findings if f.kind == "idle"]
    assert lines_of([f.location for f in idle], mistake) == set(mistake.lines)


def check_none_idle(mistake: Mistake) -> None:
    """No stop of a cured program does nothing."""
    assert not [f for f in mistake.flow("cured").findings if f.kind == "idle"]
