"""Functions with a gradient of their own."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, ParamSpec, TypeVar, overload

from stopgrad.base.locks import holding
from stopgrad.graph import defining as d
from stopgrad.graph.batched_bodies import batched_body
from stopgrad.graph.build import remade
from stopgrad.graph.defining import (
    Acting,
    ArgumentError,
    Array,
    ArrayLike,
    Body,
    Flags,
    GradientError,
    Graph,
    GraphError,
    Joint,
    Namespace,
    NoGradient,
    Op,
    Operation,
    Output,
    Rule,
    Scope,
    ShapeError,
    Size,
    TensorType,
    Undefined,
)
from stopgrad.ops.gates.stopping import carries_gradient
from stopgrad.ops.shapes.reshape import sum_to
from stopgrad.ops.structural.sources import Const, identity, zeros_like

__all__ = ["custom_gradient"]

Pullback = Callable[..., object]
"""Takes the cotangents of the results; returns those of the arguments: one, or several in a structure."""

WithGradient = Callable[..., tuple[object, Pullback]]
"""Returns its results, and their gradient function."""


SHOWN = 3
"""The most tensors that a reason names."""

P = ParamSpec("P")
R = TypeVar("R")


class Untraced:
    """A gradient function that has not been traced yet; only one thread at a time traces it."""

    __slots__ = ("_locks", "function")

    function: Pullback

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._locks: dict[int, RLock] = {}

    @property
    def lock(self) -> RLock:
        """A lock of its own, so that others can build while it is held; one for each process after a fork."""
        return self._locks.setdefault(os.getpid(), RLock())


def _settle(op: Operation) -> Body:
    """The gradient function as a body: traced when it is first needed, so never behind a stop.

    The tensors that it uses besides the cotangents become operands of the operation.
    """
    pullback = op.pullback
    if isinstance(pullback, Untraced):
        holding(pullback.lock, _trace, op)
    body: Body = op.pullback
    return body


def _trace(op: Operation) -> None:
    count, pullback, asked, kept = op.values
    if isinstance(pullback, Untraced):
        arguments = op.inputs[count : count + len(kept)]
        pullback, used = _traced(pullback.function, op.outputs, arguments, asked, kept, op)
        late = [x for x in used if x.op.id >= op.id]
        if late:
            pullback, used = _remade(op, pullback, used, late)
        # If an interrupt comes between these two, the next call traces again.
        op.inputs = (*op.inputs[: count + len(kept)], *used)
        op.values = (count, pullback, asked, kept)


def _remade(
    op: Operation, body: Body, used: Sequence[Output], late: Sequence[Output]
) -> tuple[Body, list[Output]]:
    """The body with operations newer than the operation rebuilt inside it, and the tensors that it uses now.

    A gradient function that asks for gradients of the function's own tensors builds such operations.
    """
    newer = [step for step in op.graph.subgraph_to(late) if step.id >= op.id]
    for step in newer:
        if step is op or step.definition.stateful or (not step.inputs and step.definition is not Const):
            raise GraphError(
                f"{d.describe(op)}: the gradient function uses {d.describe(step)}, which was built after it; "
                "build it before the call, or pass it as an argument"
            )
    with d.tracing("the gradient function of custom_gradient", op.graph) as trace:
        cotangents = [d.parameter_of(trace.graph, g.type, g.op) for g in body.inputs[: op.count]]
        built = remade(newer)
        inside = [built[x] if x in built else d.local(x) for x in used]
        replacements = dict(zip(body.inputs, [*cotangents, *inside], strict=True))
        results = iter(d.inline(body.results, replacements))
        outputs = [None if y is None else next(results) for y in body.outputs]
        return d.close(trace, cotangents, outputs), list(trace.captures)


def _traced(
    function: Pullback,
    ys: Sequence[Output],
    arguments: Sequence[Output],
    asked: int,
    kept: Sequence[int],
    op: Operation | str,
) -> tuple[Body, list[Output]]:
    """The gradient function as a body with a result for each argument, and the outer tensors that it uses.

    It returns nothing for what the function closes over, whose numbers in *kept* are from *asked* on.
    """
    name = op if isinstance(op, str) else d.describe(op)
    with d.tracing("the gradient function of custom_gradient", ys[0].op.graph) as trace:
        cotangents = [d.parameter_of(trace.graph, y.type, y.op) for y in ys]
        returned = d.call(function, *cotangents)
        parts: list[Any] = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        own = [k for k in kept if k < asked]
        if len(parts) == asked:
            parts = [parts[k] for k in own]
        if len(parts) != len(own):
            raise GradientError(
                f"{name}: the gradient function returned {len(parts)} gradients for {asked} arguments"
            )
        parts += [None] * (len(kept) - len(own))
        outputs = [
            None if part is None else _fitting(part, x, name)
            for part, x in zip(parts, arguments, strict=True)
        ]
        return d.close(trace, cotangents, outputs), list(trace.captures)


def _fitting(part: ArrayLike | Operation, x: Output, name: str) -> Output:
    """The gradient returned for x, as an output; x's shape must broadcast to its shape."""
    gradient = (
        part.as_output() if isinstance(part, (Output, Operation)) else d.as_output(d.as_array(part, x.dtype))
    )
    extra = gradient.ndim - x.ndim
    if extra < 0 or not all(
        b == 1 or d.same_size(a, b) for a, b in zip(gradient.shape[extra:], x.shape, strict=True)
    ):
        raise ShapeError(
            f"{name}: the gradient function returned {gradient.type!r} for an argument of type {x.type!r}"
        )
    return gradient


