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
from hypothesis import given, note, settings, strategies as st

import stopgrad as sg
from stopgrad.graph.body import walk as operations_in
from stopgrad.graph.interpreter import interpret
from stopgrad.graph.op import REGISTRY, NoGradient
from stopgrad.graph.selective import by_gates, selective_gates
from stopgrad.rewrite import rewrite
from stopgrad.transforms.gradients.reach import between

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))  # As a program, too.
from flow_frozen import Frozen
from flow_graphs import BLIND, GATES, OPEN, STATUSES, UNDEFINED, Case, Walk, make_case

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


def check_generator(case: Case, flow: Any, walk: Walk) -> None:
    """A gradient is generated where the status says so; an error raised where it would be undefined."""
    for x in case.xs:
        if any(a.worst == UNDEFINED for a in walk.arrivals(x)):
            assert flow[x].status in ("undefined", "partly stopped")
            with pytest.raises(sg.GradientError, match=r"undefined|needs to know"):
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
            assert [c.status for c in flow[x].cuts] == ["not differentiable"] * (
                flow[x].status != "disconnected"
            )
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
        for op in operations_in(case.graph.operations)
        if op.location
        and (op.type != "CustomGradient" or CUSTOM not in cut.reason or cut.reason in reasons(op))
        and (op.location.file, op.location.line) == where
        and (op.origin is None) == (cut.operation.origin is None)
    }


def reasons(op: sg.Operation) -> set[str]:
    """Why gradients do not pass to inputs of an operation; a custom gradient names what it closes over."""
    rules = [op.definition.rule(op, i) for i in range(len(op.inputs))]
    walls = [rule for rule in rules if isinstance(rule, NoGradient)]
    return {rule.reason if rule.about is None else rule.about(op) for rule in walls}


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
    works |= keeping_off_errors(case)
    for gate in flow.gates:
        op = gate.operation
        assert set(gate.cuts) == cuts.get(op, set()), op
        for names, arrives in ((gate.fully, False), (gate.partly, True)):
            assert all((flow[n].status in ARRIVES) == arrives for n in names)
        if op.type not in ("PreventGradient", "StraightThrough"):  # These are there for something else.
            careful = op.graph is not case.graph and may_refuse(case)
            assert gate.idle == (op not in works) or (careful and not gate.idle), (op, gate)
    assert set(cuts) <= set(gates)


def may_refuse(case: Case) -> bool:
    return "prevent_gradient" in case.text or "iterations=None" in case.text


def keeping_off_errors(case: Case) -> set[sg.Operation]:
    """The gates before which paths pass nothing but what is undefined."""
    if not may_refuse(case):
        return set()
    refusing = {op for op in operations_in(case.graph.operations) if op.type in ("PreventGradient", "While")}
    walk = Walk(case, lambda end: end.operation in refusing and end.level == UNDEFINED, unseen=True)
    ends = {
        a.first.operation
        for x in case.xs
        for a in walk.arrivals(x)
        if a.first is not None and a.rest != BLIND and not a.first.named
    }
    return ends - refusing


def check_marks(case: Case, flow: Any) -> None:
    """Live are the operations on the generator's path, and those that make an x."""
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


def feeds_of(case: Case, seed: int = 0) -> dict[sg.Output, Any]:
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {f"x{k}": rng.normal(size=4) for k in range(3)}
    made |= {
        "n0": np.array([0, 3, 1, 2], np.int32),
        "b0": np.array([True, False, True, True]),
        "q0": np.array(seed % 2 == 0),
    }
    return {case.named[name]: value for name, value in made.items()}


def check_numbers(case: Case, flow: Any, seed: int = 0) -> None:
    """Gradients are the derivatives of the frozen function; it does not change where nothing arrives."""
    if "sg.float32" in case.text or "iterations=None" in case.text:  # Rounded; or it may run for ever.
        return
    feeds = feeds_of(case, seed)
    rng = np.random.default_rng(seed + 1)
    for x in case.xs:
        if (
            not x.dtype.is_differentiable
            or flow[x].status == "undefined"
            or any(c.status == "undefined" for c in flow[x].cuts)
        ):
            continue
        frozen = Frozen(case, x, feeds)
        way = rng.normal(size=x.shape)
        if not np.isfinite(frozen.base) or abs(frozen.base) > 1e4:
            continue
        if flow[x].status in ARRIVES:
            (g,) = sg.gradients(case.ys, [x], stop_gradients=case.stops)
            expected = float(np.sum(interpret([g], feeds)[0] * way))
            if abs(expected) > 1e5:
                continue
            ahead, behind = ((frozen.at(h * way) - frozen.base) / h for h in (1e-6, -1e-6))
            if abs(ahead - behind) > 1e-3 * (1 + abs(expected)):
                continue  # At a tie there is no derivative.
            found = [(frozen.at(h * way) - frozen.at(-h * way)) / (2 * h) for h in (1e-4, 1e-6)]
            assert any(abs(d - expected) <= 1e-4 * (1 + abs(expected)) for d in found), (
                x.name,
                expected,
                found,
            )
        else:
            assert frozen.at(way) == frozen.base, (x.name, flow[x].status)


