"""What does each stop change and save, and where would another one save work and change nothing?"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError, GradientError, StopgradError
from stopgrad.base.progress import Progress
from stopgrad.flow.ablation.ablation import (
    CHANGES,
    ERROR,
    IDLE,
    NOTHING,
    SAVES,
    Ablation,
    Change,
    Stop,
    Suggestion,
    zero_at,
)
from stopgrad.flow.ablation.distances import ROUNDINGS, compared, infinite, largest, near, nearness
from stopgrad.flow.ablation.variants import (
    Arrays,
    Gradients,
    Problem,
    Stopwatch,
    Variant,
    finite,
    jittered,
    problem,
)
from stopgrad.flow.ablation.without import opening, stopping
from stopgrad.flow.ablation.zero_arrivals import Arrivals, arrivals, sizes, tolerance
from stopgrad.flow.asked import Asked, asked, label
from stopgrad.flow.explain import flow_of
from stopgrad.flow.survey import with_bodies
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.public import guarded
from stopgrad.ops.gates.stopping import StopGradient, StopGradientTowards, StopGradientWhen, StraightThrough
from stopgrad.rewrite import Rule
from stopgrad.transforms.gradients.reverse import gradients

MOST = 32
"""The most places at which a stop is tried out."""


@guarded("ablate")
def ablate(
    ys: object,
    *args: object,
    argnums: int | Sequence[int] | None = None,
    feed_dict: Mapping[Any, Any] | None = None,
    engine: str | None = None,
    repeats: int = 5,
    seed: int = 0,
    **kwargs: object,
) -> Ablation:
    """What each stop does to a gradient on real data, and where a stop would only save work.

    For each line with stops, the program is copied without the stops of that line, and differentiated again.
    Gradients that are part of the program stay as they are.

    Args:
        ys: an output or nested structure of outputs, whose sum is differentiated; or a function.
        args: the xs, as for :func:`gradients`; or the function's arguments.
        argnums: which of the function's arguments are asked about; all unless given.
        feed_dict: for a graph, a dict from outputs, operations or names to values, as for
            :meth:`Session.run`. Parameters that are not fed have their stored values.
        engine: the engine on which times are measured; None for the best that is installed.
        repeats: the number of measurements of which each time is the median; 0 to measure none.
        seed: the seed of the noise. Besides the given data, copies with noise on all floating-point numbers
            are examined, so that an accidental zero is not taken for a rule. That is evidence and no proof;
            integers, booleans and constants of the graph stay as they are.
        kwargs: the function's keyword arguments, which are not asked about.

    Returns:
        An :class:`Ablation`. Its ``stops`` have verdicts: ``"changes the gradient"``; ``"changes nothing, and
        saves N operations"``, as the stopped maximum of a softmax does; ``"changes nothing and saves
        nothing"``; ``"idle"`` (nothing behind it leads to an input that was asked about, or all paths to it
        are cut before); ``"without it, the gradient is an error"``. Its ``suggestions`` are tensors at
        which the arriving gradient is zero up to rounding, the first ones as seen from ys, where a stop was
        tried out. Loops with a known number of steps are unrolled to look into them; other loops, and
        branches, are not looked into.

    Raises:
        FeedError, GraphError, GradientError: something is not fed, ys and xs are not of one graph, or the
            program's own gradient is an error.

    References:
        Meyes et al. 2019, "Ablation studies in artificial neural networks", arXiv:1901.08644, for the word.

    Examples:
        >>> def softmax(x):
        ...     z = sg.exp(x - sg.stop_gradient(sg.reduce_max(x)))
        ...     return (z / sg.reduce_sum(z))[0]
        >>> sg.ablate(softmax, np.array([1.0, 3.0, 2.0]), repeats=0).stops[0].verdict
        'changes nothing, and saves 9 operations'
    """
    if engine is not None and not isinstance(engine, str):
        raise ArgumentError(f"ablate: engine is a name, such as 'numpy', or None, not {engine!r:.60}")
    for name, value in (("repeats", repeats), ("seed", seed)):
        if not is_whole(value) or value < 0:
            raise ArgumentError(f"ablate: {name} is a whole number, 0 or more, not {value!r:.60}")
    question = asked("ablate", ys, args, kwargs, argnums)
    data = problem("ablate", question, feed_dict)
    watch = Stopwatch(engine or "auto", whole(repeats), data.values)
    return _ablated(data, watch, whole(seed))


def _ablated(data: Problem, watch: Stopwatch, seed: int) -> Ablation:
    labels = tuple(map(label, data.question.xs))
    plain = Variant(data)
    baseline = _baseline_of(data, plain, seed)
    report = _Reporting(data, plain, plain.run(data.values), baseline, watch, labels)
    lines = _lines(data.question)
    stops: list[Stop] = []
    with Progress("running without each stop", total=len(lines)) as progress:
        for line in lines:
            stops.append(report.stop(line))
            progress.step()
    suggested = [
        suggestion for group in _places(baseline) if (suggestion := report.suggestion(group)) is not None
    ]
    return Ablation(
        tuple(stops),
        tuple([suggestion for suggestion in suggested if not suggestion.disconnects]),
        tuple([suggestion for suggestion in suggested if suggestion.disconnects]),
        labels,
        len(baseline.points),
        watch.engine,
    )


@dataclass(frozen=True)
class _Line:
    """The stops of one line, and why they do nothing, if they do nothing."""

    gates: tuple[Operation, ...]
    why_idle: str


class _Baseline:
    """The unchanged program in double precision at the data points; and where the arriving gradient is zero.

    Attributes:
        data, base: the program.
        points: the given data, and copies with noise whose gradient is finite.
        gradients: the gradients at each point.
        arrivals: the gradients that arrive between ys and the inputs, and at stops.
        zeros: the tensors of the copy at which these are zero at every point.
        reached: the tensors at which something arrives that does not come from a zero.
    """

    def __init__(self, data: Problem, base: Variant, seed: int) -> None:
        self.data, self.base = data, base
        self.points: list[Arrays] = [data.values]
        self.gradients = [base.run(data.values)]
        for values in jittered(data.values, seed):
            gradients = base.run(values)
            if finite(gradients):
                self.points.append(values)
                self.gradients.append(gradients)
        within = list(with_bodies(data.question.graph.subgraph_to(data.question.ys)))
        stops = [op.outputs[0] for op in within if op.definition is StopGradient]
        stopped = [x for stop in stops for x in base.copies.get(stop, ())]
        self.selective = any(op.definition.selective for op in within)
        self.arrivals = arrivals(base.ys, base.xs, [x for x in stopped if x.type.differentiable])
        self.zeros = zeros_at(base, self.arrivals, self.points)
        self.reached = self.arrivals.reached(self.zeros)


def _baseline_of(data: Problem, plain: Variant, seed: int) -> _Baseline:
    """Analyse the program in double precision with its loops unrolled; or, if that fails, as it is."""
    clear = data.to_judge()
    if clear is not data:
        with contextlib.suppress(StopgradError):
            return _Baseline(clear, Variant(clear), seed)
    return _Baseline(data, plain, seed)


def zeros_at(variant: Variant, arriving: Arrivals, points: Sequence[Arrays]) -> set[Output]:
    """The tensors at which the arriving gradient is zero, up to rounding, at every point."""
    cotangents = {x: some for x, some in arriving.cotangents.items() if x.type.size != 0}
    ratios = sizes(cotangents)
    outputs = [ratio for some in ratios.values() for ratio in some]
    compute = variant.compute(outputs)
    owners = [x for x, some in ratios.items() for _ in some]
    zeros = set(owners)
    for values in points if owners else ():
        for x, ratio in zip(owners, compute(values), strict=True):
            if not ratio <= tolerance(x.dtype):  # NaN does not count as zero.
                zeros.discard(x)
    return zeros


# ------------------------------------------------------------------------------------------- entries


@dataclass(frozen=True)
class _Reporting:
    """What is needed to make entries of the report.

    Attributes:
        data, plain, gradients: the program as the user has it, and its gradients on the given data.
        baseline: the analysis of the program.
        watch: measures times.
        labels: the labels of the inputs.
    """

    data: Problem
    plain: Variant
    gradients: Gradients
    baseline: _Baseline
    watch: Stopwatch
    labels: tuple[str, ...]

    def judged(self, rule: Rule, plain: Variant) -> Variant:
        """A variant of the program for verdicts: in double precision, if possible."""
        return plain if self.baseline.data is self.data else Variant(self.baseline.data, [rule])

    def stop(self, line: _Line) -> Stop:
        """The entry for a line with stops."""
        plain, gates = self.plain, line.gates
        kind, location, rule = _kind(gates[0]), gates[0].location, opening(gates)
        try:
            without = Variant(self.data, [rule])
        except GradientError as error:
            failure = (ERROR, "", error.message)
            return Stop(gates, kind, location, None, None, {}, plain.operations, None, None, None, *failure)
        open = without.run(self.data.values)
        rows = zip(self.labels, self.gradients, open, strict=True)
        changes = {name: Change(*compared([g], [h]), g is not None, h is not None) for name, g, h in rows}
        saved = without.operations - plain.operations
        verdict = SAVES.format(saved, "" if saved == 1 else "s") if saved > 0 else NOTHING
        changed, evidence = False, line.why_idle
        if line.why_idle:
            verdict = IDLE
        else:
            changed, evidence = _judged(self.baseline, line, self.judged(rule, without))
        if changed:
            verdict, evidence = CHANGES, infinite(self.gradients, open)
        times = self.watch.seconds(plain, without)
        return Stop(
            gates,
            kind,
            location,
            *compared(self.gradients, open),
            changes,
            plain.operations,
            without.operations,
            times[0],
            times[1],
            verdict,
            evidence,
        )

    def suggestion(self, tensors: Sequence[Output]) -> Suggestion | None:
        """The entry for a stop behind tensors; None if it saves nothing or changes a gradient."""
        rule = stopping(tensors)
        stopped = Variant(self.data, [rule])
        if stopped.operations >= self.plain.operations or not _alike(
            self.baseline, self.judged(rule, stopped)
        ):
            return None
        arrive = zip(self.labels, self.plain.gradients, stopped.gradients, strict=True)
        operations = tuple(dict.fromkeys(x.op for x in tensors))
        with_stop, as_it_is = self.watch.seconds(stopped, self.plain)
        return Suggestion(
            operations,
            operations[0].location,
            stopped.operations,
            self.plain.operations,
            with_stop,
            as_it_is,
            tuple([name for name, g, h in arrive if g is not None and h is None]),
            _is_within(self.data.question, set(tensors)),
            len(self.baseline.points),
        )


# ---------------------------------------------------------------------------------------------- stops


def _lines(question: Asked) -> list[_Line]:
    """The stops through which ys are computed, by the lines of the user's source."""
    idle = {use.operation: use.why_idle for use in flow_of(question).gates}
    groups: dict[Any, list[Operation]] = {}
    for op in with_bodies(question.graph.subgraph_to(question.ys)):
        if op.definition.stops:
            location = op.location
            groups.setdefault((location.file, location.line) if location else op, []).append(op)
    return [_Line(tuple(gates), _why_idle(gates, idle)) for gates in groups.values()]


