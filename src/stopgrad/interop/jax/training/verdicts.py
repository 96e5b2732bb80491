"""Findings about a training in JAX: each states what was compared, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stopgrad.base.source import Location, RawLocation, decode
from stopgrad.flow.flow import Flow
from stopgrad.flow.parts import ARRIVES
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Status
from stopgrad.interop.jax.training.calls import Leaf, Point
from stopgrad.interop.jax.training.optimizing import Applied
from stopgrad.ops.gates.stopping import StopGradient

MOST = 4
"""The most cutting lines that are named."""
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
    found = []
    for leaf in point.leaves:
        path = _path_in(flow, leaf)
        if leaf.is_zero and path:
            reach = flow[path]
            if reach.status not in ARRIVES:
                found.append(Silent(point, leaf, reach.status, _cutting(flow, path), _is_meant(flow, path)))
    return found


def _path_in(flow: Flow, leaf: Leaf) -> str:
    if leaf.path in flow.xs:
        return leaf.path
    found = [path for path in flow.xs if path.partition(".")[2] == leaf.tail]
    return found[0] if len(found) == 1 else ""


def _cutting(flow: Flow, path: str) -> tuple[Site, ...]:
    found: dict[tuple[str, int], Site] = {}
    operations = [(cut.operation, f"cut here: {cut.reason}") for cut in flow[path].cuts]
    operations += [(op, one.message) for one in flow.noted if path in one.keys for op in one.operations]
    for op, told in operations:
        at = flow.location(op)
        if at is not None:
            found.setdefault((at.own.file, at.own.line), Site("cut", told, at.own))
    return tuple(list(found.values())[:MOST])


def _is_meant(flow: Flow, path: str) -> bool:
    """Whether all that cuts is a stop of the parameter itself, as one writes to freeze it."""
    cuts = flow[path].cuts
    return bool(cuts) and all(
        isinstance(op.definition, StopGradient) and _is_of(op, flow) for cut in cuts for op in cut.operations
    )


def _is_of(op: Operation, flow: Flow) -> bool:
    """Whether an operation's operand is an argument, as it is given or in another shape or dtype."""
    given = set(flow.xs.values())
    for _ in range(DEEPEST):
        if len(op.inputs) != 1:
            return False
        if op.inputs[0] in given:
            return True
        op = op.inputs[0].op
    return False


# ------------------------------------------------------------------------------------------- findings


def problems_of(
    points: Sequence[Point], silent: Sequence[Silent], applied: Sequence[Applied]
) -> Iterator[Problem]:
    """All findings of a training."""
    arriving = {
        (leaf.tail, leaf.shape)
        for point in points
        for leaf in point.leaves
        if not leaf.is_zero
    }
    known = [one for one in silent if one.key not in arriving]
    moved: set[Key] = set()
    for place in applied:
        for problem, keys in _moved(place, known):
            moved |= keys
            yield problem
    left = [one for one in known if not (one.is_meant or one.key in moved)]
    yield from _no_gradient([one for one in left if one.status is not Status.DISCONNECTED])
    yield from _unused([one for one in left if one.status is Status.DISCONNECTED])
    for place in applied:
        yield from _raw(place)
        yield from _stays(place, points)


def _no_gradient(silent: Sequence[Silent]) -> Iterator[Problem]:
    groups: dict[tuple[object, ...], list[Silent]] = {}
    for one in silent:
        groups.setdefault((one.point.place, one.cuts), []).append(one)
    for held in groups.values():
        names = [one.leaf.path for one in held]
        receive = "receives" if len(names) == 1 else "receive"
        yield Problem(
            "no-gradient",
            f"{some(names, 3)} {receive} no gradient: the loss depends on {_it(names)} only through what is cut",
            [*held[0].cuts, *_sites("called", "differentiated here", held[0].point.place)],
            names,
            {"gradient": 0.0, "status": str(held[0].status.value)},
            "take the cut out, or, if it is meant, freeze the parameters themselves: stop_gradient(params[...]), "
            "or optax.multi_transform with set_to_zero",
        )