def outcome(case: Case) -> list[Any]:
    """For each x whether a gradient is generated; "undefined" where that is an error."""
    found: list[Any] = []
    for x in case.xs:
        try:
            found.append(sg.gradients(case.ys, [x], stop_gradients=case.stops)[0] is not None)
        except sg.GradientError:
            found.append("undefined")
    return found


def without(case: Case, gates: set[sg.Operation]) -> Case:
    """The question, asked of a copy in which some gates are open."""

    def opened(copying: Any, op: sg.Operation, inputs: Any, values: Any) -> Any:
        return copying.add(REGISTRY["Named"], inputs[:1], (), op) if op in gates else None

    asked = [*case.ys, *case.xs, *case.stops]
    made = rewrite(asked, rules=[opened])
    new = iter(made.outputs)
    ys, xs, stops = ([next(new) for _ in group] for group in (case.ys, case.xs, case.stops))
    return Case(case.text, made.graph, {}, ys, xs, stops)


def check_removals(case: Case, flow: Any) -> None:
    """In copies without an idle gate nothing changes, and without a line its tensors open."""
    statuses = [flow[x].status for x in case.xs]
    arrive = outcome(case)
    idle = [g.operation for g in flow.gates if g.idle and g.operation.type != "StraightThrough"]
    for gates in ([], *[[op] for op in idle], idle):
        copied = without(case, set(gates))
        again = explained(copied)
        assert [again[x].status for x in copied.xs] == statuses, gates
        assert outcome(copied) == arrive, gates
    for cut in {id(c): c for x in case.xs if x.dtype.is_differentiable for c in flow[x].cuts}.values():
        line = alike(case, cut)
        if cut.status == "stopped" and "stop_gradients" not in cut.reason and CUSTOM not in cut.reason:
            if any(op.type == "StraightThrough" for op in line):
                continue
            copied = without(case, {op for op in line if op.type in STOPS})
            for x, was, now in zip(case.xs, statuses, outcome(copied), strict=True):
                if was == "stopped":
                    opens = x.name in cut.opens
                    assert opens == (now is True) or now == "undefined", (str(cut), x.name, was, now)


CUSTOM = "custom_gradient"
STOPS = ("StopGradient", "StopGradientTowards", "StopGradientWhen")


def shown(flow: Any, names: Any = str) -> list[Any]:
    """What a report says, without the operations themselves."""
    return [
        (
            x.name,
            str(reach.status),
            reach.paths,
            reach.cut_paths,
            [(str(c.status), c.reason, c.uses, c.behind, c.opens, c.switched) for c in reach.cuts],
        )
        for x, reach in flow.items()
    ]


def check_copies(case: Case, flow: Any) -> None:
    """The report on a copy, and on what is read from the text of the graph, is the same."""
    copied = without(case, set())
    again = explained(copied)
    assert [again[x].status for x in copied.xs] == [flow[x].status for x in case.xs]
    assert [(again[x].paths, again[x].cut_paths) for x in copied.xs] == [
        (flow[x].paths, flow[x].cut_paths) for x in case.xs
    ]
    assert [len(again[x].cuts) for x in copied.xs] == [len(flow[x].cuts) for x in case.xs]
    read = sg.Graph.from_text(case.graph.to_text())
    groups = [[read.output(t.name) for t in group] for group in (case.ys, case.xs, case.stops)]
    text = explained(Case(case.text, read, {}, *groups))
    for x, y in zip(case.xs, groups[1], strict=True):
        assert text[y].status == flow[x].status
        assert (text[y].paths, text[y].cut_paths) == (flow[x].paths, flow[x].cut_paths)
        assert sum(c.uses for c in text[y].cuts) == sum(c.uses for c in flow[x].cuts)


# ------------------------------------------------------------------------------------------- the runs


def check(case: Case, numbers: bool = False) -> None:
    """All that must be true of one question."""
    flow, walk = explained(case), Walk(case)
    check_statuses(case, flow, walk)
    check_paths(case, flow, walk)
    check_cuts(case, flow, walk)
    check_opens(case, flow)
    check_gates(case, flow, walk)
    check_marks(case, flow)
    check_generator(case, flow, walk)
    if numbers:
        check_numbers(case, flow)
        check_removals(case, flow)
        check_copies(case, flow)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.randoms(use_true_random=False), st.integers(1, 14))
def test_graphs(r: random.Random, size: int) -> None:
    case = make_case(r, size)
    note(str(case))
    check(case)


@settings(max_examples=100, deadline=None, print_blob=True)
@given(st.randoms(use_true_random=False), st.integers(1, 7))
def test_graphs_with_loops_and_branches(r: random.Random, size: int) -> None:
    case = make_case(r, size, bodies=2)
    note(str(case))
    check(case)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(st.randoms(use_true_random=False), st.integers(1, 10), st.integers(0, 2))
def test_numbers_copies_and_graphs_without_a_gate(r: random.Random, size: int, bodies: int) -> None:
    case = make_case(r, size, bodies)
    note(str(case))
    check(case, numbers=True)


@pytest.mark.nightly
@pytest.mark.parametrize("bodies", range(4))
@pytest.mark.parametrize("block", range(20))
def test_many(block: int, bodies: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        r = random.Random(seed)
        case = make_case(r, r.randrange(1, 24 if bodies == 0 else 14), bodies)
        try:
            check(case, numbers=True)
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{case}") from error