def _why_idle(gates: Sequence[Operation], idle: Mapping[Operation, str]) -> str:
    """Why none of the gates does anything; empty if one may.

    A straight-through estimator is more than a stop of its hard operand: it has a soft one.
    """
    reasons = ["" if op.definition is StraightThrough else idle.get(op, "") for op in gates]
    return reasons[0] if all(reasons) else ""


def _kind(gate: Operation) -> str:
    if gate.definition is StraightThrough:
        return "straight_through"
    if gate.definition is StopGradientWhen:
        return "stop_gradient(when=...)"
    if gate.definition is StopGradientTowards:
        return "stop_gradient(wrt=...)"
    exits = {x.op for x in gate.graph._exits.values()}
    return "no_gradient" if gate in exits else "stop_gradient"


def _judged(baseline: _Baseline, line: _Line, without: Variant) -> tuple[bool, str]:
    """Whether the stops change the gradient, and how that was found."""
    copies = [baseline.base.copies.get(op.outputs[0], []) for op in line.gates]
    all_copied = all(op.definition is StopGradient for op in line.gates) and all(copies)
    if all_copied and not any(_counts(x, baseline) for some in copies for x in some):
        return False, zero_at("what the stop keeps from passing", len(baseline.points))
    if _unswitched(baseline, line):
        return False, "its condition does not hold on this data"
    if _same(baseline.base, without):
        return (
            False,
            "without it the gradient is computed by the same operations: the paths end at other stops",
        )
    if all_copied and not baseline.selective:
        changes = _passes(baseline, line, without)
    else:
        changes = not _alike(baseline, without)
    if changes:
        return True, ""
    return False, zero_at("what comes through without the stop", len(baseline.points))


