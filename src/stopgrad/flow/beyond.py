"""Single paths through a graph: an open path; and where paths would end next if a cut were removed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from stopgrad.flow.survey import Survey
from stopgrad.flow.walls import OPEN, Wall
from stopgrad.flow.ways import Ending, Results, endings, from_results, to_sources
from stopgrad.graph.graph import Operation, Output

P = TypeVar("P", bound=Hashable)
Next = list[Ending]
"""The walls that are next, which lead to some x."""

TOGETHER = 256
"""The number of cuts that one sweep removes, each by itself."""


def walls_beyond(survey: Survey, place: Callable[[Wall], P], places: Sequence[P]) -> dict[P, Next]:
    """For cuts, given by their places, the walls that are next behind each."""
    walls_behind: dict[P, Next] = {}
    wanted = dict.fromkeys(places)
    removed: dict[P, list[Ending]] = {}
    for ending in survey.endings:
        where = place(ending.wall)
        if where in wanted:
            removed.setdefault(where, []).append(ending)
    rest = list(removed.items())
    while rest:
        part, rest = rest[:TOGETHER], rest[TOGETHER:]
        for where, walls in zip(
            [where for where, _ in part], _seen_from(survey, [e for _, e in part]), strict=True
        ):
            walls_behind[where] = walls
    return walls_behind


def _seen_from(survey: Survey, removed: Sequence[Sequence[Ending]]) -> list[Next]:
    """For groups of walls, the walls that are next behind each group."""
    sweep, results = survey.sweep, Results(len(removed))
    start: dict[Output, int] = {}
    for k, group in enumerate(removed):
        for wall, inside, *_ in group:
            for way in sweep.ways[inside.id]:
                for one, inputs in way.walls:
                    # What is not open is behind a second wall in the same body, which is not searched.
                    for i in [i for i, level in inputs if one == wall and level == OPEN]:
                        x = inside.inputs[i]
                        start[x] = start.get(x, 0) | results.starting(1 << k, x)
    reached = from_results(sweep, start, results)
    walls_behind: list[Next] = [[] for _ in removed]
    for ending in endings(sweep, reached, survey.leads, results, survey.sources):
        bits = ending.results
        while bits:
            lowest = bits & -bits
            walls_behind[lowest.bit_length() - 1].append(ending)
            bits ^= lowest
    return walls_behind


def open_path(survey: Survey, ys: Sequence[Output], x: Output) -> list[Operation]:
    """The operations of an open path from a result to a tensor that gradients reach."""
    sweep, sources = survey.sweep, survey.sources
    to_x = to_sources(sweep, {x: sources.starting(1)}, sources)

    def leads(tensor: Output) -> bool:
        return sources.openly(to_x[sweep.place(tensor)]) != 0

    tensor = next(y for y in ys if y.type.differentiable and leads(y))
    path = [tensor.op]
    while tensor is not x:
        ways = sweep.ways.get(tensor.op.id)
        if ways is None:
            inputs: Sequence[Output] = tensor.op.inputs
        else:
            inputs = [tensor.op.inputs[i] for i, level in ways[tensor.index].inputs if level == OPEN]
        tensor = next(operand for operand in inputs if leads(operand))
        path.append(tensor.op)
    return path
