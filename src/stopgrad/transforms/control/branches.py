"""Branches: cond and switch, which run one of several functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Acting,
    ArgumentError,
    Array,
    ArrayLike,
    Bodies,
    Body,
    DTypeError,
    Joint,
    Namespace,
    NumpyArray,
    Op,
    Operation,
    Output,
    ShapeError,
    TensorType,
    Wire,
)
from stopgrad.ops.elementwise.arithmetic import maximum, minimum
from stopgrad.ops.elementwise.convert import cast
from stopgrad.transforms.control.batch_rules import CASE
from stopgrad.transforms.control.body_tracing import (
    Run,
    Traced,
    apply_traced,
    check_function,
    graph_of,
    operands,
    same_type,
    same_types,
    trace_function,
    union,
)
from stopgrad.transforms.control.pullbacks import keys_of, recomputed_pullback, results_for
from stopgrad.transforms.gradients.cotangents import Parts, by_operand

_INDEX = d.not_differentiable("which branch runs has no derivative")


def _pullback(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | Parts | None]:
    """The gradient: the same choice among the branches' pullbacks, which compute their branch again."""
    places = [i - 1 for i in live]  # The index comes before the branches' operands.
    pulled = [
        recomputed_pullback(body, gs, places, acting, op, "the gradient of a branch") for body in op.branches
    ]
    keys = keys_of(pulled)
    if not keys:
        return [None] * len(live)
    arguments = [*(g for g in gs if g is not None), *op.inputs[1:]]
    results = [results_for(keys, branch) for branch in pulled]
    used: set[int] = set()
    for branch, outputs in zip(pulled, results, strict=True):
        needed = set(branch.body.graph.subgraph_to([y for y in outputs if y is not None]))
        used.update(i for i, x in enumerate(branch.body.inputs) if x.op in needed)
    indices = sorted(used)
    bodies = tuple(
        [
            Body(branch.body.graph, [branch.body.inputs[i] for i in indices], outputs)
            for branch, outputs in zip(pulled, results, strict=True)
        ]
    )
    cotangents = d.emit(Case, (op.inputs[0], *(arguments[i] for i in indices)), (bodies,), "").outputs
    return by_operand(keys, cotangents, len(live))


class Case(Op):
    """Runs one of several bodies, chosen by an index. Made by :func:`cond` and :func:`switch`.

    Args:
        index: a scalar integer, clipped to the numbers of the bodies.
        operands: the bodies' arguments.
        branches: the bodies.

    Returns:
        The results of the chosen body.

    Constraints:
        (C1) The index is a scalar int32.
        (C2) Every branch takes the operands.
        (C3) All branches return tensors of the same types.

    References:
        StableHLO specification, ``case``.

    Examples:
        >>> sg.switch(1, [lambda x: x, lambda x: -x], 3.0)
        array(-3., dtype=float32)
    """

    @staticmethod
    def infer(index: TensorType, *operands: TensorType, branches: Bodies) -> tuple[TensorType, ...]:
        if index.dtype is not d.int32 or index.ndim:
            raise DTypeError(f"(C1) the index must be a scalar int32, not {index!r}")
        for body in branches:
            if not same_types(body.input_types, operands):
                raise ShapeError(f"(C2) a branch takes {body.input_types}, not {operands}")
            if not same_types(body.output_types, branches[0].output_types):
                raise ShapeError(f"(C3) branches return {branches[0].output_types} and {body.output_types}")
        return branches[0].output_types

    gradient: d.Gradient = Joint(_pullback, {"index": _INDEX})
    samples: d.Samples = ()
    cached = False

    batch = CASE
    alternatives = True

    @staticmethod
    def lower(
        xp: Namespace, index: NumpyArray, *operands: Array, branches: Bodies, run: Run
    ) -> Array | Sequence[Array]:
        results = run(branches[min(max(int(index), 0), len(branches) - 1)], operands)
        return results[0] if len(results) == 1 else results

    @staticmethod
    def xla(
        xp: Namespace, index: Array, *operands: Array, branches: Bodies, run: Run
    ) -> Array | Sequence[Array]:
        results = xp.lax.switch(
            index, [lambda *xs, body=body: tuple(run(body, xs)) for body in branches], *operands
        )
        return results[0] if len(results) == 1 else results

    @classmethod
    def wires(cls, op: Operation) -> Iterable[Wire]:
        inputs, outputs = range(1, len(op.inputs)), range(len(op.outputs))
        return [Wire(body, inputs, outputs, {}) for body in op.branches]