def _pullback(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | None]:
    """The gradient function's results for the live arguments, built into the current graph."""
    body = _settle(op)
    parts = [body.outputs[i - op.count] for i in live]
    results = [part for part in parts if part is not None] + [
        effect.outputs[0] for effect in body.graph.acting
    ]
    needed = set(body.graph.subgraph_to(results))
    replacements = dict(zip(body.inputs[op.count :], op.inputs[op.count + len(op.kept) :], strict=True))
    for g, y, parameter in zip(gs, op.outputs, body.inputs, strict=False):
        if parameter.op in needed:
            replacements[parameter] = zeros_like(y) if g is None else g
    computed = iter(d.inline(results, replacements))
    return [None if part is None else next(computed) for part in parts]


def _in_batch(op: Operation, operands: Sequence[Output], batched: Flags, size: Size) -> Sequence[Output]:
    """The batching rule: the gradient function is batched, too, and returns a gradient for each example."""
    body, first, last = _settle(op), op.count, op.count + len(op.kept)
    flags = [True] * first + list(batched[last:])
    pullback, _ = batched_body(_fitted(body, op.inputs[first:last]), flags, size, [True] * len(op.kept))
    ys = d.everywhere(operands[:first], batched[:first], size)
    return d.again(op, (*ys, *operands[first:]), (op.count, pullback, op.asked, op.kept))


