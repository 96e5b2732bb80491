"""Finds the operation that made the first NaN or infinity in a value or a gradient, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stopgrad.base.coercion import flag
from stopgrad.base.errors import ArgumentError
from stopgrad.flow.asked import Asked, asked, label, of_graph
from stopgrad.flow.fed import fed_to
from stopgrad.flow.nans.case import Case, forwards, neighbours, order_of
from stopgrad.flow.nans.cures import cure_of
from stopgrad.flow.nans.follower import Event, Follower, NumpyArray, number
from stopgrad.flow.nans.nan_trace import NanInput, NanNote, NanSite, NanTrace
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Graph, Operation, Output, needed
from stopgrad.graph.public import guarded
from stopgrad.ops.structural.sources import Const, Identity, Parameter, ones_like
from stopgrad.rewrite import check_sizes
from stopgrad.run.feeds import sizes_of
from stopgrad.run.session import Session
from stopgrad.transforms.control.loops import While
from stopgrad.transforms.control.scans import Scan
from stopgrad.transforms.gradients.reverse import gradients
from stopgrad.transforms.gradients.transform_arguments import Tracing

_FOLLOWED = 3
"""The most later operations, and the most others, that a report names."""


@guarded("trace_nan")
def trace_nan(
    ys: object,
    *args: object,
    argnums: int | Sequence[int] | None = None,
    feed_dict: Mapping[Any, Any] | None = None,
    gradient: bool = True,
    session: Session | None = None,
    **kwargs: object,
) -> NanTrace:
    """The operation that made the first NaN or infinity, forward or in the gradient; with data.

    Runs the computation and its gradient with NumPy, operation by operation, and follows every NaN and every
    infinity from the operation that makes it: element by element if the operation is elementwise, moves
    elements or reduces along axes, and else for whole tensors. Only those that arrive in a result (a value of
    ys, or a gradient) count: what ``where`` discards or ``exp(-inf)`` turns into 0 is harmless.

    The origin of a NaN or infinity: a NaN comes from NaNs among an operation's operands, if there are any;
    else from infinities, which the operation turns into a NaN; else the operation makes it. An infinity comes
    from infinities, if there are any. ``first`` is the earliest operation, in the order of execution, from
    which something arrives; ``then`` names where its infinity becomes a NaN. Arguments, fed values and
    parameters that hold some themselves come first, and are named as such. A constant's infinity, which is
    deliberate, comes last. If an operation turns it into a NaN, that operation is reported, with the constant
    as its ``cause``.

    For loops and branches, the operation in the body is named, with the step. The graph is left unchanged.

    Args:
        ys: an output or nested structure of outputs; or a function.
        args: the xs with respect to which the gradient is traced, or none for the values alone; or the
            function's arguments, nested structures of arrays and numbers.
        argnums: the function's arguments with respect to which the gradient is traced; all unless given.
        feed_dict: for a graph, a dict from placeholders (or any outputs, or names) to values.
        gradient: whether to trace also the gradient of the sum of all results that are not integers.
        session: for a graph, a session that holds the values of its parameters; else they have their first
            ones.
        kwargs: the function's keyword arguments.

    Returns:
        A :class:`NanTrace`, which is true if a NaN or infinity arrives in a result.

    Raises:
        GraphError, FeedError, ShapeError: what is asked or fed does not fit. Errors of the function, and of
            the generation of its gradient, are passed on.

    Examples:
        >>> trace = sg.trace_nan(lambda x: sg.where(x > 0.0, sg.sqrt(x), 0.0), np.array([0.0, 4.0]))
        >>> trace.first.where, trace.first.origin.type, trace.first.pattern
        ('gradient', 'Sqrt', 'branch not taken')
        >>> sg.trace_nan(lambda x: sg.log(x), np.array([1.0, 0.0])).first.index
        (1,)
    """
    flag(gradient, "trace_nan: gradient")
    if session is not None and not isinstance(session, Session):
        raise ArgumentError(f"trace_nan: session is a Session, not {session!r:.60}")
    is_function = callable(ys) and not isinstance(ys, (Output, Operation))
    graph = Tracing(args, kwargs).graph if is_function else _graph_of(ys)
    start = len(graph)
    try:
        if is_function or args or kwargs:
            question = asked("trace_nan", ys, args, kwargs, argnums)
        else:
            question = of_graph("trace_nan", ys, [])
        return _traced(question, feed_dict, gradient, session)
    finally:
        graph.truncate(start)


def _graph_of(ys: object) -> Graph:
    """The graph in which gradients of ys are generated."""
    return of_graph("trace_nan", ys, []).graph


@dataclass(frozen=True)
class _Results:
    """The results that are traced.

    Attributes:
        outputs: values, then gradients.
        names: their names.
        values: the number of values.
        labels: names of tensors: arguments have their paths.
    """

    outputs: list[Output]
    names: list[str]
    values: int
    labels: dict[Output, str]


def _traced(
    question: Asked, fed: Mapping[Any, Any] | None, gradient: bool, session: Session | None
) -> NanTrace:
    results = _results(question, gradient)
    feeds = fed_to("trace_nan", question, fed, results.outputs, session)
    binding = sizes_of(list(feeds), [array.shape for array in feeds.values()])
    operations = needed(results.outputs, set(feeds))
    check_sizes(operations, binding)
    follower = Follower(binding)
    computed = follower.run(results.outputs, feeds)
    marks = [
        [] if m is None else [number(mark) for mark in np.unique(m).tolist() if mark] for _, m in computed
    ]
    story = _Story(question, results, feeds, binding, operations, follower, marks)
    notes = [NanNote(op, message, index, op.location) for op, (message, index) in follower.unsound.items()]
    return replace(story.trace(), notes=tuple(notes), operations=sum(1 for _ in walk(operations)))


def _results(question: Asked, gradient: bool) -> _Results:
    ys, xs = list(question.ys), {key: x for key, x in question.xs.items() if x.type.differentiable}
    labels = {x: label(key) for key, x in question.xs.items()}
    for x in list(labels):
        if question.is_function and x.op.definition is Identity and x.op.inputs[0].op.definition is Const:
            labels[x.op.inputs[0]] = labels[x]
    if question.is_function:
        names = ["the result"] if len(ys) == 1 else [f"result {i}" for i in range(len(ys))]
    else:
        names = [y.name for y in ys]
    outputs = list(ys)
    roots = [y for y in ys if y.type.differentiable]
    if gradient and roots and xs:
        with question.graph.as_default():
            seeds = [ones_like(y) if y.dtype.is_complex else None for y in roots]
            derivatives = gradients(roots, list(xs.values()), seeds)
        for key, g in zip(xs, derivatives, strict=True):
            if g is not None:
                outputs.append(g)
                names.append(f"the gradient of {label(key)}")
    return _Results(outputs, names, len(ys), labels)


# ------------------------------------------------------------------------------------------- story


class _Story:
    """Makes the report of the events of a run.

    Args:
        question: the question.
        results: the results that are traced.
        feeds: the values.
        binding: the sizes.
        operations: all operations that ran, without those in bodies.
        follower: the one that ran them.
        marks: for each result, the numbers of the events from which something arrives.
    """

    def __init__(
        self,
        question: Asked,
        results: _Results,
        feeds: dict[Output, NumpyArray],
        binding: Mapping[str, int],
        operations: Sequence[Operation],
        follower: Follower,
        marks: Sequence[Sequence[int]],
    ) -> None:
        self._question, self._results, self._feeds, self._binding = question, results, feeds, binding
        self._operations, self._events, self._marks = operations, follower.events, marks
        self._beside = follower.beside
        self._in_values = self._above(marks[: results.values])
        self._arriving = self._above(marks)

    def trace(self) -> NanTrace:
        """The report."""
        harmful = {self._event(n).operation for n in self._involved()}
        harmless = len({event.operation for event in self._events} - harmful)
        if not self._arriving:
            return NanTrace(None, harmless=harmless)
        # Events are numbered in their order.
        begun = {self._root(n) for marks in self._marks for n in marks}
        roots = sorted(begun, key=lambda n: (self._is_deliberate(n), n))
        first = roots[0]
        then = [n for n in sorted(self._arriving) if n != first and first in self._line(n)]
        then = self._one_each(then, {self._event(first).operation})
        # Failures in the gradient of an operation that is reported already are left out.
        reported = {op for n in (first, *then) for op in self._forwards(n)}
        others = self._one_each([n for n in roots[1:] if reported.isdisjoint(self._forwards(n))], reported)
        sites = self._sites([first, *then], others)
        return NanTrace(
            sites[0],
            tuple(sites[1 : 1 + len(then)]),
            tuple(sites[1 + len(then) :]),
            tuple(name for name, marks in zip(self._results.names, self._marks, strict=True) if marks),
            harmless,
        )

    def _event(self, n: int) -> Event:
        return self._events[n - 1]

    def _forwards(self, n: int) -> Iterator[Operation]:
        return forwards(self._event(n).operation)

    def _line(self, n: int) -> list[int]:
        """An event, and those from which its infinity came."""
        events = [n]
        while parent := self._event(events[-1]).parent:
            events.append(parent)
        return events

    def _above(self, marks: Iterable[Sequence[int]]) -> set[int]:
        return {n for some in marks for mark in some for n in self._line(mark)}

    def _involved(self) -> set[int]:
        """All events of which something may have gone into what arrives."""
        involved, stack = set(self._arriving), list(self._arriving)
        visited: set[int] = set()
        while stack:
            for group in self._beside.get(stack.pop(), ()):
                if id(group) not in visited:  # Many events share one.
                    visited.add(id(group))
                    new = {n for other in group - involved for n in self._line(other)} - involved
                    involved |= new
                    stack += new
        return involved

    def _root(self, n: int) -> int:
        """The event where the line of an event begins; for a constant's infinity, the one that turned it."""
        line = self._line(n)
        return line[-2] if len(line) > 1 and self._is_deliberate(line[-1]) else line[-1]

    def _is_deliberate(self, n: int) -> bool:
        """Whether an event is a constant's infinity."""
        event = self._event(n)
        return event.operation.definition is Const and event.kind == "inf"

    def _one_each(self, events: Iterable[int], reported: set[Operation]) -> list[int]:
        """The first event of each operation that is not reported yet; not too many."""
        first: dict[Operation, int] = {}
        for n in events:
            op = self._event(n).operation
            if op not in reported:
                first.setdefault(op, n)
        return list(first.values())[:_FOLLOWED]

    # --------------------------------------------------------------------------------------- sites

    def _sites(self, with_cures: Sequence[int], others: Sequence[int]) -> list[NanSite]:
        users = self._users([self._event(n).operation for n in (*with_cures, *others)])
        wanted = {
            n: neighbours(self._event(n).operation, users) | {self._event(n).operation} for n in with_cures
        }
        wanted |= {n: frozenset([self._event(n).operation]) for n in others}
        # One run for all that are in the same step of the loops around them, or outside of loops.
        groups: dict[tuple[int, ...], list[int]] = {}
        for n in sorted(wanted, key=lambda n: -len(self._event(n).steps)):
            steps = self._event(n).steps
            key = next((longer for longer in groups if longer[: len(steps)] == steps), steps)
            groups.setdefault(key, []).append(n)
        seen = {}
        for steps, events in groups.items():
            watched = frozenset().union(*[wanted[n] for n in events])
            follower = Follower(self._binding, watched, steps)
            follower.run(self._upto(watched), self._feeds)
            seen.update(dict.fromkeys(events, follower.seen))
        return [self._site(n, seen[n], users, n in with_cures) for n in (*with_cures, *others)]

    def _upto(self, watched: Iterable[Operation]) -> list[Output]:
        """The results that must be computed again to watch some operations."""
        ran, graphs = set(self._operations), {op.graph for op in watched}
        again = [op for op in watched if op in ran]
        for op in self._operations:
            if op.definition.has_bodies and any(
                inner.graph in graphs for inner in walk([op]) if inner is not op
            ):
                again.append(op)
        return [y for op in dict.fromkeys(again) for y in op.outputs[:1]]

    def _users(self, operations: Iterable[Operation]) -> dict[Output, list[Operation]]:
        """The users of each tensor, in the graphs of these operations and their origins."""
        graphs = {step.graph: None for op in operations for step in forwards(op)}
        users: dict[Output, list[Operation]] = {}
        for graph in graphs:
            for op in self._operations if graph is self._question.graph else graph.operations:
                for x in dict.fromkeys(op.inputs):
                    users.setdefault(x, []).append(op)
        return users

    def _site(
        self,
        n: int,
        seen: Mapping[Operation, tuple[list[Any], list[Any]]],
        users: Mapping[Output, Sequence[Operation]],
        cures: bool,
    ) -> NanSite:
        event = self._event(n)
        op = event.operation
        base = list(forwards(op))[-1]
        source = self._source(op)
        cure = cure_of(Case(event, seen, users, n not in self._in_values)) if cures else None
        parent = event.parent
        cause = self._site(parent, seen, users, False) if parent and self._is_deliberate(parent) else None
        steps = event.steps
        inner = event.around[-1][1] if event.around else None
        return NanSite(
            operation=op,
            name=self._name(op.outputs[event.output]) if source else op.name,
            where="forward" if op.origin is None else "gradient",
            kind=event.kind,
            index=event.index,
            count=event.count,
            inputs=tuple(self._inputs(event, seen)),
            location=op.location,
            origin=None if base is op else base,
            origin_name=None if base is op else base.name,
            origin_location=None if base is op else base.location,
            order=order_of(op),
            iteration=inner if inner is not None else (steps[-1] if steps else None),
            around=event.around,
            source=source,
            cause=cause,
            pattern=cure[0] if cure else None,
            cure=cure[1] if cure else None,
        )

    def _source(self, op: Operation) -> str | None:
        """The kind of an operation whose value is not computed, or empty."""
        if (
            not op.inputs
            and op.outputs
            and op.outputs[0] in self._results.labels
            and self._question.is_function
        ):
            return "argument"
        if op.definition is Const:
            return "constant"
        if any(y in self._feeds for y in op.outputs):
            if op.definition is Parameter:
                return "parameter"
            return "argument" if self._question.is_function else "fed value"
        return None

    def _name(self, x: Output, around: Sequence[tuple[Operation, int | None]] = ()) -> str:
        """The name of a tensor; a parameter of a body has the name of the tensor outside."""
        part = ""
        for op, step in reversed(around):
            position = _outside(op, x)
            if position is None:
                break
            if op.definition in (Scan, While) and position < len(op.outputs) - _stacked(op):
                return f"carry {position}" if not part else f"carry {position}{part}"
            if op.definition is Scan and position < op.carries + op.sequences:
                part = f"[{step}]{part}"
            x = op.inputs[position]
        return (self._results.labels.get(x) or (x.op.name if len(x.op.outputs) == 1 else x.name)) + part

    def _inputs(
        self, event: Event, seen: Mapping[Operation, tuple[list[Any], list[Any]]]
    ) -> Iterable[NanInput]:
        op = event.operation
        if op not in seen:
            return
        arrays, results = seen[op]
        shape = np.shape(results[event.output])
        names = [*op.definition.operands]
        for i, (x, array) in enumerate(zip(op.inputs, arrays, strict=True)):
            operand = names[i] if i < len(names) else f"{op.definition.variadic}[{i - len(names)}]"
            value = _element(array, shape, event.index)
            yield NanInput(
                operand, self._name(x, event.around), x.dtype.name, np.shape(array), *_span(array), value
            )


