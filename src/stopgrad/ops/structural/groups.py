"""Operations that run together."""

from __future__ import annotations

from typing import Any

from stopgrad.base.samples import bools, floats, sample
from stopgrad.base.structure import flatten
from stopgrad.base.types import TensorType, bool_, tensor_type
from stopgrad.graph.batch_rules import Partly, again
from stopgrad.graph.build import apply
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Op, not_differentiable
from stopgrad.graph.operands import Tensor
from stopgrad.graph.public import builds

__all__ = ["group"]


class NoOp(Op):
    """Operations that run together: it has no value of its own.

    Args:
        parts: what is computed.

    Returns:
        True, when all of them are.

    Examples:
        >>> sg.ops.NoOp.function(np.zeros(2), np.ones(3))
        array(True)
    """

    @staticmethod
    def infer(*parts: TensorType) -> TensorType:
        return tensor_type(bool_, ())

    gradient = not_differentiable("it takes no value from what runs")
    lower = lambda xp, *parts: xp.asarray(True)
    batch = lambda op, operands, batched, size: Partly(again(op, operands), (False,))
    samples = [sample(floats(2, 3), bools(2)), sample()]


@builds(NoOp)
def group(*inputs: Any, name: str | None = None) -> Tensor:
    """Operations to run together, as one thing to fetch.

    Args:
        inputs: outputs and operations, also in nested structures; most often assignments.

    Returns:
        A scalar that is True once all of them have run. Fetch it with a session.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     a, b = sg.parameter(1.0), sg.parameter(2.0)
        ...     step = sg.group(sg.assign(a, a + b), sg.assign(b, b * 2.0))
        >>> with sg.Session(graph) as session:
        ...     _ = session.run(step)
        ...     session.value(a), session.value(b)
        (array(3., dtype=float32), array(4., dtype=float32))
    """
    found: list[Any] = []
    for x in flatten(inputs)[0]:
        found += x.outputs if isinstance(x, Operation) else [x]
    return apply(NoOp, tuple(found), (), name)
