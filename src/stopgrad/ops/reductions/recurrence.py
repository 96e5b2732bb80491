"""Linear recurrences: running sums with a factor for each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Axis,
    Namespace,
    Op,
    Operation,
    Output,
    Promotion,
    Tensor,
    TensorType,
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

    Discounted sums, exponential averages and running products have this form. XLA computes it in
    logarithmic depth. The gradients are recurrences in the other direction, and never divide.

    Args:
        a: the factors; the function broadcasts them with b.
        b: the terms.
        axis: the axis along which to run.
        reverse: whether to run from the end, so that yᵢ = aᵢ · yᵢ₊₁ + bᵢ.

    Returns:
        The sequence y, in the shape of a and b.

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
        d.check_same_dtype(a, b)
        d.check_dtype(b, d.is_inexact, "floating-point or complex numbers")
        d.normal_axis(axis, b.ndim, "C3")
        d.check_shape(a, b.shape, "the factors", "C2", of="the terms")
        return b

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {
        "a": lambda g, op: _backwards(g, op) * conj(shifted(op.result, op.axis, op.reverse)),
        "b": lambda g, op: _backwards(g, op),
    }

    batch = d.ALONG
    rounds_once = True
    iterates = True

    @staticmethod
    def lower(xp: Namespace, a: Array, b: Array, axis: int, reverse: bool) -> Array:
        factors, terms = xp.moveaxis(a, axis, 0), xp.moveaxis(b, axis, 0)
        y = xp.empty_like(terms)
        last: Any = None
        for i in reversed(range(len(terms))) if reverse else range(len(terms)):
            last = y[i] = terms[i] if last is None else factors[i] * last + terms[i]
        return xp.moveaxis(y, 0, axis)

    @staticmethod
    def xla(xp: Namespace, a: Array, b: Array, axis: int, reverse: bool) -> Array:
        if 0 in b.shape:
            return b
        return xp.lax.associative_scan(
            lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b), reverse=reverse, axis=axis
        )[1]

    samples: d.Samples = [
        d.sample(d.floats(4, 2), d.floats(4, 2), axis=0, reverse=False),
        d.sample(d.floats("n", 3), d.floats("n", 3), axis=1, reverse=True),
        d.sample(d.floats(2, "n"), d.floats(2, "n"), axis=1, reverse=False),
        d.sample(d.complexes(3), d.complexes(3), axis=0, reverse=False),
        d.sample(d.floats(0), d.floats(0), axis=0, reverse=False),
        d.sample(np.array([0.0, 1.5, 0.0, -2.0]), d.floats(4), axis=0, reverse=True),
    ]


@d.builds(LinearRecurrence)
def linear_recurrence(
    a: ArrayLike, b: ArrayLike, axis: int = 0, reverse: bool = False, name: str | None = None
) -> Tensor:
    a, b = d.coerce(LinearRecurrence, (a, b))
    with d.about(LinearRecurrence, a, b):
        shape = d.broadcast_c2(d.type_of(a).shape, d.type_of(b).shape)
        position = d.normal_axis(axis, len(shape), "C3")
    a, b = (x if d.type_of(x).shape == shape else broadcast_to(x, shape) for x in (a, b))
    return d.apply(LinearRecurrence, (a, b), (position, d.flag(reverse)), name)


def _backwards(g: Output, op: Operation) -> Tensor:
    """The cotangent of the terms: the recurrence in the other direction, with factors shifted by one step."""
    return d.apply(
        LinearRecurrence, (conj(shifted(op.a, op.axis, not op.reverse)), g), (op.axis, not op.reverse)
    )


def shifted(x: ArrayLike, axis: int, reverse: bool = False) -> Tensor:
    """*x* shifted forward by one along an axis, with 0 at the start; in reverse, back, with 0 at the end."""
    kind = d.type_of(x)
    padding = [((0, 1) if reverse else (1, 0)) if i == axis else (0, 0) for i in range(kind.ndim)]
    return part_of(pad(x, padding), axis, 1 if reverse else 0, kind.shape[axis])