def _outside(op: Operation, x: Output) -> int | None:
    """The position of the operand for which a parameter of a body stands."""
    for wire in op.definition.wires(op):
        for parameter, position in zip(wire.body.inputs, wire.operands, strict=True):
            if parameter is x:
                return position
    return None


def _stacked(op: Operation) -> int:
    """The number of results of a loop that are not carries."""
    return len(op.outputs) - op.carries if op.definition is Scan else 0


def _element(array: NumpyArray, shape: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """The element of an operand that belongs to an element of a result; None if shapes do not agree."""
    try:
        element = np.broadcast_to(array, shape)[index] if array.ndim <= len(shape) else None
    except ValueError:
        return None
    return (
        None
        if element is None
        else element.astype(np.float64).item()
        if _is_bfloat(array)
        else element.item()
    )


def _is_bfloat(array: NumpyArray) -> bool:
    return array.dtype.kind == "V"


def _span(array: NumpyArray) -> tuple[float | None, float | None, bool, bool]:
    """The smallest and the largest element, and whether there are NaNs and infinities."""
    array = array.astype(np.float64) if array.dtype.kind in "Vbf" else array
    if array.dtype.kind not in "fc":
        return (
            (int(array.min()), int(array.max()), False, False) if array.size else (None, None, False, False)
        )
    nan = np.isnan(array)
    sizes = np.abs(array) if array.dtype.kind == "c" else array
    has_inf = bool(np.isinf(sizes).any())
    numbers = sizes[~nan]
    if not numbers.size:
        return None, None, bool(nan.any()), has_inf
    return float(numbers.min()), float(numbers.max()), bool(nan.any()), has_inf
