"""Elementwise functions made of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, DTypeError, DTypeLike, Promotion, Tensor
from stopgrad.ops.elementwise.arithmetic import add, maximum, minimum, multiply
from stopgrad.ops.elementwise.compare import (
    equal,
    greater,
    greater_equal,
    is_finite,
    less,
    logical_and,
    logical_not,
)
from stopgrad.ops.elementwise.convert import cast, imag, real, where
from stopgrad.ops.elementwise.powers import log1p, reciprocal
from stopgrad.ops.elementwise.trigonometric import atan2
from stopgrad.ops.reductions.reduce import reduce_all, reduce_mean
from stopgrad.ops.shapes.reshape import reshape
from stopgrad.ops.structural.sources import ones_like, zeros_like

__all__ = [
    "angle",
    "is_non_decreasing",
    "is_strictly_increasing",
    "polyval",
    "reciprocal_no_nan",
    "saturate_cast",
    "scalar_mul",
    "xlog1py",
    "zero_fraction",
]


_LIMITS: Any = ml_dtypes.finfo
"""NumPy's does not know bfloat16."""


@d.guarded("angle")
def angle(input: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise angle of complex numbers, in radians; for real numbers, 0 or π.

    Args:
        input: numbers.
        name: of the last operation; by default none.

    Returns:
        The angle in [-π, π], real.

    Examples:
        >>> sg.angle(np.array([1j, -1.0 + 0j]))
        array([1.57079633, 3.14159265])
    """
    (x,) = d.together(input, promotes=Promotion(d.is_inexact))
    if d.type_of(x).dtype.is_complex:
        return atan2(imag(x), real(x), name)
    return where(less(x, 0), multiply(ones_like(x), math.pi), zeros_like(x), name)


@d.guarded("reciprocal_no_nan")
def reciprocal_no_nan(x: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise 1 / x, and 0 where x is 0.

    Args:
        x: floating-point or complex.
        name: of the last operation; by default none.

    Returns:
        The reciprocal; 0 where x is 0, with a gradient of 0 there.

    Examples:
        >>> sg.reciprocal_no_nan(np.array([4.0, 0.0]))
        array([0.25, 0.  ])
    """
    zero = equal(x, 0)
    return where(zero, 0, reciprocal(where(zero, 1, x)), name)


@d.guarded("scalar_mul")
def scalar_mul(scalar: ArrayLike, x: ArrayLike, name: str | None = None) -> Tensor:
    """A tensor times a scalar.

    Args:
        scalar: a number, or a tensor without axes.
        x: numbers.
        name: of the operation.

    Returns:
        The product.

    Examples:
        >>> sg.scalar_mul(2.0, np.array([1.0, 2.0]))
        array([2., 4.])
    """
    if d.type_of(scalar).ndim:
        raise ArgumentError(f"takes a scalar, not {d.type_of(scalar)!r}; sg.multiply takes two tensors")
    return multiply(scalar, x, name)


@d.guarded("polyval")
def polyval(coeffs: Sequence[ArrayLike], x: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise value of a polynomial, by Horner's rule.

    Args:
        coeffs: a list of the coefficients, starting with the highest power; they broadcast with x.
        x: numbers.
        name: of the last operation; by default none.

    Returns:
        The value coeffs[0] · xⁿ + ... + coeffs[n], in x's shape; 0 if the list is empty.

    Examples:
        >>> sg.polyval([1.0, 0.0, -2.0], np.array([2.0, 3.0]))
        array([2., 7.])
    """
    if not isinstance(coeffs, (list, tuple)):
        raise ArgumentError("takes a list of coefficients, that of the highest power first")
    value = zeros_like(x)
    for i, c in enumerate(coeffs):
        value = add(multiply(value, x), c, name if i == len(coeffs) - 1 else None)
    return value


@d.guarded("is_non_decreasing")
def is_non_decreasing(x: ArrayLike, name: str | None = None) -> Tensor:
    """Whether no element is less than the one before it, in row-major order.

    Args:
        x: real numbers.
        name: of the last operation; by default none.

    Returns:
        A scalar boolean; True for fewer than two elements.

    Examples:
        >>> sg.is_non_decreasing(np.array([1.0, 1.0, 2.0]))
        array(True)
    """
    return _ordered(greater_equal, x, name)


@d.guarded("is_strictly_increasing")
def is_strictly_increasing(x: ArrayLike, name: str | None = None) -> Tensor:
    """Whether each element is greater than the one before it, in row-major order.

    Args:
        x: real numbers.
        name: of the last operation; by default none.

    Returns:
        A scalar boolean; True for fewer than two elements.

    Examples:
        >>> sg.is_strictly_increasing(np.array([1.0, 1.0, 2.0]))
        array(False)
    """
    return _ordered(greater, x, name)


def _ordered(compare: Callable[..., Tensor], x: ArrayLike, name: str | None) -> Tensor:
    row = reshape(x, -1)
    return reduce_all(compare(row[1:], row[:-1]), name=name)


@d.guarded("xlog1py")
def xlog1py(x: ArrayLike, y: ArrayLike, name: str | None = None) -> Tensor:
    """Elementwise x · log(1 + y), precise for small y, and 0 where x is 0; with broadcasting.

    Args:
        x: floating-point or complex.
        y: floating-point or complex, of a shape that broadcasts with x's.
        name: of the last operation; by default none.

    Returns:
        The product; where x is 0, 0, with a gradient of 0 to y, and to x of log(1 + y) where that is finite.

    Examples:
        >>> sg.xlog1py(np.array([0.0, 2.0]), np.array([-1.0, 1.0]))
        array([0.        , 1.38629436])
    """
    x, y = d.together(x, y, promotes=Promotion(d.is_inexact))
    nothing = logical_and(equal(x, 0), logical_not(is_finite(log1p(y))))
    return where(nothing, 0, multiply(x, log1p(where(nothing, 0, y))), name)


@d.guarded("zero_fraction")
def zero_fraction(value: ArrayLike, name: str | None = None) -> Tensor:
    """The fraction of the elements that are 0.

    Args:
        value: numbers.
        name: of the last operation; by default none.

    Returns:
        A scalar between 0 and 1, float32; NaN if there are no elements.

    Examples:
        >>> sg.zero_fraction(np.array([0.0, 2.0, 0.0, 1.0]))
        array(0.5, dtype=float32)
    """
    return reduce_mean(cast(equal(value, 0), d.float32), name=name)


@d.guarded("saturate_cast")
def saturate_cast(value: ArrayLike, dtype: DTypeLike, name: str | None = None) -> Tensor:
    """Conversion to another dtype; numbers beyond its limits become its least or greatest number.

    Args:
        value: real numbers.
        dtype: the dtype to convert to.
        name: of the last operation; by default none.

    Returns:
        The values in that dtype.

    Examples:
        >>> sg.saturate_cast(np.array([300, -5, 7]), sg.uint8)
        array([255,   0,   7], dtype=uint8)
    """
    target, source = d.dtype_of(dtype), d.type_of(value).dtype
    if not (target.is_integer or target.is_floating):
        raise DTypeError(f"takes a dtype of real numbers, not {target}")
    d.check_dtype(d.type_of(value), d.is_real, "real numbers")
    if source.is_integer and target.is_integer:
        low, high = (np.iinfo(d.numpy) for d in (source, target))
        least, greatest = max(low.min, high.min), min(low.max, high.max)
        value = minimum(maximum(value, np.asarray(least, source.numpy)), np.asarray(greatest, source.numpy))
    elif target.is_floating and target.itemsize < source.itemsize:
        value, source = (cast(value, d.float32), d.float32) if source.is_integer else (value, source)
        limit = np.asarray(float(_LIMITS(target.numpy).max), source.numpy)
        value = minimum(maximum(value, -limit), limit)
    return cast(value, target, name)