def _alike(baseline: _Baseline, other: Variant) -> bool:
    """Whether the gradients of another variant are the same up to rounding at every point.

    If a gradient is zero and consists of rounding errors, the other must be of about that size.
    """
    zeros = [not _counts(x, baseline) for x in baseline.base.xs]
    for values, expected in zip(baseline.points, baseline.gradients, strict=True):
        rows = zip(expected, other.run(values), baseline.base.xs, zeros, strict=True)
        if not all(
            largest(h) <= ROUNDINGS * largest(g) if zero else near(g, h, nearness(x.dtype))
            for g, h, x, zero in rows
        ):
            return False
    return True


def _counts(x: Output, baseline: _Baseline) -> bool:
    """Whether anything but zero arrives at a stop."""
    return x in baseline.reached and x not in baseline.zeros


def _unswitched(baseline: _Baseline, line: _Line) -> bool:
    """Whether all stops of a line are switched off, as far as that can be seen outside of bodies."""
    if not all(op.definition is StopGradientWhen for op in line.gates):
        return False
    conditions = [baseline.base.copied.mapping.get(op.when) for op in line.gates]
    copied = [x for x in conditions if x is not None]
    return len(copied) == len(conditions) and not any(
        map(np.any, baseline.base.compute(copied)(baseline.points[0]))
    )


