"""Computing again instead of keeping: checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stopgrad.autodiff.reach import Acting, between
from stopgrad.autodiff.reverse import backpropagate
from stopgrad.body import Body
from stopgrad.build import apply, close, emit, inline, parameter_of, tracing
from stopgrad.control.batches import CHECKPOINT
from stopgrad.control.functions import check_function, graph_of, same_type, trace_function
from stopgrad.errors import ShapeError
from stopgrad.graph import Graph, Operation, Output
from stopgrad.op import Joint, Op, Wire
from stopgrad.operands import as_array, type_of
from stopgrad.public import publish
from stopgrad.scope import Scope
from stopgrad.structure import flatten, unflatten
from stopgrad.types import TensorType


def _pull(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | None]:
    """A body that computes the forward body again and pulls back through it."""
    body: Body = op.body
    given = [g for g in gs if g is not None]
    with tracing("the gradient of checkpoint", op.graph, origin=op) as trace:
        cotangents = [parameter_of(trace.graph, g.type, g.op) for g in given]
        parameters = [parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
        built: dict[Output, Output] = {}
        ys = inline(body.results, dict(zip(body.inputs, parameters, strict=True)), built)
        ys = [y for y, g in zip(ys, gs, strict=True) if g is not None]
        xs = [parameters[i] for i in live]
        inside = acting.union(built[gate.outputs[0]].op for gate in acting if gate.outputs[0] in built)
        parts = backpropagate(ys, xs, cotangents, between(ys, set(xs), (), inside), inside)
        step = close(trace, [*cotangents, *parameters], [part for part in parts if part is not None])
    if not step.outputs:
        return [None] * len(live)
    made = iter(emit(Checkpoint, (*given, *op.inputs), (step, True), "").outputs)
    return [None if part is None else next(made) for part in parts]


class Checkpoint(Op):
    """Runs a body, of which the gradient keeps nothing but the operands. Made by :func:`checkpoint`.

    Args:
        operands: what the body takes.
        body: the body.
        again: whether it is run to compute something again, which an engine must not merge with the first
            time.

    Returns:
        What the body returns.

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
        taken = body.input_types
        if len(taken) != len(operands) or not all(map(same_type, taken, operands)):
            raise ShapeError(f"(C1) the body takes {taken}, not {operands}")
        return body.output_types

    gradient = Joint(_pull)
    samples = ()
    cached = False

    batch = CHECKPOINT

    @staticmethod
    def lower(xp: Any, *operands: Any, body: Body, again: bool, run: Any) -> Any:
        made = run(body, operands)
        return made[0] if len(made) == 1 else made

    @staticmethod
    def xla(xp: Any, *operands: Any, body: Body, again: bool, run: Any) -> Any:
        made = run(body, xp.lax.optimization_barrier(operands) if again else operands)
        return made[0] if len(made) == 1 else made

    @classmethod
    def create(
        cls, scope: Scope | Graph, *operands: Any, name: str | None = None, **attributes: Any
    ) -> Operation:
        """The operation that runs a function, which comes first, on its arguments."""
        with Scope(scope) if isinstance(scope, Graph) else scope:
            made = flatten(checkpoint(operands[0], name)(*operands[1:], **attributes))[0]
        op: Operation = made[0].op
        return op

    @classmethod
    def wires(cls, op: Operation) -> Iterable[Wire]:
        return [Wire(op.body, range(len(op.inputs)), range(len(op.outputs)), {})]


def checkpoint(f: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """A function whose gradient computes its intermediate values again instead of keeping them.

    In the body of a :func:`scan` of √n steps of √n steps each, it brings the memory of a gradient over n
    steps from O(n) to O(√n), for one more forward computation.

    Args:
        f: a function of nested structures of tensors; leaves of other kinds are handed to it as they are.
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
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten((args, kwargs))
        places = [
            i
            for i, leaf in enumerate(leaves)
            if isinstance(leaf, (Output, Operation)) or hasattr(leaf, "dtype")
        ]
        given = [
            x.as_output() if isinstance(x := leaves[i], (Output, Operation)) else as_array(x) for i in places
        ]
        graph = graph_of(given)

        def arguments(parameters: list[Any]) -> tuple[Any, ...]:
            filled = list(leaves)
            for i, parameter in zip(places, parameters, strict=True):
                filled[i] = parameter
            return (unflatten(spec, filled),)

        traced = trace_function(
            lambda called: f(*called[0], **called[1]),
            [type_of(x) for x in given],
            arguments,
            "checkpoint",
            graph,
        )
        if not traced.results:
            return unflatten(traced.spec, [])
        made = apply(Checkpoint, (*given, *traced.trace.captures), (traced.body(), False), name)
        return unflatten(traced.spec, list(made) if isinstance(made, tuple) else [made])

    return recomputed


publish(Checkpoint, checkpoint)