def _fitted(body: Body, arguments: Sequence[Output]) -> Body:
    """The gradient function with each result summed to the shape of its argument."""
    if all(y is None or y.shape == x.shape for y, x in zip(body.outputs, arguments, strict=True)):
        return body
    with d.tracing("the gradient function of custom_gradient", None) as trace:
        parameters = [d.parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
        computed = iter(d.inline(body.results, dict(zip(body.inputs, parameters, strict=True))))
        outputs = [
            None if y is None else sum_to(next(computed), x.type)
            for y, x in zip(body.outputs, arguments, strict=True)
        ]
        return d.close(trace, parameters, outputs)


def _closes_over(op: Operation) -> str:
    """Why no gradient reaches what the function takes from outside, besides its arguments."""
    closed = [x for x, k in zip(op.inputs[op.count :], op.kept, strict=False) if k >= op.asked]
    names = list(dict.fromkeys([_name_of(x.op) for x in closed if x.type.differentiable]))
    *first, last = names if len(names) <= SHOWN else [*names[:SHOWN], f"{len(names) - SHOWN} more"]
    shown = f"{', '.join(first)} and {last}" if first else last
    return (
        f"custom_gradient's function closes over {shown}, for which its gradient function returns nothing; "
        f"pass {'it as an argument' if len(names) == 1 else 'them as arguments'}"
    )


def _name_of(op: Operation) -> str:
    """The name that somebody gave to an operation; for others the expression, if it is known."""
    if not re.fullmatch(rf"(.*/)?{op.type}(_\d+)?", op.name):
        return op.name
    if op.definition.passes is not None:
        return _name_of(op.inputs[op.definition.passes].op)
    where = op.location
    return "a tensor from outside" if where is None or op.definition.fed else " ".join(where.source.split())


_CLOSED_OVER = d.stopped("custom_gradient's function closes over it")._replace(about=_closes_over)


class CustomGradient(Op):
    """The results of a function whose gradient another function computes; see :func:`custom_gradient`.

    Args:
        tensors: the function's results, then its arguments and what it closes over, then the other tensors
            that the gradient function uses.
        count: the number of results.
        pullback: the gradient function, from cotangents of the results (and the other tensors) to those of
            the arguments; for what the function closes over, it has none.
        asked: how many gradients the function may return, Python floats included.
        kept: which of these belong to tensors; then a number from *asked* on for each tensor closed over.

    Returns:
        The results.

    Examples:
        >>> sg.grad(sg.custom_gradient(lambda x: (x * x, lambda g: g * 10.0)))(3.0)
        array(10., dtype=float32)
    """

    @staticmethod
    def infer(
        *tensors: TensorType, count: int, pullback: Body, asked: int, kept: tuple[int, ...]
    ) -> tuple[TensorType, ...]:
        return tensors[:count]

    gradient: d.Gradient = Joint(_pullback)
    samples: d.Samples = ()
    cached = False
    merged = False
    batch = _in_batch
    moves = ("tensors",)

    @staticmethod
    def lower(xp: Namespace, *tensors: Array, count: int, **_: object) -> Array | tuple[Array, ...]:
        return tensors[0] if count == 1 else tensors[:count]

    @classmethod
    def handed_on(cls, op: Operation) -> Sequence[int]:
        return range(op.count)

    @classmethod
    def settle(cls, op: Operation) -> None:
        _settle(op)

    @classmethod
    def rule(cls, op: Operation, i: int) -> Rule | NoGradient | Undefined:
        if i < op.count:
            return d.unconnected("custom_gradient replaces what the function itself would pass back")
        if i >= op.count + len(op.kept):
            return d.unconnected("only the gradient function uses it")
        if op.kept[i - op.count] >= op.asked:
            return _CLOSED_OVER
        if _settle(op).outputs[i - op.count] is None:
            return d.stopped("custom_gradient's gradient function returns None for it")
        return cls.rules[0]

    @classmethod
    def dependence(cls, op: Operation) -> Sequence[frozenset[int]] | None:
        """An output and an argument are connected where the argument's gradient depends on the output's."""
        body = _settle(op)
        parts = [(i, part.op.id) for i, part in enumerate(body.outputs, op.count) if part is not None]
        readers = [{step.id for step in body.graph.subgraph_from([g])} for g in body.inputs[: op.count]]
        # A gradient that depends on no cotangent, such as a constant, counts for every result.
        always = frozenset(i for i, id in parts if not any(id in steps for steps in readers))
        return [always.union([i for i, id in parts if id in steps]) for steps in readers]

    @classmethod
    def create(
        cls, scope: Scope | Graph, *operands: object, name: str | None = None, **attributes: object
    ) -> Operation:
        """A new operation of this type in a scope.

        Args:
            scope: where it is built.
            operands: the function, as for :func:`custom_gradient`, and then its arguments.
            name: of the operation; None for the scope's name for its next operation.
            attributes: the function's keyword arguments.
        """
        scope = d.as_scope(scope, f"{cls.type}.create")
        if not operands or not callable(operands[0]):
            raise ArgumentError(
                "CustomGradient.create takes a Scope, a function, and the function's arguments"
            )
        with Scope(scope.graph, scope.prefix):
            results = _build(operands[0], operands[1:], attributes, name or scope.name)
        return next(leaf for leaf in d.flatten(results)[0] if isinstance(leaf, Output)).op


@overload
def custom_gradient(f: Callable[P, tuple[R, Callable[..., object]]]) -> Callable[P, R]: ...
@overload
def custom_gradient(
    f: None = None,
) -> Callable[[Callable[P, tuple[R, Callable[..., object]]]], Callable[P, R]]: ...
def custom_gradient(f: WithGradient | None = None) -> Callable[..., object]:
    """Give a function its own gradient, as TensorFlow's decorator does.

    The gradient function is traced once, when a gradient is first asked for (or the graph is written or
    copied); inside the body of a loop or branch, at once. It may use tensors that it closes over. Those that
    the function itself closes over get no gradient, and :func:`explain` calls them stopped: pass them as
    arguments.

    Args:
        f: a function that returns a pair: its results (a tensor or nested structure of tensors), and a
            gradient function. That takes the results' cotangents, one positional argument each, and returns
            those of f's floating-point arguments: one, or a list, or a tuple with the structure of each
            positional argument, as :func:`vjp`'s pullbacks do; None for an argument without gradient.
            Positional Python floats may be included or left out. Without f, the decorator is returned:
            ``@sg.custom_gradient()``.

    Returns:
        A function that returns f's results.

    Examples:
        >>> @sg.custom_gradient
        ... def log1pexp(x):
        ...     e = sg.exp(x)
        ...     return sg.log(1.0 + e), lambda g: g * (1.0 - 1.0 / (1.0 + e))
        >>> float(sg.grad(log1pexp)(100.0))
        1.0
    """

    if f is None:
        return custom_gradient
    if not callable(f):
        raise ArgumentError(f"custom_gradient: takes a function, not {f!r}")

    @functools.wraps(f)
    @d.guarded("custom_gradient")
    def with_gradient(*args: object, **kwargs: object) -> object:
        return _build(f, args, kwargs)

    return with_gradient


def _build(
    f: WithGradient, args: Sequence[object], kwargs: Mapping[str, object], name: str | None = None
) -> object:
    """The results of *f*, with its own gradient."""
    leaves, spec = d.flatten((tuple(args), dict(kwargs)))
    positional = len(d.flatten(args)[0])
    graph = next((d.graph_for(leaf) for leaf in leaves if isinstance(leaf, Output)), d.default_graph())
    if graph is None:
        return _pair(d.call(f, *args, **kwargs))[0]
    first = len(graph.operations)
    inner = [identity(leaf) if carries_gradient(leaf) else leaf for leaf in leaves]
    args, kwargs = d.unflatten(spec, inner)
    results, pullback = _pair(d.call(f, *args, **kwargs))
    ys, result_spec = d.flatten(results)
    ys = [d.local(y) if isinstance(y, Output) else identity(d.as_array(y)) for y in ys]
    xs = [x for leaf, x in zip(leaves, inner, strict=True) if x is not leaf]
    asked = [leaf for i, leaf in enumerate(leaves) if (_counts if i < positional else carries_gradient)(leaf)]
    kept = tuple(k for k, leaf in enumerate(asked) if carries_gradient(leaf))
    closed = taken_from_outside(ys, xs, graph, first)
    kept += tuple(range(len(asked), len(asked) + len(closed)))
    xs += closed
    pullback = _listing(pullback, args, len(asked))
    # Inside a body, it must capture what it uses before the body is closed.
    at_once = d.current().tracing is not None
    return d.unflatten(result_spec, given_gradient(ys, xs, pullback, len(asked), kept, name, at_once).outputs)


def given_gradient(
    ys: Sequence[Output],
    xs: Sequence[Output],
    pullback: Pullback,
    asked: int,
    kept: tuple[int, ...],
    name: str | None = None,
    at_once: bool = True,
) -> Operation:
    """Tensors with a gradient of their own.

    Args:
        ys: the tensors, in the graph that is being built.
        xs: those that they are computed from.
        pullback: the gradient function, of cotangents of *ys*.
        asked, kept: as :class:`CustomGradient` has them.
        name: of the operation.
        at_once: whether the gradient function is traced now; else when it is first needed.
    """
    gradient: Body | Untraced = Untraced(pullback)
    used: list[Output] = []
    if at_once:
        gradient, used = _traced(pullback, ys, xs, asked, kept, "custom_gradient")
    return d.emit(CustomGradient, (*ys, *xs, *used), (len(ys), gradient, asked, kept), name)


def taken_from_outside(
    ys: Sequence[Output], xs: Sequence[Output], graph: Graph, first: int = 0
) -> list[Output]:
    """What a function takes besides its arguments *xs*: tensors of no operands, and those before *first*."""
    arguments = frozenset(xs)
    outside: set[Output] = set()
    seen: set[Output] = set()
    stack = list(ys)
    while stack:
        x = stack.pop()
        if x in seen or x in arguments or x.op.definition is Const:
            continue
        seen.add(x)
        if x.op.inputs and x.op.id >= first and x.op.graph is graph:
            stack.extend(x.op.inputs)
        else:
            outside.add(x)
    return sorted(outside, key=lambda x: (x.op.id, x.index))


def _counts(leaf: object) -> bool:
    """Whether a gradient may be returned for a leaf of a positional argument."""
    return carries_gradient(leaf) or isinstance(leaf, (float, complex))


def _listing(pullback: Pullback, args: Sequence[object], asked: int) -> Pullback:
    """A gradient function that lists what *pullback* returns in the structure of the arguments."""

    def listed(*cotangents: ArrayLike) -> object:
        returned = d.call(pullback, *cotangents)
        parts = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        alone = all(part is None or d.is_leaf(part) for part in parts)
        if len(parts) != len(args) or (alone and len(parts) == asked):
            return returned
        gradients: list[Any] = []
        for part, arg in zip(parts, args, strict=True):
            leaves = d.flatten(arg)[0]
            pulled = [None] * len(leaves) if part is None else d.flatten(part, none_is_leaf=True)[0]
            if len(pulled) != len(leaves):
                return returned
            gradients += [g for g, leaf in zip(pulled, leaves, strict=True) if _counts(leaf)]
        return gradients

    return listed


def _pair(returned: object) -> tuple[object, Pullback]:
    if not isinstance(returned, tuple) or len(returned) != 2 or not callable(returned[1]):
        raise ArgumentError(
            "custom_gradient: the function must return a pair (results, gradient function), "
            f"not {type(returned).__name__}"
        )
    return returned


CustomGradient.function = custom_gradient