def _same(a: Variant, b: Variant) -> bool:
    """Whether two variants consist of the same operations."""
    fingerprints = [fingerprint(variant.prepared.inputs, variant.prepared.outputs) for variant in (a, b)]
    return fingerprints[0] is not None and fingerprints[0] == fingerprints[1]


def _passes(baseline: _Baseline, line: _Line, without: Variant) -> bool:
    """Whether the gradient through the opened stops alone is more than rounding."""
    opened = [x for op in line.gates for x in without.copies[op.outputs[0]]]
    with without.copied.graph.as_default():
        seeds = gradients(without.ys, opened, stop_gradients=opened)
    pairs = [(y, g) for y, g in zip(opened, seeds, strict=True) if g is not None]
    through = arrivals([y for y, _ in pairs], without.xs, (), [g for _, g in pairs])

    def passes(points: Sequence[Arrays]) -> bool:
        zeros = zeros_at(without, through, points)
        reached = through.reached(zeros)
        return any(x in through.cotangents and x in reached and x not in zeros for x in without.xs)

    # More points mean fewer zeros: one at which it passes is enough.
    return passes(baseline.points[:1]) or passes(baseline.points)


# ---------------------------------------------------------------------------------------- suggestions


def _places(baseline: _Baseline) -> list[list[Output]]:
    """The places for stops: for each, the tensors that one expression built, the first ones from ys.

    Places behind other places are left out.
    """
    base, arriving = baseline.base, baseline.arrivals
    old = {new: x for x, some in base.copies.items() for new in some}
    built: dict[Any, list[Output]] = {}
    for x in arriving.live:
        built.setdefault(_built_by(x), []).append(x)
    asked_about = {*base.xs, *base.inputs}
    zeros = baseline.zeros & _zeros_if_unswitched(baseline) & old.keys()
    walls: set[Output] = set()
    reached = arriving.reached(walls)
    places: list[list[Output]] = []
    for x in sorted(zeros, key=lambda x: (x.op.id, x.index), reverse=True):
        if x not in arriving.live or x not in reached or x.op.origin is not None:
            continue
        alike = built[_built_by(x)]
        if asked_about.isdisjoint(alike) and not any(_counts(tensor, baseline) for tensor in alike):
            # If all gradients are zero, no place counts, even if what arrives there is not zero.
            here = [tensor for tensor in alike if tensor in baseline.zeros]
            places.append(list(dict.fromkeys(old[tensor] for tensor in here if tensor in reached)))
            walls.update(here)
            reached = arriving.reached(walls)
            if len(places) == MOST:
                break
    return places


def _zeros_if_unswitched(baseline: _Baseline) -> set[Output]:
    """The tensors at which only zero arrives, also if switched stops are off."""
    question = baseline.data.question
    within = with_bodies(question.graph.subgraph_to(question.ys))
    switched = [op for op in within if op.definition is StopGradientWhen]
    if not switched:
        return baseline.zeros
    off = Variant(baseline.data, [opening(switched)])
    zeros = zeros_at(off, arrivals(off.ys, off.xs, ()), baseline.points)
    return {
        here
        for x, some in baseline.base.copies.items()
        for here, there in zip(some, off.copies[x], strict=True)
        if there in zeros
    }


def _built_by(x: Output) -> tuple[int, int, Any, int] | Output:
    """The expression that built a tensor, and the position among its results."""
    op = x.op
    return (id(op._place), op._instruction, op.definition, x.index) if op._place is not None else x


def _is_within(question: Asked, tensors: set[Output]) -> bool:
    """Whether all users of the tensors were built by the same call as these."""
    users = [
        (op._place, op._instruction) == (x.op._place, x.op._instruction)
        for op in with_bodies(question.graph.subgraph_to(question.ys))
        for x in op.inputs
        if x in tensors
    ]
    return bool(users) and all(users)
