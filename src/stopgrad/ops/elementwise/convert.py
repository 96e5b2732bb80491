"""Conversion between dtypes, choice between tensors, and the parts of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    DType,
    DTypeError,
    DTypeLike,
    Namespace,
    NumpyArray,
    Op,
    Output,
    Promotion,
    Tensor,
    TensorType,
)
from stopgrad.ops.structural.sources import identity, zeros_like

__all__ = [
    "cast",
    "complex",
    "conj",
    "imag",
    "real",
]


class Cast(Op):
    """Conversion to another dtype.

    Args:
        x: any dtype.
        dtype: the dtype to convert to.

    Returns:
        The values of x in that dtype. From complex to real numbers, the imaginary part is dropped. From
        floating-point numbers to integers, values are rounded toward zero; those beyond the dtype's limits
        become its least or its greatest value, and NaN becomes 0. From integers to integers, values are taken
        modulo 2ⁿ. A boolean says whether the number is not 0, which holds for NaN too. The gradient is
        converted back; none passes if either dtype is neither floating-point nor complex.

    Examples:
        >>> sg.cast(np.array([1.7, -1.7]), sg.int32)
        array([ 1, -1], dtype=int32)
        >>> sg.cast(np.array([300.0, -1.0, np.nan]), sg.uint8)
        array([255,   0,   0], dtype=uint8)
    """

    @staticmethod
    def infer(x: TensorType, *, dtype: DType) -> TensorType:
        return d.tensor_type(dtype, x.shape)

    gradient: d.Gradient = {"x": lambda g, op: cast(g, op.x.dtype)}

    batch = d.ELEMENTWISE
    unsound = d.Unsound(
        "casts a NaN or an infinity to integers, which hides it",
        lambda dtype, x: ~np.isfinite(x) if dtype.is_integer and x.dtype.kind not in "biu" else None,
    )
    folded = True
    keeps_sign = True
    magnitudes = d.Magnitudes.KEPT

    @staticmethod
    def lower(xp: Namespace, x: Array, dtype: DType) -> Array:
        if dtype.is_integer and x.dtype.kind not in "biu":
            return _saturated(xp, xp.real(x), np.iinfo(dtype.numpy))
        return Cast.xla(xp, x, dtype)

    @staticmethod
    def xla(xp: Namespace, x: Array, dtype: DType) -> Array:
        if dtype.is_bool:
            return x != 0
        if x.dtype.kind == "c" and not dtype.is_complex:
            x = xp.real(x)
        return x.astype(dtype.numpy)

    samples: d.Samples = [
        d.sample(d.floats(3), dtype=d.float32),
        d.sample(d.complexes(3), dtype=d.float64),
        d.sample(d.floats("n"), dtype=d.int32),
        d.sample(d.bools(3), dtype=d.float32),
        d.sample(np.array([300.0, -1.0, math.nan, math.inf, -129.5]), dtype=d.int8),
    ]


def _saturated(xp: Namespace, x: NumpyArray, limits: np.iinfo[Any]) -> Array:
    """Floating-point numbers converted to integers as by XLA; NumPy's are undefined beyond the limits."""
    x = x.astype(np.float64) if x.dtype.itemsize < 4 else x
    low, beyond = float(limits.min), float(limits.max // 2 + 1) * 2.0
    if x.size and x.min() >= low and x.max() < beyond:
        return x.astype(limits.dtype)
    converted = xp.where((x >= low) & (x < beyond), x, 0).astype(limits.dtype)
    converted = xp.where(x < low, limits.dtype.type(limits.min), converted)
    return xp.where(x >= beyond, limits.dtype.type(limits.max), converted)


@d.builds(Cast, by_type=True)
def cast(x: ArrayLike, dtype: DTypeLike, name: str | None = None) -> Tensor:
    target = d.dtype_of(dtype)
    return (
        x
        if hasattr(x, "dtype") and d.type_of(x).dtype is target and name is None
        else d.apply(Cast, (x,), (target,), name)
    )


def wide(x: ArrayLike) -> Tensor:
    """*x*, in float32 if it is float16 or bfloat16.

    For gradient rules that take several steps, so that the cotangent is rounded once, when it arrives.
    """
    dtype = x.type.dtype if type(x) is Output else d.type_of(x).dtype
    return cast(x, d.float32) if dtype.is_floating and dtype.itemsize == 2 else x


class SelectV2(Op):
    """Elementwise choice, with broadcasting.

    Args:
        condition: booleans.
        x: the values where the condition holds.
        y: the values elsewhere.

    Returns:
        The values of x where the condition holds, and those of y elsewhere. The operand that is not chosen
        gets a gradient of exactly zero. Further back, where a derivative is infinite, that zero becomes NaN,
        so guard the argument there as well.

    Constraints:
        (C1) The condition holds booleans, and x and y have one dtype.
        (C2) The three shapes broadcast.

    Examples:
        >>> sg.where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
        array([1., 0.])
    """

    @staticmethod
    def infer(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        dtype = d.check_same_dtype(x, y)
        if not condition.dtype.is_bool:
            raise DTypeError(
                f"(C1) the condition must be bool, not {condition!r}; "
                "compare it, as in x != 0, or convert with sg.cast"
            )
        return d.tensor_type(dtype, d.broadcast_c2(condition.shape, x.shape, y.shape))

    promotes = Promotion(d.is_any, ("x", "y"))
    gradient: d.Gradient = {
        "condition": d.not_differentiable("a condition chooses; it has no derivative"),
        "x": lambda g, op: where(op.condition, g, 0),
        "y": lambda g, op: where(op.condition, 0, g),
    }
    batch = d.ELEMENTWISE
    moves = ("x", "y")
    lower: d.Lowering = lambda xp, condition, x, y: xp.where(condition, x, y)
    samples: d.Samples = [
        d.sample(d.bools(3), d.floats(2, 3), d.floats()),
        d.sample(d.bools("n"), d.floats("n"), d.floats("n")),
    ]


@d.builds(SelectV2, alike=True)
def where(
    condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, name: str | None = None
) -> Tensor:
    if x is None or y is None:
        raise ArgumentError(
            "SelectV2: needs both x and y; the positions where a condition holds would have a shape that "
            "depends on the data: choose with sg.where(condition, x, y), or weigh with sg.cast(condition, "
            "x.dtype)"
        )
    return d.apply(SelectV2, (condition, x, y), (), name)


class Conj(Op):
    """Elementwise complex conjugate.

    Args:
        x: any dtype; the function returns an operand that is not complex unchanged.

    Returns:
        The conjugate.

    Constraints:
        (C1) The x of the operation itself is floating-point or complex.

    Examples:
        >>> sg.conj(np.array([1 + 2j]))
        array([1.-2.j])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return d.same(d.is_inexact)(x)

    gradient: d.Gradient = {"x": lambda g, op: conj(g)}
    batch = d.ELEMENTWISE
    magnitudes = d.Magnitudes.KEPT
    not_holomorphic = "it reverses the imaginary part"
    lower: d.Lowering = lambda xp, x: xp.conj(x)
    samples: d.Samples = [d.sample(d.complexes(3)), d.sample(d.complexes("n", 2))]


def conj(x: ArrayLike, name: str | None = None) -> Tensor:
    # Gradient rules call this on every operand, most of which are real, so it must be cheap there.
    if type(x) is Output and name is None and not x.type.dtype.is_complex:
        return x
    return _conj(x, name)


@d.guarded("Conj")
def _conj(x: ArrayLike, name: str | None) -> Tensor:
    if d.type_of(x).dtype.is_complex:
        return d.apply(Conj, (x,), (), name)
    d.check_name(name)
    return x if hasattr(x, "dtype") else identity(x)


d.publish(Conj, conj)


class Real(Op):
    """Elementwise real part.

    Args:
        x (``input``): floating-point or complex; integers and booleans are returned unchanged.

    Returns:
        The real part Re x.

    Constraints:
        (C1) x is floating-point or complex.

    Examples:
        >>> sg.real(np.array([1 + 2j]))
        array([1.])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return d.tensor_type(d.same(d.is_inexact)(x).dtype.real, x.shape)

    gradient: d.Gradient = {"x": lambda g, op: cast(g, op.x.dtype)}
    batch = d.ELEMENTWISE
    magnitudes = d.Magnitudes.KEPT
    not_holomorphic = "it drops the imaginary part"
    lower: d.Lowering = lambda xp, x: xp.real(x)
    samples: d.Samples = [d.sample(d.complexes(3)), d.sample(d.floats(3))]


@d.builds(Real)
def real(input: ArrayLike, name: str | None = None) -> Tensor:
    return (
        d.apply(Real, (input,), (), name) if d.is_inexact(d.type_of(input).dtype) else identity(input, name)
    )


class Imag(Op):
    """Elementwise imaginary part.

    Args:
        x (``input``): floating-point or complex; for integers and booleans the result is 0, in their dtype.

    Returns:
        The imaginary part Im x.

    Constraints:
        (C1) x is floating-point or complex.

    Examples:
        >>> sg.imag(np.array([1 + 2j]))
        array([2.])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return d.tensor_type(d.same(d.is_inexact)(x).dtype.real, x.shape)

    gradient: d.Gradient = {"x": lambda g, op: complex(g * 0, g) if op.x.dtype.is_complex else g * 0}
    batch = d.ELEMENTWISE
    magnitudes = d.Magnitudes.KEPT
    not_holomorphic = "it drops the real part"
    lower: d.Lowering = lambda xp, x: xp.imag(x)
    samples: d.Samples = [d.sample(d.complexes(3)), d.sample(d.floats(3))]


@d.builds(Imag)
def imag(input: ArrayLike, name: str | None = None) -> Tensor:
    if d.is_inexact(d.type_of(input).dtype):
        return d.apply(Imag, (input,), (), name)
    return zeros_like(input, name=name)


class Complex(Op):
    """Complex numbers from real and imaginary parts.

    Args:
        real: the real part.
        imag: the imaginary part.

    Returns:
        The numbers real + i · imag, complex64 or complex128.

    Constraints:
        (C1) real and imag are both float32 or both float64.
        (C2) The shapes of real and imag broadcast.

    Examples:
        >>> sg.complex(np.array([1.0]), np.array([2.0]))
        array([1.+2.j])
    """

    @staticmethod
    def infer(real: TensorType, imag: TensorType) -> TensorType:
        both = d.broadcast(d.is_floating)(real, imag)
        if both.dtype not in (d.float32, d.float64):
            raise DTypeError(f"(C1) takes float32 or float64, not {both.dtype}; convert with sg.cast")
        return d.tensor_type(d.complex64 if both.dtype is d.float32 else d.complex128, both.shape)

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"real": lambda g, op: real(g), "imag": lambda g, op: imag(g)}
    batch = d.ELEMENTWISE

    @staticmethod
    def lower(xp: Namespace, real: Array, imag: Array) -> Array:
        # Not real + i · imag, where i · ∞ is NaN + i∞.
        parts = xp.stack(xp.broadcast_arrays(real, imag), -1)
        return parts.view(d.complex64.numpy if parts.dtype.itemsize == 4 else d.complex128.numpy)[..., 0]

    xla: d.Lowering = lambda xp, real, imag: xp.lax.complex(*xp.broadcast_arrays(real, imag))
    samples: d.Samples = [d.sample(d.floats(3), d.floats(2, 3))]


@d.builds(Complex)
def complex(real: ArrayLike, imag: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Complex, (real, imag), (), name)
