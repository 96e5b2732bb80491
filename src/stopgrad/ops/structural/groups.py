"""Operations that run together."""

from __future__ import annotations

from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Op, Operation, Partly, Tensor, TensorType

__all__ = ["group"]


class NoOp(Op):
    """Operations that run together, without a value of their own.

    Args:
        parts: the tensors to compute.

    Returns:
        True, once all of them are computed.

    Examples:
        >>> sg.ops.NoOp.function(np.zeros(2), np.ones(3))
        array(True)
    """

    @staticmethod
    def infer(*parts: TensorType) -> TensorType:
        return d.tensor_type(d.bool_, ())

    gradient: d.Gradient = d.not_differentiable("it takes no value from what runs")
    lower: d.Lowering = lambda xp, *parts: xp.asarray(True)
    batch = lambda op, operands, batched, size: Partly(d.again(op, operands), (False,))
    samples: d.Samples = [d.sample(d.floats(2, 3), d.bools(2)), d.sample()]


@d.builds(NoOp)
def group(*inputs: ArrayLike, name: str | None = None) -> Tensor:
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
    outputs: list[Any] = []
    for x in d.flatten(inputs)[0]:
        outputs += x.outputs if isinstance(x, Operation) else [x]
    return d.apply(NoOp, tuple(outputs), (), name)
