"""Loops with a condition, and loops over a range of numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.arguments import parameters_of, positional
from stopgrad.graph.defining import (
    Acting,
    ArgumentError,
    Array,
    ArrayLike,
    Body,
    DTypeError,
    GradientError,
    Graph,
    Joint,
    Namespace,
    NoGradient,
    Op,
    Operation,
    Output,
    Rule,
    ShapeError,
    TensorType,
    Undefined,
    Wire,
)
from stopgrad.graph.graph import needed
from stopgrad.ops.elementwise.arithmetic import add
from stopgrad.ops.elementwise.compare import less
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.shapes.ranges import range as numbers
from stopgrad.transforms.control.batch_rules import WHILE
from stopgrad.transforms.control.body_tracing import (
    NOT_PROPAGATED,
    NOT_SWAPPED,
    Run,
    Traced,
    apply_traced,
    check_carry,
    check_default,
    check_function,
    check_parallel,
    graph_of,
    operands,
    same_types,
    trace_function,
    union,
    weak,
)
from stopgrad.transforms.control.branches import Case
from stopgrad.transforms.control.scans import Scan, run_scan
from stopgrad.transforms.gradients.cotangents import Parts

_UNBOUNDED = -1
_ANY_NUMBER = Undefined(
    lambda op: (
        "a loop without maximum_iterations may take any number of steps; give it that (in JAX use lax.scan, "
        f"or a lax.fori_loop of known length{_of_model(op)}), or stop_gradient what it returns"
    )
)


def _of_model(op: Operation) -> str:
    """For a loop of a model that was loaded, the input that decides how many steps there are."""
    if op.location is None or op.location.file.endswith((".py", ">")):  # A model's nodes are in no program.
        return ""
    numbers = (
        fed for fed in needed(op.inputs) if fed.type == "Placeholder" and fed.outputs[0].type.ndim == 0
    )
    names = [one.name for one in numbers if not one.outputs[0].dtype.is_floating]
    return (
        f"; of a model, fix the input that says it: load it with known={{{names[0]!r}: 4}}" if names else ""
    )


def _pullback(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | Parts | None]:
    """The gradient of an equivalent scan of as many steps as the loop may take, some of which do nothing."""
    if op.limit == _UNBOUNDED:
        raise GradientError(
            f"while_loop: the gradient of {d.describe(op)} needs to know how many steps there may be; give "
            "it maximum_iterations=, or use sg.scan or sg.fori_loop where the number of steps is known"
            f"{_of_model(op)}"
        )
    with d.building_in(op.graph):
        steps = d.emit(Scan, op.inputs, (_bounded(op), len(op.outputs), 0, op.limit, False, 1), "")
    d.current().origin = steps
    return Scan.gradient.pull(gs, steps, live, acting)


def _bounded(op: Operation) -> Body:
    """One step of a loop if its condition holds; otherwise the carry does not change."""
    body: Body = op.body
    bounded: Body | None = body.memo.get(op.condition)
    if bounded is None:
        with d.tracing("a bounded loop", op.graph, origin=d.current().origin) as trace:
            parameters = [d.parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
            replacements = dict(zip(op.condition.inputs, parameters, strict=True))
            (holds,) = d.inline(op.condition.results, replacements)
            idle = _idle(body, op.graph)
            choice = d.emit(Case, (cast(holds, d.int32), *parameters), ((idle, body),), "")
            bounded = body.memo[op.condition] = d.close(trace, parameters, choice.outputs)
    return bounded


def _idle(body: Body, graph: Graph) -> Body:
    """A step that does nothing, in a graph of its own: what the step prints is not in it."""
    with d.tracing("a bounded loop", graph) as trace:
        parameters = [d.parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
        return d.close(trace, parameters, parameters[: len(body.outputs)])


class While(Op):
    """Runs a body as long as a condition holds. Made by :func:`while_loop`.

    Args:
        operands: the carry's first values, then the tensors that are the same for every step.
        condition: a body that returns whether to go on.
        body: a body that returns the next carry.
        limit: the maximum number of steps; -1 for any number.

    Returns:
        The last carry.

    Constraints:
        (C1) Both bodies take the operands.
        (C2) The condition returns a scalar boolean.
        (C3) The body returns the carry's types.

    References:
        StableHLO specification, ``while``.

    Examples:
        >>> sg.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, 3.0)
        array(192., dtype=float32)
    """

    @staticmethod
    def infer(*operands: TensorType, condition: Body, body: Body, limit: int) -> tuple[TensorType, ...]:
        for part in (condition, body):
            if not same_types(part.input_types, operands):
                raise ShapeError(f"(C1) a body takes {part.input_types}, not {operands}")
        if (
            len(condition.output_types) != 1
            or condition.output_types[0].dtype is not d.bool_
            or condition.output_types[0].ndim
        ):
            raise DTypeError(f"(C2) the condition must return a scalar boolean, not {condition.output_types}")
        returned = body.output_types
        carry = operands[: len(returned)]
        if not same_types(returned, carry):
            raise ShapeError(f"(C3) the body must return the carry {carry}, not {returned}")
        return carry

    gradient: d.Gradient = Joint(_pullback)
    samples: d.Samples = ()
    cached = False

    batch = WHILE

    @staticmethod
    def lower(xp: Namespace, *operands: Array, condition: Body, body: Body, limit: int, run: Run) -> Any:
        count = len(body.outputs)
        carry, rest = list(operands[:count]), operands[count:]
        steps = 0
        while steps != limit and bool(run(condition, [*carry, *rest])[0]):
            carry = run(body, [*carry, *rest])
            steps += 1
        return carry[0] if count == 1 else carry

    @staticmethod
    def xla(
        xp: Namespace, *operands: Array, condition: Body, body: Body, limit: int, run: Run
    ) -> Array | Sequence[Array]:
        count = len(body.outputs)
        rest = operands[count:]

        def goes_on(state: tuple[Array, ...]) -> Any:
            holds = run(condition, [*state[1:], *rest])[0]
            return holds if limit == _UNBOUNDED else xp.logical_and(state[0] < limit, holds)

        def step(state: tuple[Array, ...]) -> Any:
            return (state[0] + 1, *run(body, [*state[1:], *rest]))

        start = xp.asarray(0, np.int32)
        carry = xp.lax.while_loop(goes_on, step, (start, *operands[:count]))[1:]
        return carry[0] if count == 1 else carry

    @classmethod
    def runs(cls, op: Operation) -> Any:
        return op.limit

    @classmethod
    def wires(cls, op: Operation) -> Iterable[Wire]:
        count = len(op.outputs)
        carried = {j: j for j in range(count)}
        runs = None if op.limit == _UNBOUNDED else op.limit
        return [Wire(op.body, range(len(op.inputs)), range(count), carried, runs, True, op.condition)]

    @classmethod
    def rule(cls, op: Operation, i: int) -> Rule | NoGradient | Undefined:
        return _ANY_NUMBER if op.limit == _UNBOUNDED else cls.rules[0]


@d.guarded("while_loop")
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: int | None = None,
    name: str | None = None,
) -> Any:
    """Repeats a function as long as a condition holds.

    Args:
        cond: takes the loop variables; returns a scalar boolean.
        body: takes the loop variables; returns the next ones, in the same structure, dtypes and shapes.
        loop_vars: the first loop variables: a list or tuple, whose elements are the arguments of cond and
            body; or any other nested structure of tensors, which is their one argument. If cond and body
            take one argument, several loop variables are that one argument, too, as in JAX.
        shape_invariants: None; loop variables keep their shapes.
        parallel_iterations: a hint of TensorFlow's, without effect.
        back_prop: True; a gradient is built only where it is asked for.
        swap_memory: False.
        maximum_iterations: the maximum number of steps. The gradient needs it, and takes that many steps.
        name: of the operation.

    Returns:
        The last loop variables, in the same structure.

    Raises:
        ArgumentError, DTypeError, ShapeError: the condition is no scalar boolean, or the loop variables
            change.
        GradientError: a gradient is asked for, and there is no maximum_iterations.

    References:
        ``tf.while_loop``, ``jax.lax.while_loop``.

    Examples:
        >>> sg.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), (0, 1.0))
        (array(3, dtype=int32), array(8., dtype=float32))
        >>> sg.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, 1.0))
        (array(3, dtype=int32), array(8., dtype=float32))
    """
    check_function(cond, "while_loop", "cond")
    check_function(body, "while_loop", "body")
    shapes = "loop variables keep their shapes; give them their largest, and mask"
    check_default("while_loop", "shape_invariants", shape_invariants, None, shapes)
    check_default("while_loop", "back_prop", back_prop, True, NOT_PROPAGATED)
    check_default("while_loop", "swap_memory", swap_memory, False, NOT_SWAPPED)
    check_parallel("while_loop", parallel_iterations)
    limit = _UNBOUNDED if maximum_iterations is None else _steps(maximum_iterations)
    return _looped(cond, body, loop_vars, limit, name)


@d.reads_arguments
def _looped(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, limit: int, name: str | None
) -> Any:
    """:func:`while_loop`, after its arguments are checked."""
    leaves = d.flatten(loop_vars)[0]
    ((first, spec),) = operands("while_loop", loop_vars)
    graph = graph_of(first)
    spread = _is_plain(loop_vars) and not (takes_one(cond) and takes_one(body) and len(loop_vars) > 1)

    def arguments(parameters: list[Any]) -> tuple[Any, ...]:
        tree = d.unflatten(spec, parameters)
        return tuple(tree) if spread else (tree,)

    def trace() -> Traced:
        types = [d.type_of(x) for x in first]
        return trace_function(
            lambda *xs: _same_kind(body(*xs), loop_vars), types, arguments, "the body of while_loop", graph
        )

    traced = trace()
    if traced.spec == spec and (again := weak(leaves, first, traced.results)) is not None:
        first = again
        traced = trace()
    types = [d.type_of(x) for x in first]
    check_carry(types, spec, traced, traced.spec, "while_loop")
    outer = traced.trace.outer_graph
    condition = trace_function(cond, types, arguments, "the condition of while_loop", outer)
    if len(condition.results) != 1 or condition.results[0].dtype is not d.bool_ or condition.results[0].ndim:
        shown = ", ".join(repr(y.type) for y in condition.results)
        raise DTypeError(f"while_loop: the condition must return a scalar boolean, not {shown or None}")
    captures = union([condition, traced])
    values = (condition.body(captures), traced.body(captures), limit)
    return d.unflatten(spec, apply_traced(While, traced, (*first, *captures), values, name))


def _same_kind(result: Any, loop_vars: Any) -> Any:
    """The body's result as a list or tuple like *loop_vars*; a single variable may come without one."""
    if _is_plain(loop_vars):
        kind = list if isinstance(loop_vars, list) else tuple
        if _is_plain(result):
            return kind(result)
        if len(loop_vars) == 1:
            return kind([result])
    return result


