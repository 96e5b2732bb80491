"""Elementwise functions, and tests of elements. Most are the library's own, under the standard's names."""

from __future__ import annotations

from collections.abc import Callable

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Tensor
from stopgrad.ops.elementwise.arithmetic import (
    abs as abs,
    add as add,
    divide as divide,
    floordiv as floor_divide,
    floormod as remainder,
    maximum as maximum,
    minimum as minimum,
    multiply as multiply,
    negative as negative,
    sign as sign,
    square as square,
    subtract as subtract,
)
from stopgrad.ops.elementwise.compare import (
    bitwise_and as _bitwise_and,
    bitwise_or as _bitwise_or,
    bitwise_xor as _bitwise_xor,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    invert as _invert,
    is_finite as isfinite,
    is_inf as isinf,
    is_nan as isnan,
    left_shift as bitwise_left_shift,
    less as less,
    less_equal as less_equal,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    not_equal as not_equal,
    right_shift as bitwise_right_shift,
)
from stopgrad.ops.elementwise.composite import clip as _clip, logaddexp as logaddexp
from stopgrad.ops.elementwise.convert import conj as _conj, imag as _imag, real as _real
from stopgrad.ops.elementwise.floating import (
    copysign as copysign,
    hypot as hypot,
    nextafter as nextafter,
    signbit as signbit,
)
from stopgrad.ops.elementwise.powers import (
    exp as exp,
    expm1 as expm1,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    pow as pow,
    reciprocal as reciprocal,
    sqrt as sqrt,
)
from stopgrad.ops.elementwise.rounding import ceil as ceil, floor as floor, round as round, trunc as trunc
from stopgrad.ops.elementwise.trigonometric import (
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    cos as cos,
    cosh as cosh,
    sin as sin,
    sinh as sinh,
    tan as tan,
    tanh as tanh,
)
from stopgrad.ops.indexing.masks import where as where
from stopgrad.ops.structural.sources import identity as _identity, zeros_like as _zeros_like
from stopgrad.ops.xp.support import standard

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "where",
]


def _on_bits(
    name: str, bitwise: Callable[..., Tensor], logical: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    def function(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
        both = d.type_of(x1).dtype.is_bool and d.type_of(x2).dtype.is_bool
        return (logical if both else bitwise)(x1, x2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"``{name}`` of integers bit by bit: :func:`stopgrad.{bitwise.__name__}`; for booleans, "
        f":func:`stopgrad.{logical.__name__}`."
    )
    return standard(function)


bitwise_and: Callable[..., Tensor] = _on_bits("bitwise_and", _bitwise_and, logical_and)
bitwise_or: Callable[..., Tensor] = _on_bits("bitwise_or", _bitwise_or, logical_or)
bitwise_xor: Callable[..., Tensor] = _on_bits("bitwise_xor", _bitwise_xor, logical_xor)


@standard
def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """The complement of the bits of integers; for booleans, the negation.

    Examples:
        >>> sg.xp.bitwise_invert(np.array([0, 5]))
        array([-1, -6])
    """
    return logical_not(x) if d.type_of(x).dtype.is_bool else _invert(x)


@standard
def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """The elements, raised to *min* if below it and lowered to *max* if above it; None stands for no bound.

    Examples:
        >>> sg.xp.clip(np.array([-1.0, 0.5, 2.0]), 0.0, 1.0)
        array([0. , 0.5, 1. ])
    """
    return _clip(x, min, max)


@standard
def conj(x: ArrayLike, /) -> Tensor:
    """Complex conjugates; real numbers unchanged.

    Examples:
        >>> sg.xp.conj(np.array([1 + 2j]))
        array([1.-2.j])
    """
    return _conj(x) if d.type_of(x).dtype.is_complex else positive(x)


@standard
def real(x: ArrayLike, /) -> Tensor:
    """The real part; real numbers unchanged.

    Examples:
        >>> sg.xp.real(np.array([1 + 2j]))
        array([1.])
    """
    return _real(x) if d.type_of(x).dtype.is_complex else positive(x)


@standard
def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part, which is 0 for real numbers.

    Examples:
        >>> sg.xp.imag(np.array([1 + 2j]))
        array([2.])
    """
    return _imag(x) if d.type_of(x).dtype.is_complex else _zeros_like(x)


@standard
def positive(x: ArrayLike, /) -> Tensor:
    """The operand itself, as ``+x``.

    Examples:
        >>> sg.xp.positive(np.array([-1.0]))
        array([-1.])
    """
    return _identity(x)
