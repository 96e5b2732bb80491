"""``explain`` on random graphs: against the generator, walked paths, rebuilt graphs and numbers.

The programs are made, and walked, by :mod:`flow_graphs`. A failure shows the program and the question; the
nightly form counts seeds, and shows the seed as the test's parameter.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stopgrad as sg

sys.path.insert(0, str(Path(__file__).parent))
import flow_graphs
from flow_graphs import BLIND, GATES, OPEN, STATUSES, STOPPED, UNDEFINED, Case, End, Walk, make_case

LIMIT = 20_000
"""Paths are walked one by one where there are no more than so many steps."""

ARRIVES = ("flows", "partly stopped")


def explained(case: Case) -> sg.flow.Flow:
    return sg.explain(case.ys, case.xs, stop_gradients=case.stops)


def name_of(x: sg.Output) -> str:
    return x.name


# --------------------------------------------------------------------------------- what must be true


def check_statuses(case: Case, flow: Any, walk: Walk) -> None:
    """The status is that of the best path; "partly", where others are cut."""
    for x in case.xs:
        arrivals = walk.arrivals(x)
        worst = min([a.worst for a in arrivals], default=None)
        if worst is None:
            expected = "disconnected"
        elif worst == OPEN and any(a.first for a in arrivals):
            expected = "partly stopped"
        else:
            expected = STATUSES[worst]
        assert flow[x].status == expected, (x.name, flow[x].status, expected)


def check_generator(case: Case, flow: Any) -> None:
    """A gradient is generated where the status says so; an error is raised where an undefined one would be."""
    for x in case.xs:
        undefined = any(c.status == "undefined" and x.name in c.opens for c in flow[x].cuts)
        if undefined:
            with pytest.raises(sg.GradientError, match="undefined"):
                sg.gradients(case.ys, [x], stop_gradients=case.stops)
        else:
            (g,) = sg.gradients(case.ys, [x], stop_gradients=case.stops)
            assert (g is not None) == (flow[x].status in ARRIVES), (x.name, flow[x].status, g)


def check_paths(case: Case, flow: Any, walk: Walk) -> None:
    for x in case.xs:
        counted = walk.paths(x, LIMIT)
        if counted is not None:
            assert (flow[x].paths, flow[x].cut_paths) == counted, x.name


def line_of(op: sg.Operation) -> int:
    return op.location.line


def check_cuts(case: Case, flow: Any, walk: Walk) -> None:
    """The cuts are the first ends of walked paths: all of them, none else, each with what lies behind it."""
    behind: dict[tuple[Any, ...], set[str]] = {}
    for x in case.xs:
        firsts = {a.first for a in walk.arrivals(x)} - {None}
        if not x.dtype.is_differentiable:
            for end in firsts:
                behind.setdefault(end, set()).add(x.name)
            assert [c.status for c in flow[x].cuts] == ["not differentiable"] * (flow[x].status != "disconnected")
            assert all(c.operations == (x.op,) for c in flow[x].cuts)
            continue
        listed = [(op, c.status, c.switched) for c in flow[x].cuts for op in c.operations]
        expected = {(end.operation, STATUSES[end.level], end.switched) for end in firsts}
        assert len(listed) == len(set(listed)), x.name
        assert set(listed) == expected, (x.name, listed, expected)
        for end in firsts:
            behind.setdefault(end, set()).add(x.name)
    for x in case.xs:
        if x.dtype.is_differentiable:
            for cut in flow[x].cuts:
                ends = [
                    names
                    for end, names in behind.items()
                    if (line_of(end.operation), STATUSES[end.level], end.switched)
                    == (cut.location.line, cut.status, cut.switched)
                ]
                assert set(cut.behind) >= {x.name}
                assert set(cut.behind) <= set().union(*ends), (cut, cut.behind, ends)


def check_opens(case: Case, flow: Any) -> None:
    """What a gradient would reach without a cut: paths that end nowhere else."""
    cuts = {id(cut): cut for x in case.xs if x.dtype.is_differentiable for cut in flow[x].cuts}
    for cut in cuts.values():
        level = STATUSES.index(cut.status)
        operations = alike(case, cut)
        walk = Walk(
            case,
            lambda e: (
                e.operation in operations
                and (e.level, e.switched, e.named) == (level, cut.switched, "named in" in cut.reason)
            ),
        )
        expected = set()
        for x in case.xs:
            for a in walk.arrivals(x):
                if a.first is not None and walk.removed(a.first) and a.rest == OPEN:
                    expected.add(x.name)
        assert set(cut.opens) == expected, (str(cut), cut.opens, expected)


def alike(case: Case, cut: Any) -> set[sg.Operation]:
    """All operations at a cut's line that do what it does."""
    where = cut.location.file, cut.location.line
    return {
        op
        for op in sg.body.walk(case.graph.operations)
        if op.location
        and (op.location.file, op.location.line) == where and (op.origin is None) == (cut.operation.origin is None)
    }


def check_gates(case: Case, flow: Any, walk: Walk) -> None:
    """Which gates cut what; idle are those on whose first place no open path would begin without gates."""
    gates = [gate.operation for gate in flow.gates]
    assert len(gates) == len(set(gates))
    cuts: dict[sg.Operation, set[str]] = {}
    works = set()
    for x in case.xs:
        for a in walk.arrivals(x):
            if a.first is not None and not a.first.named and a.first.operation.type in GATES:
                cuts.setdefault(a.first.operation, set()).add(x.name)
                if a.rest != BLIND:
                    works.add(a.first.operation)
    for gate in flow.gates:
        op = gate.operation
        assert set(gate.cuts) == cuts.get(op, set()), op
        for names, arrives in ((gate.fully, False), (gate.partly, True)):
            assert all((flow[n].status in ARRIVES) == arrives for n in names)
        if op.type != "PreventGradient":
            assert gate.idle == (op not in works), (op, gate)
    assert set(cuts) <= set(gates)


def check_marks(case: Case, flow: Any) -> None:
    """Live are the operations on the generator's path, and those that make an x."""
    from stopgrad.autodiff.reach import between
    from stopgrad.build import visible
    from stopgrad.selective import by_gates, selective_gates

    ys = list(flow.ys)
    above = case.graph.subgraph_to(ys)
    path = set()
    for acting, xs in by_gates(list(selective_gates(above)), case.xs).items():
        path |= {op for op, _ in between(ys, set(xs), set(case.stops), acting)}
    arrived = {x.op for x in case.xs if flow[x].status in ARRIVES}
    undefined = any(cut.status == "undefined" for x in case.xs for cut in flow[x].cuts)
    marks = flow.marks()
    assert set(marks) == set(above)
    for op, mark in marks.items():
        if op in path and not undefined:  # The generator finds out that it is undefined when it is there.
            assert mark in ("live", "cut"), (op, mark)
        if mark == "live":
            assert op in path or op in arrived, op


CHECKS = {
    "statuses": check_statuses, "generator": lambda c, f, w: check_generator(c, f), "paths": check_paths, "cuts": check_cuts,
    "opens": lambda c, f, w: check_opens(c, f), "gates": check_gates, "marks": lambda c, f, w: check_marks(c, f),
}