def takes_one(f: Callable[..., Any]) -> bool:
    """Whether a function takes one positional argument and no more."""
    kinds = [p.kind for p in parameters_of(f)]
    return len(positional(parameters_of(f))) == 1 and inspect.Parameter.VAR_POSITIONAL not in kinds


def _is_plain(tree: object) -> bool:
    """Whether it is a list or a tuple, but not a named tuple."""
    return isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields")


def _steps(maximum: int) -> int:
    try:
        steps = d.whole(maximum)
    except TypeError:
        raise ArgumentError(
            f"while_loop: maximum_iterations must be a whole number, not {maximum!r}"
        ) from None
    if steps < 0:
        raise ArgumentError(f"while_loop: maximum_iterations must not be negative, not {steps}")
    return steps


@d.guarded("fori_loop")
def fori_loop(
    lower: ArrayLike, upper: ArrayLike, body: Callable[..., Any], init: Any, name: str | None = None
) -> Any:
    """Repeats a function for the numbers from lower up to, but not including, upper.

    Args:
        lower: a Python integer, or a scalar integer tensor.
        upper: likewise. The loop has a gradient if both are Python integers.
        body: takes the number (int32) and the carry; returns the next carry.
        init: the first carry, a nested structure of tensors.
        name: of the operation.

    Returns:
        The last carry.

    References:
        ``jax.lax.fori_loop``.

    Examples:
        >>> sg.fori_loop(0, 4, lambda i, x: x * 2.0, 1.0)
        array(16., dtype=float32)
    """
    check_function(body, "fori_loop", "body")
    if isinstance(lower, (int, np.integer)) and isinstance(upper, (int, np.integer)):
        steps = numbers(int(lower), max(int(lower), int(upper)))

        def step(carry: Any, i: Any) -> tuple[Any, None]:
            return body(i, carry), None

        return run_scan("fori_loop", step, init, steps, None, False, 1, name)[0]
    for bound, what in ((lower, "lower"), (upper, "upper")):
        kind = d.type_of(bound)
        if not kind.dtype.is_integer or kind.ndim:
            raise DTypeError(f"fori_loop: {what} must be a scalar integer, not {kind!r}")
    start, end = (
        x if hasattr(x, "dtype") or hasattr(x, "as_output") else d.as_array(x, d.int32)
        for x in (lower, upper)
    )
    start = start if d.type_of(start).dtype is d.type_of(end).dtype else cast(start, d.type_of(end).dtype)
    one = d.as_array(1, d.type_of(end).dtype)
    looped = while_loop(
        lambda state: less(state["i"], end),
        lambda state: {"i": add(state["i"], one), "carry": body(state["i"], state["carry"])},
        {"i": start, "carry": init},
        name=name,
    )
    return looped["carry"]


d.publish(While, while_loop)
