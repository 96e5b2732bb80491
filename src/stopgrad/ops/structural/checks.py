"""A condition that must hold when the graph runs, such as that a loop came to its end."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    DTypeError,
    EngineError,
    Flags,
    Kind,
    Namespace,
    Op,
    Operation,
    Output,
    Size,
    Tensor,
    TensorType,
)


def _of_examples(op: Operation, operands: Sequence[Output], batched: Flags, size: Size) -> Sequence[Output]:
    """Without the check: in a batch, what is computed for one example may be thrown away."""
    return operands


class Ensure(Op):
    """The condition; a run in which it does not hold ends with an error.

    So it is where the engine can raise: numpy and onnxruntime, and ONNX Runtime with a file. XLA, and a
    batch of examples, hand the condition on, and whoever asks must make it visible in the result. Nothing is
    checked unless the result is used.

    Args:
        condition: a boolean.
        message: what the error says.

    Returns:
        The condition.

    Constraints:
        (C1) The condition is a scalar boolean.
    """

    @staticmethod
    def infer(condition: TensorType, *, message: str) -> TensorType:
        if condition.dtype is not d.bool_ or condition.ndim:
            raise DTypeError(f"(C1) the condition must be a scalar boolean, not {condition}")
        return condition

    kinds = {"message": Kind.WORD}
    gradient: d.Gradient = d.not_differentiable("booleans have no derivative")
    samples: d.Samples = ()
    batch = _of_examples

    @staticmethod
    def lower(xp: Namespace, condition: Array, message: str) -> Array:
        if not condition:
            raise EngineError(message)
        return condition

    @staticmethod
    def xla(xp: Namespace, condition: Array, message: str) -> Array:
        return condition

    @staticmethod
    def onnx(xp: Namespace, condition: Array, message: str) -> Array:
        """An element that there is not: of what is wrong the runtime's error has only the node's name."""
        number = xp.where(condition, np.int64(0), np.int64(1))
        with xp.nodes.at("_".join(re.findall(r"\w+", message))):
            element = xp.node("Gather", [np.array([1]), number], np.int64, (), axis=0)
        return xp.cast(element, np.bool_)  # A node that has the operation's name instead of that.


def ensured(condition: ArrayLike, message: str) -> Tensor:
    """A condition, and an error with this message where it does not hold: see :class:`Ensure`."""
    return d.apply(Ensure, (condition,), (message,))
