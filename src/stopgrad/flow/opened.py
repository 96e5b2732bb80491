"""What a gradient would reach without one line, some of whose walls may be behind others of that line.

That happens if a helper with a stop is called twice on the way, or if a loop with a stop was unrolled. Few
lines are of that kind, and one sweep finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from stopgrad.flow.hidden import BITS
from stopgrad.flow.survey import Survey
from stopgrad.flow.walls import OPEN, Wall

PlaceOf = Callable[[Wall], Hashable]
"""The place of a wall, which all walls of a line share."""


def behind_themselves(survey: Survey, place_of: PlaceOf) -> set[Any]:
    """The lines that may have one wall behind another, with nothing but open ways and integers between."""
    lines, several = _several(survey, place_of)
    width = max(BITS // survey.sweep.places, 1)
    for begin in range(0, len(several), width):
        bits = {place: 1 << k for k, place in enumerate(several[begin : begin + width])}
        lines |= _in_a_row(survey, place_of, bits)
    return lines


def _in_a_row(survey: Survey, place_of: PlaceOf, bits: Mapping[Any, int]) -> set[Any]:
    """The lines, each with its bit, of which a wall outside of bodies may be behind another."""
    lines = set()
    sweep = survey.sweep
    ahead = [0] * sweep.places  # The lines that have the next wall.
    for op in sweep.operations:
        at, ways = sweep.first[op.id], sweep.ways.get(op.id)
        before = [ahead[sweep.first[x.op.id] + x.index] for x in op.inputs]
        if ways is None:
            mask = 0
            for one in before:
                mask |= one
            for n in range(at, at + len(op.outputs)):
                ahead[n] = mask
            continue
        for o, way in enumerate(ways):
            mask = 0
            for i, level in way.inputs:
                if level == OPEN or i in way.dark:
                    mask |= before[i]
            for wall, inputs in way.walls:
                place = place_of(wall)
                bit = bits.get(place, 0)
                if bit and (mask & bit or any(before[i] & bit for i, _ in inputs)):
                    lines.add(place)
                mask |= bit
            ahead[at + o] = mask
    return lines


def _several(survey: Survey, place_of: PlaceOf) -> tuple[set[Any], list[Any]]:
    """The lines of walls in bodies, and those with several operations outside of bodies."""
    outside: dict[Any, set[Any]] = {}
    inside = set()
    for ways in survey.sweep.ways.values():
        for way in ways:
            for wall, _ in way.walls:
                place = place_of(wall)
                if wall.operation.graph is survey.graph:
                    outside.setdefault(place, set()).add(wall.operation)
                else:
                    inside.add(place)
    return inside, [place for place, walls in outside.items() if len(walls) > 1 and place not in inside]