@d.guarded("cond")
def cond(
    pred: ArrayLike,
    true_fn: Callable[..., Any] | None = None,
    false_fn: Callable[..., Any] | None = None,
    *operands: Any,
    name: str | None = None,
) -> Any:
    """Run one of two functions, chosen by a condition when the graph runs.

    Both are traced, one is run. They may use tensors that they close over.

    Args:
        pred: a scalar boolean.
        true_fn: called with the operands if it is True.
        false_fn: called with the operands if it is False; returns the same structure, dtypes and shapes.
        operands: nested structures of tensors.
        name: of the operation.

    Returns:
        The result of the chosen function.

    Raises:
        DTypeError: the condition is no scalar boolean.
        ArgumentError, DTypeError, ShapeError: the functions disagree on what they return.

    References:
        ``jax.lax.cond``, ``tf.cond``.

    Examples:
        >>> sg.cond(np.array(True), lambda x: x + 1.0, lambda x: x - 1.0, 3.0)
        array(4., dtype=float32)
    """
    kind = d.type_of(pred)
    if kind.dtype is not d.bool_ or kind.ndim:
        raise DTypeError(
            f"cond: the condition must be a scalar boolean, not {kind!r}; compare, or reduce with "
            "sg.reduce_all"
        )
    index = cast(pred if isinstance(pred, (Output, Operation)) else d.as_array(pred), d.int32)
    return _choice("cond", index, [false_fn, true_fn], ["false_fn", "true_fn"], operands, name)


@d.guarded("switch")
def switch(
    index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: Any, name: str | None = None
) -> Any:
    """Run one of several functions, chosen by an index when the graph runs.

    Args:
        index: a scalar integer, clipped to the numbers of the functions.
        branches: functions that take the operands and return the same structure, dtypes and shapes.
        operands: nested structures of tensors.
        name: of the operation.

    Returns:
        The result of the chosen function.

    Raises:
        DTypeError: the index is no scalar integer.
        ArgumentError, DTypeError, ShapeError: there is no branch, or they disagree on what they return.

    References:
        ``jax.lax.switch``, ``tf.switch_case``.

    Examples:
        >>> sg.switch(np.array(2), [lambda x: x, lambda x: -x, lambda x: x * x], 3.0)
        array(9., dtype=float32)
    """
    kind = d.type_of(index)
    if not kind.dtype.is_integer or kind.ndim:
        raise DTypeError(f"switch: the index must be a scalar integer, not {kind!r}; convert with sg.cast")
    branches = list(branches) if isinstance(branches, (list, tuple)) else []
    if not branches:
        raise ArgumentError("switch: takes a list of at least one function")
    if not isinstance(index, (Output, Operation)):
        index = d.as_array(np.clip(d.as_array(index), 0, len(branches) - 1), d.int32)
    elif kind.dtype is not d.int32:
        index = cast(_clamped(index, len(branches) - 1), d.int32)
    return _choice("switch", index, branches, [f"branch {i}" for i in range(len(branches))], operands, name)


def _clamped(index: Output | Operation, last: int) -> Any:
    """The index clipped before it is converted to int32, where a larger one would wrap."""
    low, high = np.asarray(0, index.dtype.numpy), np.asarray(last, index.dtype.numpy)
    return minimum(maximum(index, low), high)


def _choice(
    what: str,
    index: ArrayLike,
    functions: Sequence[Any],
    roles: Sequence[str],
    arguments: Sequence[Any],
    name: str | None,
) -> Any:
    """What :func:`cond` and :func:`switch` have in common; errors name functions by their *roles*."""
    for f, role in zip(functions, roles, strict=True):
        check_function(f, what, role)
    ((leaves, spec),) = operands(what, tuple(arguments))
    graph = graph_of([index], leaves)
    types = [d.type_of(x) for x in leaves]
    traced: list[Traced] = []
    for f, role in zip(functions, roles, strict=True):
        outer = next((branch.trace.outer_graph for branch in traced), graph)
        traced.append(trace_function(f, types, lambda xs: d.unflatten(spec, xs), f"{role} of {what}", outer))
        _check_alike(what, traced[0], roles[0], traced[-1], role)
    captures = union(traced)
    bodies = tuple(branch.body(captures) for branch in traced)
    results = apply_traced(Case, traced[0], (index, *leaves, *captures), (bodies,), name)
    return d.unflatten(traced[0].spec, results)


def _check_alike(what: str, first: Traced, first_role: str, other: Traced, role: str) -> None:
    if first.spec != other.spec:
        raise ArgumentError(
            f"{what}: the functions must return one structure: {first_role} returned {d.shown(first.spec)}, "
            f"{role} {d.shown(other.spec)}"
        )
    for a, b in zip(first.results, other.results, strict=True):
        if not same_type(a.type, b.type):
            error = DTypeError if a.dtype is not b.dtype else ShapeError
            raise error(
                f"{what}: the functions must return the same types: {first_role} returned {d.describe(a)}, "
                f"{role} {d.describe(b)}"
            )


d.publish(Case, switch)
