"""Gradient checkpointing: a function's intermediate values are computed again instead of kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Acting,
    Array,
    Body,
    Graph,
    Joint,
    Namespace,
    Op,
    Operation,
    Output,
    Scope,
    ShapeError,
    TensorType,
    Wire,
)
from stopgrad.transforms.control.batch_rules import CHECKPOINT
from stopgrad.transforms.control.body_tracing import (
    Run,
    apply_traced,
    check_function,
    graph_of,
    same_types,
    trace_function,
)
from stopgrad.transforms.control.pullbacks import keys_of, recomputed_pullback, results_for
from stopgrad.transforms.gradients.cotangents import Parts, by_operand
from stopgrad.transforms.gradients.signatures import P, R


def _pullback(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | Parts | None]:
    """The gradient: the body's pullback, which computes the body again."""
    pulled = recomputed_pullback(op.body, gs, live, acting, op, "the gradient of checkpoint")
    keys = keys_of([pulled])
    if not keys:
        return [None] * len(live)
    step = Body(pulled.body.graph, pulled.body.inputs, results_for(keys, pulled))
    cotangents = [g for g in gs if g is not None]
    outputs = d.emit(Checkpoint, (*cotangents, *op.inputs), (step, True), "").outputs
    return by_operand(keys, outputs, len(live))


class Checkpoint(Op):
    """Runs a body, of which the gradient keeps only the operands. Made by :func:`checkpoint`.

    Args:
        operands: the body's arguments.
        body: the body.
        again: whether this is a recomputation, which an engine must not merge with the first computation.

    Returns:
        The body's results.

    Constraints:
        (C1) The body takes the operands.

    References:
        Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174.

    Examples:
        >>> float(sg.grad(sg.checkpoint(lambda x: sg.sin(sg.sin(x))))(0.0))
        1.0
    """

    @staticmethod
    def infer(*operands: TensorType, body: Body, again: bool) -> tuple[TensorType, ...]:
        if not same_types(body.input_types, operands):
            raise ShapeError(f"(C1) the body takes {body.input_types}, not {operands}")
        return body.output_types

    gradient: d.Gradient = Joint(_pullback)
    samples: d.Samples = ()
    cached = False

    batch = CHECKPOINT

    @staticmethod
    def lower(xp: Namespace, *operands: Array, body: Body, again: bool, run: Run) -> Array | Sequence[Array]:
        results = run(body, operands)
        return results[0] if len(results) == 1 else results

    @staticmethod
    def xla(xp: Namespace, *operands: Array, body: Body, again: bool, run: Run) -> Array | Sequence[Array]:
        results = run(body, xp.lax.optimization_barrier(operands) if again else operands)
        return results[0] if len(results) == 1 else results

    @classmethod
    def create(
        cls, scope: Scope | Graph, *operands: Any, name: str | None = None, **attributes: Any
    ) -> Operation:
        """The operation that runs a function, the first operand, on its arguments, the others."""
        with d.as_scope(scope, f"{cls.type}.create"):
            results = d.flatten(checkpoint(operands[0], name)(*operands[1:], **attributes))[0]
        op: Operation = results[0].op
        return op

    @classmethod
    def wires(cls, op: Operation) -> Iterable[Wire]:
        return [Wire(op.body, range(len(op.inputs)), range(len(op.outputs)), {})]


def checkpoint(f: Callable[P, R], name: str | None = None) -> Callable[P, R]:
    """A function whose gradient computes its intermediate values again instead of keeping them.

    In a :func:`scan` of √n steps whose body is a scan of √n steps, it reduces the memory of a gradient over n
    steps from O(n) to O(√n), for one more forward computation.

    Args:
        f: a function of nested structures of tensors; other leaves are passed to it unchanged.
        name: of the operation.

    Returns:
        A function with f's arguments and results.

    References:
        ``jax.checkpoint``, ``tf.recompute_grad``.

    Examples:
        >>> float(sg.grad(sg.checkpoint(lambda x: sg.exp(x * x)))(0.0))
        0.0
    """
    check_function(f, "checkpoint", "f")

    @functools.wraps(f)
    @d.guarded("checkpoint")
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = d.flatten((args, kwargs))
        places = [
            i
            for i, leaf in enumerate(leaves)
            if isinstance(leaf, (Output, Operation)) or hasattr(leaf, "dtype")
        ]
        tensors = [
            x.as_output() if isinstance(x := leaves[i], (Output, Operation)) else d.as_array(x)
            for i in places
        ]
        graph = graph_of(tensors)

        def arguments(parameters: list[Any]) -> tuple[Any, ...]:
            filled = list(leaves)
            for i, parameter in zip(places, parameters, strict=True):
                filled[i] = parameter
            return (d.unflatten(spec, filled),)

        traced = trace_function(
            lambda called: d.call(f, *called[0], **called[1]),
            [d.type_of(x) for x in tensors],
            arguments,
            "checkpoint",
            graph,
        )
        results = apply_traced(
            Checkpoint, traced, (*tensors, *traced.trace.captures), (traced.body(), False), name
        )
        return d.unflatten(traced.spec, results)

    return recomputed


d.publish(Checkpoint, checkpoint)
