"""Findings about a training in JAX: each states what was compared, and nothing beyond it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stopgrad.base.source import Location, RawLocation, decode
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.parts import ARRIVES
from stopgrad.flow.problems.cutting import MOST, cutting
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Status
from stopgrad.interop.jax.training.gradient_calls import Leaf, Point
from stopgrad.interop.jax.training.optimizing import Applied
from stopgrad.interop.jax.training.written import read_at
from stopgrad.ops.gates.stopping import StopGradient

SEVERAL = 3
"""The fewest calls in which the same must have happened for it to be told."""
DEEPEST = 50
Key = tuple[str, tuple[int, ...]]
"""What a parameter is known by at other points: its path in the argument, and its shape."""


class Silent(NamedTuple):
    """A leaf at which no gradient arrives, for a reason that a report gives.

    Attributes:
        point: where it was asked for.
        leaf: the leaf.
        status: of the report.
        cuts: the lines that cut it off.
        is_meant: whether it is stopped itself, before anything is computed from it.
    """

    point: Point
    leaf: Leaf
    status: Status
    cuts: tuple[Site, ...]
    is_meant: bool

    @property
    def key(self) -> Key:
        return self.leaf.tail, self.leaf.shape


def silent_leaves(point: Point, flow: Flow) -> list[Silent]:
    """The leaves whose gradient was zero, and to which a report knows no open path."""
    silent = []
    for leaf in point.leaves:
        path = _path_in(flow, leaf)
        if leaf.is_zero and path:
            reach = flow[path]
            if reach.status not in ARRIVES:
                cuts = tuple(cutting(flow, [path]))
                silent.append(Silent(point, leaf, reach.status, cuts, _is_meant(flow, path)))
    return silent


def _path_in(flow: Flow, leaf: Leaf) -> str:
    return leaf.path if leaf.path in flow.xs else ""


def _is_meant(flow: Flow, path: str) -> bool:
    """Whether all that cuts is a stop of the parameter itself, as one writes to freeze it."""
    cuts = flow[path].cuts
    return bool(cuts) and all(
        op.definition is StopGradient and _is_of(op, flow) for cut in cuts for op in cut.operations
    )


def _is_of(op: Operation, flow: Flow) -> bool:
    """Whether an operation's operand is an argument, as it is given or in another shape or dtype."""
    arguments = set(flow.xs.values())
    for _ in range(DEEPEST):
        if len(op.inputs) != 1:
            return False
        if op.inputs[0] in arguments:
            return True
        op = op.inputs[0].op
    return False


# ------------------------------------------------------------------------------------------- findings


def problems_of(
    points: Mapping[Any, Point], silent: Sequence[Silent], applied: Sequence[Applied]
) -> Iterator[Problem]:
    """All findings of a training."""
    moved: set[Key] = set()
    for place in applied:
        point = points.get(place.point)
        others = (
            [] if point is None else [other for other in points.values() if _is_interleaved(other, point)]
        )
        arriving_elsewhere = _arriving(others)
        mine = [
            silent_leaf
            for silent_leaf in silent
            if _is_at(silent_leaf, point) and silent_leaf.key not in arriving_elsewhere
        ]
        for problem, keys in _moved(place, mine):
            moved |= keys
            yield problem
    arriving = _arriving(points.values())
    unexplained = [
        silent_leaf
        for silent_leaf in silent
        if not (silent_leaf.is_meant or silent_leaf.key in moved or silent_leaf.key in arriving)
        and _is_stepped(
            silent_leaf, [step for step in applied if _is_at(silent_leaf, points.get(step.point))]
        )
    ]
    yield from _no_gradient(
        [silent_leaf for silent_leaf in unexplained if silent_leaf.status is not Status.DISCONNECTED]
    )
    yield from _unused(
        [silent_leaf for silent_leaf in unexplained if silent_leaf.status is Status.DISCONNECTED]
    )
    for place in applied:
        yield from _raw(place)
        yield from _stays(place, points.get(place.point))


def _is_at(silent_leaf: Silent, point: Point | None) -> bool:
    return point is not None and silent_leaf.point.span is point.span


def _is_stepped(silent_leaf: Silent, applied: Sequence[Applied]) -> bool:
    """Whether an optimizer is to move a leaf, as far as is known: its update is no constant zero."""
    return not applied or any(
        silent_leaf.key == key and i not in (place.untouched or ())
        for place in applied
        for i, key in enumerate(zip(place.tails, place.shapes, strict=True))
    )


def _arriving(points: Iterable[Point]) -> set[Key]:
    return {(leaf.tail, leaf.shape) for point in points for leaf in point.leaves if not leaf.is_zero}


def _is_interleaved(one: Point, other: Point) -> bool:
    """Whether two program points are parts of one training: one is called between calls of the other."""
    return one.span[0] <= other.span[1] and other.span[0] <= one.span[1]


def _no_gradient(silent: Sequence[Silent]) -> Iterator[Problem]:
    groups: dict[tuple[object, ...], list[Silent]] = {}
    for silent_leaf in silent:
        groups.setdefault((silent_leaf.point.place, silent_leaf.cuts), []).append(silent_leaf)
    for group in groups.values():
        names = [silent_leaf.leaf.name for silent_leaf in group]
        receive = "receives" if len(names) == 1 else "receive"
        yield Problem(
            "no-gradient",
            f"{some(names, 3)} {receive} no gradient: all ways from the loss to {_it(names)} are cut",
            [*group[0].cuts, *_sites("called", "differentiated here", group[0].point.place)],
            names,
            {"gradient": 0.0, "status": str(group[0].status.value)},
            "take the cut out, or, if it is meant, freeze the parameters themselves: "
            "stop_gradient(params[...]), or optax.multi_transform with set_to_zero",
        )


