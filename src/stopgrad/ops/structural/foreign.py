"""Operations of other frameworks that stopgrad does not have, with what is known about them.

They occur in recorded and imported graphs, so that reports of where gradients flow show them like all other
operations. A framework that can run them adds a serialised program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.base.printable import printable
from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Acting,
    Array,
    ArrayLike,
    EngineError,
    GradientError,
    Graph,
    Joint,
    Namespace,
    NoGradient,
    Op,
    Operation,
    Output,
    Rule,
    Sizes,
    Status,
    TensorType,
    Undefined,
)
from stopgrad.ops.elementwise.convert import conj
from stopgrad.ops.gates.stopping import Gate
from stopgrad.ops.structural.foreign_programs import Step, check_call, computed, steps_of, trust, written
from stopgrad.ops.structural.sources import zeros_like


def _pullback(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Acting
) -> Sequence[Output | None]:
    """The gradient: another foreign operation, which runs the next step of the program."""
    if not op.program:
        raise GradientError(
            f"{op.call}: the gradient of {d.describe(op)} cannot be generated: it was recorded to be looked "
            "at, without what computes it; import the program itself with stopgrad.torch.load or "
            "stopgrad.jax.load"
        )
    first, *more = steps_of(op.program, len(op.inputs))
    lacking = {i: reason for i, status, reason in op.walls if status == Status.UNDEFINED}
    reasons = [lacking[i] for i in live if i in lacking] or [r for i, r in first.refused if gs[i] is not None]
    if not reasons and not (more and more[0].code):
        reasons = [more[0].reason if more else first.reason]
    if reasons:
        raise GradientError(f"{op.call}: the gradient of {d.describe(op)} cannot be generated: {reasons[0]}")
    step = more.pop(0)
    incoming = [gs[i] for i in step.wants]
    cotangents = [
        zeros_like(op.outputs[i]) if g is None else _conjugate(g)
        for i, g in zip(step.wants, incoming, strict=True)
    ]
    operands = (*op.inputs, *cotangents)
    results = foreign(operands, step.call, step.results, step.walls, step.reach, written([step, *more]))
    arrived = dict(zip(step.towards, results, strict=True))
    return [_conjugate(arrived[i]) if i in arrived else None for i in live]


def _conjugate(g: Output) -> Output:
    """Our cotangent for JAX's, and JAX's for ours: those of complex tensors are each other's conjugates."""
    return conj(g) if g.dtype.is_complex else g


class Foreign(Op):
    """An operation of another framework.

    Args:
        tensors: its operands.
        call: what it is called there, such as ``"torch.nn.functional.linear"``.
        results: for each result the name of its dtype, and its sizes: ``(("float32", 3, 4), ("int64", 3))``.
        walls: what keeps gradients from operands, as ``((position, status, reason), ...)``. The status is
            ``"stopped"``, ``"not differentiable"``, ``"undefined"``, or ``"disconnected"`` where no value is
            taken from the operand.
        reach: for each result the positions of the operands that it depends on; ``()`` where each result
            depends on all of them.
        program: code for it and its derivatives, from
            :func:`stopgrad.ops.structural.foreign_programs.written`; empty if there is none.

    Returns:
        The results.
    """

    @staticmethod
    def infer(
        *tensors: TensorType, call: str, results: Sizes, walls: Sizes, reach: Sizes, program: str
    ) -> tuple[TensorType, ...]:
        check_call(call, results, walls, reach, len(tensors))
        if program:
            steps_of(program, len(tensors))
        return tuple([d.tensor_type(d.dtype_of(dtype), tuple(sizes)) for dtype, *sizes in results])

    gradient: d.Gradient = Joint(_pullback)
    samples: d.Samples = ()
    cached = False
    merged = False
    lower: d.Lowering = d.unsupported(
        "it belongs to another framework; what stopgrad.jax.load imports is run by the xla engine "
        "(engine='auto' or 'xla'), and what stopgrad.torch.watch and explain record has no values"
    )

    @staticmethod
    def xla(
        xp: Namespace, *tensors: Array, call: str, results: Sizes, program: str, **_: object
    ) -> Array | Sequence[Array]:
        step = Step(call, reason="it was recorded to be looked at")
        if program:
            step = steps_of(program, len(tensors))[0]
        if not step.code:
            raise EngineError(f"there is nothing that computes {call}: {step.reason}")
        return computed(xp, step, tensors, results)

    @classmethod
    def rule(cls, op: Operation, i: int) -> Rule | NoGradient | Undefined:
        for position, status, reason in op.walls:
            if position == i:
                if status == Status.UNDEFINED:
                    return Undefined(lambda _, reason=reason: reason)  # type: ignore[misc]
                return NoGradient(reason, Status(status))
        return cls.rules[0]

    @classmethod
    def called(cls, op: Operation) -> str:
        return printable(op.call)

    @classmethod
    def trust(cls, op: Operation) -> None:
        for step in steps_of(op.program, len(op.inputs)) if op.program else ():
            trust(step.code)

    @classmethod
    def dependence(cls, op: Operation) -> Sequence[frozenset[int]] | None:
        return [frozenset(inputs) for inputs in op.reach] or None


def foreign(
    inputs: Sequence[Output],
    call: str,
    results: Sequence[Sequence[Any]],
    walls: Sequence[tuple[int, str, str]] = (),
    reach: Sequence[Sequence[int]] = (),
    program: str = "",
    graph: Graph | None = None,
) -> tuple[Output, ...]:
    """Build an operation of another framework, and return its results.

    Args:
        inputs, call, results, walls, reach, program: as for :class:`Foreign`.
        graph: the graph to build in if there are no inputs and there is no current graph.
    """
    kinds = tuple([tuple(result) for result in results])
    reached = tuple([tuple(positions) for positions in reach])
    return d.emit(
        Foreign, tuple(inputs), (call, kinds, tuple(map(tuple, walls)), reached, program), None, graph
    ).outputs


Foreign.function = foreign


class ForeignStop(Gate):
    """A stop of another framework: ``detach``, a ``no_grad`` block, a value converted to a Python number.

    Args:
        call: what it is called there, such as ``"Tensor.detach"``.
        why: the reason that reports give for the stop.
    """

    @staticmethod
    def infer(x: TensorType, *, call: str, why: str) -> TensorType:
        return x

    gradient: d.Gradient = {"x": d.stopped("stopped by another framework")}
    samples: d.Samples = [d.sample(d.floats(3), call="Tensor.detach", why="detach")]
    extremes = ((np.nan,), (-0.0,))

    @classmethod
    def rule(cls, op: Operation, i: int) -> NoGradient:
        return d.stopped(op.why)

    @classmethod
    def called(cls, op: Operation) -> str:
        return printable(op.call)


@d.builds(ForeignStop)
def foreign_stop(x: ArrayLike, call: str, why: str, name: str | None = None) -> Any:
    """A tensor that another framework passes on without its gradient; see :class:`ForeignStop`."""
    return d.apply(ForeignStop, (x,), (call, why), name)
