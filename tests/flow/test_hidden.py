"""What lies behind walls: against sets for each tensor, and how its cost grows."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tiers import some

import stopgrad as sg
from stopgrad.flow import hidden, opened
from stopgrad.flow.hidden import Hidden
from stopgrad.flow.survey import Survey, surveys
from stopgrad.flow.walls import OPEN
from stopgrad.flow.ways import Spot


def vector(name: str) -> sg.Output:
    return sg.placeholder(sg.float64, [4], name=name)


def carried(x: sg.Output, w: sg.Output) -> sg.Output:
    """The end of a loop in which a part of each step is stopped."""
    end, _ = sg.scan(lambda c, _: (sg.tanh(c) + sg.stop_gradient(c * w), None), x, length=3)
    return end


STEPS: list[Callable[[random.Random, list[sg.Output]], Any]] = [
    lambda r, some: sg.tanh(r.choice(some)),
    lambda r, some: r.choice(some) * r.choice(some),
    lambda r, some: r.choice(some) + r.choice(some),
    lambda r, some: sg.split(sg.concat([r.choice(some), r.choice(some)], axis=0), 2, axis=0)[0],
    lambda r, some: sg.stop_gradient(r.choice(some)),
    lambda r, some: sg.stop_gradient(r.choice(some), when=sg.reduce_sum(r.choice(some)) > 0.0),
    lambda r, some: sg.round(r.choice(some)),
    lambda r, some: sg.cast(sg.cast(r.choice(some), sg.int32) + 1, sg.float64),
    lambda r, some: sg.where(r.choice(some) > 0.0, r.choice(some), r.choice(some)),
    lambda r, some: sg.prevent_gradient(r.choice(some), "not here"),
    lambda r, some: carried(r.choice(some), r.choice(some)),
]


def random_survey(seed: int) -> Survey:
    """Of a graph in which late tensors are taken rather than early ones, so that it is deep."""
    r = random.Random(seed)
    with sg.Graph().as_default() as graph:
        xs = [vector(f"w{k}") for k in range(r.randrange(1, 40))]
        made = list(xs)
        plain = r.randrange(1, 8)  # In some graphs walls are few.
        for _ in range(r.randrange(2, 80)):
            step = r.choice(STEPS[:4] * plain + STEPS[4:])
            made.append(step(r, made[-r.randrange(1, len(made) + 1) :]))
        ys = [sg.reduce_sum(y) for y in made[-r.randrange(1, 4) :]]
        asked = r.sample(made, r.randrange(1, len(made)))
        (survey,) = surveys(graph, ys, asked, r.sample(made, r.randrange(2)))
    return survey


def levels_behind(survey: Survey) -> dict[Spot, dict[int, int]]:
    """For each wall, the positions of the xs behind it, each with the level of the best way to it."""
    sweep = survey.sweep
    best: list[dict[int, int]] = [{} for _ in range(sweep.places)]  # By place, for each x that it leads to.
    for k, x in enumerate(survey.xs):
        if sweep.place(x) >= 0:
            best[sweep.place(x)][k] = OPEN
    found: dict[Spot, dict[int, int]] = {}

    def through(op: sg.Operation, inputs: Any) -> dict[int, int]:
        levels: dict[int, int] = {}
        for i, level in inputs:
            for k, rest in best[sweep.place(op.inputs[i])].items():
                levels[k] = min(max(level, rest), levels.get(k, 9))
        return levels

    for op in sweep.operations:
        open = [(range(len(op.inputs)), None)] * len(op.outputs)
        for o, way in enumerate(sweep.ways.get(op.id, open)):
            inputs = [(i, OPEN) for i in way[0]] if way[1] is None else way.inputs
            for k, level in through(op, inputs).items():
                own = best[sweep.place(op.outputs[o])]
                own[k] = min(level, own.get(k, 9))
            for number, (_, behind) in enumerate(() if way[1] is None else way.walls):
                found[op.id, o, number] = through(op, behind)
    return {spot: behind for spot, behind in found.items() if behind}


def check(survey: Survey, r: random.Random) -> None:
    expected, found = levels_behind(survey), survey.hidden
    seen = {ending.spot for ending in survey.endings}
    node = {spot: found.wall(spot) for spot in expected}
    for spot, behind in expected.items():
        assert found.tensors([node[spot]]) == sorted(behind)
        assert found.tensors([node[spot]], openly=True) == sorted(k for k in behind if behind[k] == OPEN)
    some = r.sample(sorted(expected), r.randrange(len(expected) + 1))
    assert found.tensors([node[s] for s in some]) == sorted(set().union(*[expected[s] for s in some]))
    above = [{spot for spot, behind in expected.items() if k in behind} for k in range(len(survey.xs))]
    for k, spots in enumerate(above):
        around = found.before([found.node[k]])
        assert {spot for spot in node if node[spot] in around} == spots
        assert found.is_cut(k) == bool(spots & seen)
    for spot, other in zip(some, reversed(some), strict=True):
        if found.alike([node[spot]]) == found.alike([node[other]]):
            assert expected[spot].keys() == expected[other].keys()
    lines = {spot: r.randrange(1 + len(seen)) for spot in seen}
    kinds = found.kinds({node[spot]: line for spot, line in lines.items()})
    at = [frozenset(lines[spot] for spot in spots & seen) for spots in above]
    known: dict[int, frozenset[int]] = {}
    for k, own in enumerate(at):
        if above[k]:
            kind, count = kinds[found.node[k]]
            assert count == len(own)
            assert known.setdefault(kind, own) == own
    assert len(set(known.values())) == len(known)
    first = found.first({found.node[k]: k for k in reversed(range(len(at))) if above[k]})
    assert {spot: first[node[spot]] for spot in node} == {
        spot: min(behind) for spot, behind in expected.items()
    }


@pytest.mark.parametrize("bits", [1, 300, hidden.BITS])
@pytest.mark.parametrize("seed", range(25))
def test_what_lies_behind_walls_is_what_sets_for_each_tensor_say(
    seed: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden, "BITS", bits)
    check(random_survey(seed), random.Random(seed))


def test_an_open_way_counts_beside_one_through_a_further_wall() -> None:
    with sg.Graph().as_default() as graph:
        x = vector("x")
        inner = sg.round(x * 2.0) + x
        (survey,) = surveys(graph, [sg.reduce_sum(sg.stop_gradient(inner))], [x])
    check(survey, random.Random(0))
    (wall,) = [survey.hidden.wall(ending.spot) for ending in survey.endings]
    assert survey.hidden.tensors([wall], openly=True) == [0]


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_what_lies_behind_walls_of_many_graphs(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1_000 + 300 * block, 1_300 + 300 * block):
        monkeypatch.setattr(hidden, "BITS", [1, 300, 1 << 31][seed % 3])
        check(random_survey(seed), random.Random(seed))


@pytest.mark.parametrize("seed", range(25))
def test_lines_that_are_compared_few_at_a_time_stand_behind_themselves_as_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey, r = random_survey(seed), random.Random(seed)
    line: dict[Any, int] = {}

    def line_of(wall: Any) -> int:
        return line.setdefault(wall, r.randrange(6))

    whole = opened.behind_themselves(survey, line_of)
    monkeypatch.setattr(opened, "BITS", 1)
    assert opened.behind_themselves(survey, line_of) == whole


# ------------------------------------------------------------------------------------------------ costs


def teacher(size: int) -> tuple[sg.Output, list[sg.Output]]:
    """Half of the tensors lie behind one stop."""
    ws = [vector(f"w{k}") for k in range(size)]
    ours, theirs = vector("x"), vector("z")
    for k in range(size // 2):
        ours, theirs = sg.tanh(ours * ws[k]), sg.tanh(theirs * ws[size // 2 + k])
    return ours - sg.stop_gradient(theirs), ws


def layers(size: int) -> tuple[sg.Output, list[sg.Output]]:
    """In each layer a branch is stopped, so that each tensor has more walls above it than the next."""
    ws, y = [vector(f"w{k}") for k in range(size)], vector("x")
    for w in ws:
        y = sg.tanh(y * w) + sg.stop_gradient(sg.sin(y))
    return y, ws


def one_each(size: int) -> tuple[sg.Output, list[sg.Output]]:
    """Each tensor has a stop of its own."""
    ws, y = [vector(f"w{k}") for k in range(size)], vector("x")
    for w in ws:
        y = y + sg.stop_gradient(sg.sin(w))
    return y, ws


def in_a_row(size: int) -> tuple[sg.Output, list[sg.Output]]:
    """Each stop lies behind the one before."""
    ws, y = [vector(f"w{k}") for k in range(size)], vector("x")
    for w in ws:
        y = sg.stop_gradient(y * w) + w
    return y, ws


def wide(size: int) -> tuple[sg.Output, list[sg.Output]]:
    """Everything flows."""
    ws, y = [vector(f"w{k}") for k in range(size)], vector("x")
    for w in ws:
        y = sg.tanh(y * w)
    return y, ws


SHAPES = [wide, teacher, layers, one_each, in_a_row]


@contextmanager
def counting_calls() -> Iterator[list[int]]:
    """The number of calls of functions, also of those in C."""
    count = [0]

    def note(_: object, event: str, __: object) -> None:
        count[0] += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(before)


def calls(shape: Callable[[int], tuple[sg.Output, list[sg.Output]]], size: int) -> int:
    with sg.Graph().as_default():
        y, xs = shape(size)
        with counting_calls() as count:
            str(sg.explain(y, xs))
    return count[0]


def kibibytes(shape: Callable[[int], tuple[sg.Output, list[sg.Output]]], size: int) -> float:
    """The most memory that is needed besides the graph, without numbers of paths, which may be long."""
    with sg.Graph().as_default():
        y, xs = shape(size)
        gc.collect()
        gc.disable()  # When it runs depends on what other tests have left.
        tracemalloc.start()
        try:
            flow = sg.explain(y, xs)
            assert len(flow.stories) >= 1
            return tracemalloc.get_traced_memory()[1] / 1024
        finally:
            tracemalloc.stop()
            gc.enable()


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_as_many_tensors_and_operations_take_twice_as_many_calls(shape: Any) -> None:
    calls(shape, 50)
    assert calls(shape, 300) <= 2.1 * calls(shape, 150)


@pytest.mark.parametrize("shape", some(SHAPES, 5))
def test_four_times_as_many_tensors_and_operations_take_four_times_the_memory(shape: Any) -> None:
    kibibytes(shape, 50)
    assert kibibytes(shape, 800) <= 5 * kibibytes(shape, 200)  # As bits of numbers, they took six.


def test_tensors_with_the_same_ways_to_walls_are_one_node() -> None:
    with sg.Graph().as_default():
        y, xs = teacher(100)
        flow = sg.explain(y, xs)
        found: Hidden = flow._surveys[0].hidden
    assert set(found.node) == {0, 1}
    assert found.members == {1: list(range(50, 100))}
