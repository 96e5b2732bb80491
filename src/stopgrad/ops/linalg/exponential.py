"""The exponential of a matrix, and its derivative."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, SupportsInt, TypeVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import Array, ArrayLike, Namespace, Op, Output, Tensor, TensorType
from stopgrad.ops.elementwise.convert import wide
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.matrices import adjoint, check_square
from stopgrad.ops.linalg.solvers import BOTH, INEXACT, where_possible
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "expm",
]


class MatrixExponential(Op):
    """The exponential of square matrices: a Padé approximant of the scaled matrix, squared repeatedly.

    Args:
        input: [..., m, m].

    Returns:
        Σ inputᵏ / k!, [..., m, m]; NaN for a matrix that holds a NaN or an infinity. The gradient is that of
        the exact function, by its Fréchet derivative.

    Constraints:
        (C1) input holds floating-point or complex numbers.
        (C2) input holds square matrices.

    References:
        N. Higham 2005, "The scaling and squaring method for the matrix exponential revisited".

    Examples:
        >>> np.round(sg.expm(np.array([[0.0, np.pi], [-np.pi, 0.0]])), 12) + 0.0
        array([[-1.,  0.],
               [ 0., -1.]])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_square(x, "C2", "input")
        return x

    promotes = BOTH
    gradient: d.Gradient = {"x": lambda g, op: _derivative(adjoint(wide(op.x)), wide(g))}
    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        return _exponential(xp, x, None, _loop)[0]

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        return _exponential(xp, x, None, xp.lax.fori_loop)[0]

    samples: d.Samples = [
        d.sample(d.floats(3, 3)),
        d.sample(d.floats("n", 2, 2)),
        d.sample(d.complexes(2, 2)),
        d.sample(np.array([[20.0, 1.0], [-3.0, 1.0]])),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (([[0.0, 0.0], [0.0, 0.0]],), ([[np.nan, 0.0], [0.0, 1.0]],), ([[np.inf, 0.0], [0.0, 1.0]],))


@d.builds(MatrixExponential)
def expm(input: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(MatrixExponential, (input,), (), name)


class MatrixExponentialGrad(Op):
    """The derivative of the matrix exponential in a direction, by the derivative of each step.

    Args:
        x: [..., m, m].
        direction: of x's shape.

    Returns:
        The Fréchet derivative at x in that direction, [..., m, m]; NaN if x holds a NaN or an infinity.

    Constraints:
        (C1) Both hold floating-point or complex numbers of one dtype.
        (C2) x holds square matrices.
        (C3) direction has x's shape.

    References:
        A. Al-Mohy and N. Higham 2009, "Computing the Fréchet derivative of the matrix exponential, with an
        application to condition number estimation".
    """

    @staticmethod
    def infer(x: TensorType, direction: TensorType) -> TensorType:
        d.check_same_dtype(x, direction)
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_square(x, "C2")
        d.check_shape(direction, x.shape, "direction", "C3", of="x")
        return x

    gradient: d.Gradient = {
        "x": lambda g, op: _to_point(wide(g), wide(op.x), wide(op.direction)),
        "direction": lambda g, op: _derivative(adjoint(wide(op.x)), wide(g)),
    }
    batch = d.ALONG
    rounds_once = True

    @staticmethod
    def lower(xp: Namespace, x: Array, direction: Array) -> Array:
        return _exponential(xp, x, direction, _loop)[1]

    @staticmethod
    def xla(xp: Namespace, x: Array, direction: Array) -> Array:
        return _exponential(xp, x, direction, xp.lax.fori_loop)[1]

    samples: d.Samples = [
        d.sample(d.floats(3, 3), d.floats(3, 3)),
        d.sample(d.floats("n", 2, 2), d.floats("n", 2, 2)),
        d.sample(d.complexes(2, 2), d.complexes(2, 2)),
        d.sample(np.array([[20.0, 1.0], [-3.0, 1.0]]), d.floats(2, 2)),
        d.sample(d.floats(0, 0), d.floats(0, 0)),
    ]


@d.builds(MatrixExponentialGrad)
def expm_grad(x: ArrayLike, direction: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(MatrixExponentialGrad, (x, direction), (), name)


def _derivative(x: ArrayLike, direction: ArrayLike) -> Tensor:
    return d.apply(MatrixExponentialGrad, (x, direction))


def _to_point(g: Output, x: Output, direction: Output) -> Tensor:
    """The cotangent of x. The derivative is a block of exp [[x, direction], [0, x]], whose own gives this."""
    axis, size = x.ndim - 1, x.shape[-1]

    def square(corner: Output, above: Output, below: Output) -> Tensor:
        zero = zeros_like(corner)
        return concat([concat([corner, above], axis), concat([zero, below], axis)], axis - 1)

    nothing = zeros_like(g)
    whole = _derivative(adjoint(square(x, direction, x)), square(nothing, g, nothing))
    first = part_of(part_of(whole, axis - 1, 0, size), axis, 0, size)
    return first + part_of(part_of(whole, axis - 1, size, size), axis, size, size)


# ---------------------------------------------------------------------------------------- computed

# By the size of the real dtype: the degree of the approximant, and the largest 1-norm for which it is as
# precise as the dtype. From Higham's table 2.3 for float64, and SciPy's for float32.
_T = TypeVar("_T")
_REACH = {8: (13, 5.371920351148152), 4: (7, 3.925724783138660)}


def _loop(low: int, high: SupportsInt, step: Callable[[int, _T], _T], value: _T) -> _T:
    """JAX's ``fori_loop``, in Python."""
    for i in range(low, int(high)):
        value = step(i, value)
    return value


def _exponential(
    xp: Namespace, x: Array, direction: Array | None, loop: Callable[..., Any]
) -> tuple[Any, Any]:
    """The exponential, and its derivative in a direction, or None without a direction."""
    bad = ~xp.all(xp.isfinite(x), axis=(-2, -1), keepdims=True)
    x = xp.where(bad, xp.zeros((), x.dtype), x)
    size = xp.max(xp.sum(xp.abs(x), axis=-2, keepdims=True), axis=-1, keepdims=True, initial=0)
    degree, reach = _REACH[size.dtype.itemsize]
    exact = xp.log2(xp.maximum(size / xp.asarray(reach, size.dtype), xp.ones((), size.dtype)))
    times = xp.ceil(exact)
    scale = (xp.asarray(2, size.dtype) ** -times).astype(size.dtype)
    most = xp.max(times, initial=0).astype(np.int32)
    solve = (lambda a, b: where_possible(xp.linalg.solve, a, b)) if loop is _loop else xp.linalg.solve
    unknown = xp.asarray(np.nan, x.dtype)
    if direction is None:
        (upper, lower), _ = _approximant(xp, x * scale, None, degree)

        def squared(i: int, y: Array) -> Array:
            return xp.where(times > i, xp.matmul(y, y), y)

        return xp.where(bad, unknown, loop(0, most, squared, solve(lower, upper))), None
    (upper, lower), (d_upper, d_lower) = _approximant(xp, x * scale, direction * scale, degree)
    y = solve(lower, upper)
    dy = solve(lower, d_upper - xp.matmul(d_lower, y))

    def both_squared(i: int, both: tuple[Array, Array]) -> tuple[Any, Any]:
        y, dy = both
        further = times > i
        return (
            xp.where(further, xp.matmul(y, y), y),
            xp.where(further, xp.matmul(y, dy) + xp.matmul(dy, y), dy),
        )

    y, dy = loop(0, most, both_squared, (y, dy))
    return xp.where(bad, unknown, y), xp.where(bad, unknown, dy)


def _approximant(xp: Namespace, x: Array, dx: Array | None, degree: int) -> tuple[Any, Any]:
    """The numerator and denominator of the diagonal Padé approximant, and their derivatives."""
    factors = [
        math.factorial(2 * degree - k) // (math.factorial(degree - k) * math.factorial(k))
        for k in range(degree + 1)
    ]
    ratios = [xp.asarray(f / factors[degree], x.dtype) for f in factors]
    unit = xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    powers = [unit, xp.matmul(x, x)]
    while len(powers) <= degree // 2:
        powers.append(xp.matmul(powers[-1], powers[1]))
    even = sum(p * f for p, f in zip(powers, ratios[::2], strict=True))
    inner = sum(p * f for p, f in zip(powers, ratios[1::2], strict=True))
    odd = xp.matmul(x, inner)
    if dx is None:
        return (even + odd, even - odd), None
    changes = [xp.matmul(x, dx) + xp.matmul(dx, x)]
    while len(changes) < degree // 2:
        changes.append(xp.matmul(changes[-1], powers[1]) + xp.matmul(powers[len(changes)], changes[0]))
    d_even = sum(p * f for p, f in zip(changes, ratios[2::2], strict=True))
    d_inner = sum(p * f for p, f in zip(changes, ratios[3::2], strict=True))
    d_odd = xp.matmul(dx, inner) + xp.matmul(x, d_inner)
    return (even + odd, even - odd), (d_even + d_odd, d_even - d_odd)