def _unused(silent: Sequence[Silent]) -> Iterator[Problem]:
    groups: dict[object, list[Silent]] = {}
    for one in silent:
        groups.setdefault(one.point.place, []).append(one)
    for held in groups.values():
        names = [one.leaf.path for one in held]
        point = held[0].point
        whole = len(held) == len(point.leaves)
        what = f"{point.name or 'the function'} that is differentiated"
        yield Problem(
            "held-unused",
            f"{some(names, 3)} {'plays' if len(names) == 1 else 'play'} no part in the result of {what}"
            + (": all its gradients are zero" if whole else ""),
            [
                *list(dict.fromkeys(site for one in held for site in one.cuts))[:MOST],
                *_sites("called", "differentiated here", point.place),
            ],
            names,
            {"gradient": 0.0},
            "use the argument in the loss, not a value of the same name from outside of it"
            if whole
            else "use it in the loss, or leave it out of what is differentiated",
        )


def _moved(place: Applied, silent: Sequence[Silent]) -> Iterator[tuple[Problem, set[Key]]]:
    """Parameters without gradient that updates change all the same."""
    by_key = {one.key: one for one in silent}
    indices = [
        i
        for i, key in enumerate(zip(place.tails, place.shapes, strict=True))
        if key in by_key and place.moved.get(i) and by_key[key].point.leaves
    ]
    same = [one for one in silent if len(one.point.leaves) <= len(place.paths)]
    if not indices or not same:
        return
    held = [by_key[place.tails[i], place.shapes[i]] for i in indices]
    names = [one.leaf.path for one in held]
    cuts = list(dict.fromkeys(site for one in held for site in one.cuts))[:MOST]
    yield (
        Problem(
            "moves-frozen",
            f"no gradient arrives at {some(names, 3)}, and each step moves {_it(names)} all the same, as weight "
            "decay does",
            [*cuts, *_sites("step", f"moved here, by optax: {_it(names)}", place.place)],
            names,
            {"steps": place.looked, "moved": place.moved[indices[0]]},
            "leave them out: optax.adamw(..., mask=...), or optax.multi_transform with set_to_zero for them",
        ),
        {one.key for one in held},
    )


def _raw(place: Applied) -> Iterator[Problem]:
    """Parameters to which their gradient itself is added, since optax.masked passes it on as it is."""
    raw = place.raw or set()
    if not raw or len(raw) == len(place.paths):
        return
    names = [place.paths[i] for i in sorted(raw)]
    is_one = len(names) == 1
    yield Problem(
        "moves-frozen",
        f"the update of {some(names, 3)} is {'its' if is_one else 'their'} gradient, unchanged: it is added, and "
        "moves them uphill" if not is_one else f"the update of {names[0]} is its gradient, unchanged: it is added, and moves it uphill",
        _sites("step", "added here", place.place),
        names,
        {"calls": place.calls},
        "optax.masked passes on what its mask leaves out: put optax.masked(optax.set_to_zero(), rest) behind it, "
        "or use optax.multi_transform with set_to_zero",
    )


def _stays(place: Applied, points: Sequence[Point]) -> Iterator[Problem]:
    """Parameters that never change, although gradients arrive."""
    arrives = any(not leaf.is_zero for point in points for leaf in point.leaves)
    if not arrives:
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
            f"updates are lost in rounding: added to {some(dtypes)} parameters they change no element, in each of "
            f"{place.looked} steps",
            _sites("step", "applied here, and no element changes", place.place),
            place.paths if len(place.paths) < MOST else [],
            {"dtypes": dtypes, "steps": place.looked, "moved": 0},
            "keep the parameters in float32 and convert them in the loss, or raise the learning rate",
        )


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _sites(role: str, told: str, place: RawLocation | None) -> list[Site]:
    at: Location | None = None if place is None else decode(place).own
    return [] if at is None else [Site(role, told, at)]
