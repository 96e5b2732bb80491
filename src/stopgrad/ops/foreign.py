"""Operations of other frameworks that are none of ours, kept with what is known of them.

They stand in graphs that were recorded or imported, so that whoever asks where gradients flow sees them like
all others. What a framework can run by itself it brings along as a program.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.build import emit
from stopgrad.errors import EngineError, GradientError, ShapeError
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.op import Joint, NoGradient, Op, Rule, Sizes, Status, Undefined, stopped, unsupported
from stopgrad.ops.gates import Gate
from stopgrad.samples import floats, sample
from stopgrad.types import TensorType, dtype_of, tensor_type


def _pull(
    gs: Sequence[Output | None], op: Operation, live: Sequence[int], acting: Any
) -> Sequence[Output | None]:
    raise GradientError(
        f"{op.call}: the gradient of {describe(op)} cannot be generated: it was recorded to be looked at, "
        "without what computes it; import the program itself with stopgrad.torch.load or stopgrad.jax.load"
    )


class Foreign(Op):
    """An operation of another framework's.

    Args:
        tensors: its operands.
        call: what it is called there, such as ``"torch.nn.functional.linear"``.
        results: for each result the name of its dtype, and its sizes: ``(("float32", 3, 4), ("int64", 3))``.
        walls: what keeps gradients from operands, as ``((position, status, reason), ...)``. The status is
            ``"stopped"``, ``"not differentiable"``, ``"undefined"``, or ``"disconnected"`` where no value is
            taken from the operand.
        reach: for each result the positions of the operands that it depends on; ``()`` where each result
            depends on all of them.
        program: what computes it, as the framework writes it, in base64; empty where nobody can.

    Returns:
        The results.
    """

    @staticmethod
    def infer(
        *tensors: TensorType, call: str, results: Sizes, walls: Sizes, reach: Sizes, program: str
    ) -> tuple[TensorType, ...]:
        if any(not 0 <= position < len(tensors) for position, *_ in walls):
            raise ShapeError(f"the walls of {call} name operands that it does not have")
        return tuple([tensor_type(dtype_of(dtype), tuple(sizes)) for dtype, *sizes in results])

    gradient = Joint(_pull)
    samples = ()
    cached = False
    merged = False
    lower = unsupported(
        "it belongs to another framework; stopgrad.torch.watch and explain record operations without values"
    )

    @staticmethod
    def xla(xp: Any, *tensors: Any, call: str, program: str, **_: Any) -> Any:
        raise EngineError(f"{call} was recorded to be looked at, without what computes it")

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
        return str(op.call)

    @classmethod
    def dependence(cls, op: Operation) -> Sequence[frozenset[int]] | None:
        return [frozenset(inputs) for inputs in op.reach] or None


def foreign(
    inputs: Sequence[Output],
    call: str,
    results: Sequence[Sequence[Any]],
    walls: Sequence[tuple[int, str, str]] = (),
    reach: Sequence[Sequence[int]] = (),
    program: bytes = b"",
    graph: Graph | None = None,
) -> tuple[Output, ...]:
    """The results of a new operation of another framework's; of the graph that is being built, or a given.

    Args:
        inputs, call, results, walls, reach, program: as :class:`Foreign` takes them.
        graph: the graph, where there are no inputs and none is being built.
    """
    held = base64.b64encode(program).decode()
    kinds = tuple([tuple(result) for result in results])
    reached = tuple([tuple(positions) for positions in reach])
    return emit(Foreign, tuple(inputs), (call, kinds, tuple(walls), reached, held), None, graph).outputs


Foreign.function = foreign


class ForeignStop(Gate):
    """A stop of another framework's: ``detach``, a ``no_grad`` block, a value that left for Python.

    Args:
        x: any tensor.
        call: what it is called there, such as ``"Tensor.detach"``.
        why: what reports say that stops the gradient.

    Returns:
        The tensor.
    """

    @staticmethod
    def infer(x: TensorType, *, call: str, why: str) -> TensorType:
        return x

    gradient = {"x": stopped("stopped by another framework")}
    samples = [sample(floats(3), call="Tensor.detach", why="detach")]
    extremes = ((np.nan,), (-0.0,))

    @classmethod
    def rule(cls, op: Operation, i: int) -> NoGradient:
        return stopped(op.why)

    @classmethod
    def called(cls, op: Operation) -> str:
        return str(op.call)


def foreign_stop(x: Output, call: str, why: str) -> Output:
    """What another framework hands on of a tensor without its gradient; see :class:`ForeignStop`."""
    return emit(ForeignStop, (x,), (call, why)).outputs[0]


ForeignStop.function = foreign_stop