def _unused(silent: Sequence[Silent]) -> Iterator[Problem]:
    groups: dict[int, list[Silent]] = {}
    for silent_leaf in silent:
        groups.setdefault(id(silent_leaf.point), []).append(silent_leaf)
    for group in groups.values():
        names, point = [silent_leaf.leaf.name for silent_leaf in group], group[0].point
        is_whole = (
            len(group) == len(point.leaves)
            and sum(math.prod(silent_leaf.leaf.shape) for silent_leaf in group) > 1
        )
        outside = list(
            dict.fromkeys(silent_leaf.leaf.outside for silent_leaf in group if silent_leaf.leaf.outside)
        )
        what = f"{point.name or 'the function'}, which is differentiated"
        instead = f": it reads {some(outside, 3)} from outside of it instead" if outside else ""
        sites = [site for name in outside for site in _read_in(point, name)]
        sites += [site for silent_leaf in group for site in silent_leaf.cuts]
        use = f"let {point.name or 'the function'} use its argument"
        yield Problem(
            "no-gradient" if is_whole else "held-unused",
            f"{some(names, 3)} {_play(names)} no part in the result of {what}{instead}",
            [*list(dict.fromkeys(sites))[:MOST], *_sites("called", "differentiated here", point.place)],
            names,
            {"gradient": 0.0},
            f"{use}, in place of {some(outside, 3)} from outside"
            if outside
            else "use it in the loss, or leave it out of what is differentiated",
        )


def _read_in(point: Point, name: str) -> list[Site]:
    location = None if point.code is None else read_at(point.code, name)
    return (
        [] if location is None else [Site("cut", f"{name} is read here, which is not the argument", location)]
    )


def _moved(place: Applied, silent: Sequence[Silent]) -> Iterator[tuple[Problem, set[Key]]]:
    """Parameters without gradient that updates change all the same."""
    by_key = {silent_leaf.key: silent_leaf for silent_leaf in silent}
    keys = list(zip(place.tails, place.shapes, strict=True))
    indices = [i for i, key in enumerate(keys) if key in by_key and place.moved.get(i, 0) == place.looked > 0]
    if not indices or len(silent[0].point.leaves) != len(place.paths):
        return
    moving = [by_key[place.tails[i], place.shapes[i]] for i in indices]
    names = [silent_leaf.leaf.name for silent_leaf in moving]
    cuts = list(dict.fromkeys(site for silent_leaf in moving for site in silent_leaf.cuts))[:MOST]
    yield (
        Problem(
            "moves-frozen",
            f"no gradient arrives at {some(names, 3)}, and each step moves {_it(names)} all the same, as "
            "weight decay does",
            [*cuts, *_sites("step", f"optax.apply_updates moves {_it(names)} here", place.place)],
            names,
            {"steps": place.looked, "moved": place.moved[indices[0]]},
            "leave them out: optax.adamw(..., mask=...), or optax.multi_transform with set_to_zero for them",
        ),
        {silent_leaf.key for silent_leaf in moving},
    )


def _raw(place: Applied) -> Iterator[Problem]:
    """Parameters to which their gradient itself is added, since optax.masked passes it on as it is."""
    raw = sorted(place.raw or ())
    if not raw or len(raw) == len(place.paths):
        return
    names = [place.paths[i] for i in raw]
    yield Problem(
        "moves-frozen",
        f"the gradient of {some(names, 3)} is added to {_it(names)} as it is, without a step size or a "
        "sign: no part of the optimizer treats it",
        _sites("step", "added here", place.place),
        names,
        {"calls": place.calls, "moved": place.moved.get(raw[0], 0)},
        "optax.masked passes on what its mask leaves out: put optax.masked(optax.set_to_zero(), rest) behind "
        "it, or use optax.multi_transform with set_to_zero",
    )


def _stays(place: Applied, point: Point | None) -> Iterator[Problem]:
    """Parameters that never change, although gradients arrive."""
    if point is None or all(leaf.is_zero for leaf in point.leaves):
        return
    if place.dropped:
        yield Problem(
            "never-stepped",
            "the result of optax.apply_updates is thrown away: the parameters stay as they are",
            _sites("step", "called here, and its result is not used", place.place),
            place.paths if len(place.paths) < MOST else [],
            {"calls": place.calls},
            "arrays of JAX are not changed in place: params = optax.apply_updates(params, updates)",
        )
    elif place.looked >= SEVERAL and place.zero == place.looked and not place.accumulates:
        yield Problem(
            "no-learning-rate",
            f"gradients arrive, but all updates are exactly zero, in each of {place.looked} steps",
            _sites("step", "applied here", place.place),
            place.paths if len(place.paths) < MOST else [],
            {"steps": place.looked, "zero": place.zero, "moved": 0},
            "set the learning rate, or look at what the schedule makes of it at the first steps",
        )
    elif place.looked >= SEVERAL and place.same == place.looked:
        dtypes = sorted(set(place.dtypes))
        yield Problem(
            "lost-in-rounding",
            f"updates are lost in rounding: added to {some(dtypes)} parameters they change no element, "
            f"in each of {place.looked} steps",
            _sites("step", "applied here, and no element changes", place.place),
            place.paths if len(place.paths) < MOST else [],
            {"dtypes": dtypes, "steps": place.looked, "moved": 0},
            "keep the parameters in float32 and convert them in the loss, or raise the learning rate",
        )


def _play(names: Sequence[str]) -> str:
    return "plays" if len(names) == 1 else "play"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _sites(role: str, text: str, place: RawLocation | None) -> list[Site]:
    location: Location | None = None if place is None else decode(place).own
    return [] if location is None else [Site(role, text, location)]
