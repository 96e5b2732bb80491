"""Linear recurrences: running sums with a factor for each step, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.base.coercion import flag
from stopgrad.base.promotion import Promotion
from stopgrad.base.samples import complexes, floats, sample
from stopgrad.base.types import TensorType
from stopgrad.graph.batch_rules import ALONG
from stopgrad.graph.build import apply, coerce
from stopgrad.graph.inferred import about
from stopgrad.graph.op import Axis, Op
from stopgrad.graph.operands import Tensor, type_of
from stopgrad.graph.public import builds
from stopgrad.graph.type_rules import (
    broadcast_c2,
    check_dtype,
    check_same_dtype,
    check_shape,
    is_inexact,
    normal_axis,
)
from stopgrad.ops.elementwise.convert import conj
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.shapes.join import pad
from stopgrad.ops.shapes.reshape import broadcast_to

__all__ = [
    "linear_recurrence",
]


class LinearRecurrence(Op):
    """The sequence y with yᵢ = aᵢ · yᵢ₋₁ + bᵢ along an axis, beginning with y₀ = b₀.

    Discounted sums, exponential averages and running products are of this form. XLA computes it in
    logarithmic depth; the gradients are recurrences that run the other way, and multiply only.

    Args:
        a: the factors; the function broadcasts them with b.
        b: the terms.
        axis: along which.
        reverse: whether it runs from the end, so that yᵢ = aᵢ · yᵢ₊₁ + bᵢ.

    Returns:
        The sequence y, of their shape.

    Constraints:
        (C1) Both hold floating-point or complex numbers of one dtype.
        (C2) Both have one shape; for the function, shapes that broadcast.
        (C3) The axis exists in that shape.

    Examples:
        >>> sg.linear_recurrence(0.5, np.array([8.0, 0.0, 1.0]))
        array([8., 4., 3.])
    """

    @staticmethod
    def infer(a: TensorType, b: TensorType, *, axis: Axis, reverse: bool) -> TensorType:
        check_same_dtype(a, b)
        check_dtype(b, is_inexact, "floating-point or complex numbers")
        normal_axis(axis, b.ndim, "C3")
        check_shape(a, b.shape, "the factors", "C2", of="the terms")
        return b

    promotes = Promotion(is_inexact)
    gradient = {
        "a": lambda g, op: _backwards(g, op) * conj(shifted(op.result, op.axis, op.reverse)),
        "b": lambda g, op: _backwards(g, op),
    }

    batch = ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Any, a: Any, b: Any, axis: int, reverse: bool) -> Any:
        factors, terms = xp.moveaxis(a, axis, 0), xp.moveaxis(b, axis, 0)
        y = xp.empty_like(terms)
        last: Any = None
        for i in reversed(range(len(terms))) if reverse else range(len(terms)):
            last = y[i] = terms[i] if last is None else factors[i] * last + terms[i]
        return xp.moveaxis(y, 0, axis)

    @staticmethod
    def xla(xp: Any, a: Any, b: Any, axis: int, reverse: bool) -> Any:
        if 0 in b.shape:
            return b
        return xp.lax.associative_scan(
            lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b), reverse=reverse, axis=axis
        )[1]

    samples = [
        sample(floats(4, 2), floats(4, 2), axis=0, reverse=False),
        sample(floats("n", 3), floats("n", 3), axis=1, reverse=True),
        sample(floats(2, "n"), floats(2, "n"), axis=1, reverse=False),
        sample(complexes(3), complexes(3), axis=0, reverse=False),
        sample(floats(0), floats(0), axis=0, reverse=False),
        sample(np.array([0.0, 1.5, 0.0, -2.0]), floats(4), axis=0, reverse=True),
    ]


@builds(LinearRecurrence)
def linear_recurrence(
    a: Any, b: Any, axis: int = 0, reverse: bool = False, name: str | None = None
) -> Tensor:
    a, b = coerce(LinearRecurrence, (a, b))
    with about(LinearRecurrence, a, b):
        shape = broadcast_c2(type_of(a).shape, type_of(b).shape)
        position = normal_axis(axis, len(shape), "C3")
    a, b = (x if type_of(x).shape == shape else broadcast_to(x, shape) for x in (a, b))
    return apply(LinearRecurrence, (a, b), (position, flag(reverse)), name)


def _backwards(g: Any, op: Any) -> Tensor:
    """The cotangent of the terms: the recurrence the other way, each factor one step on."""
    return apply(
        LinearRecurrence, (conj(shifted(op.a, op.axis, not op.reverse)), g), (op.axis, not op.reverse)
    )


def shifted(x: Any, axis: int, reverse: bool = False) -> Tensor:
    """*x* one step on along an axis, with 0 at the beginning; in reverse, one step back with 0 at the end."""
    kind = type_of(x)
    padding = [((0, 1) if reverse else (1, 0)) if i == axis else (0, 0) for i in range(kind.ndim)]
    return part_of(pad(x, padding), axis, 1 if reverse else 0, kind.shape[axis])
