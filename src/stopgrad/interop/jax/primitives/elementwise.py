"""Elementwise primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.arrays import ArrayLike
from stopgrad.base.types import DType, dtype_of
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import Tensor
from stopgrad.interop.jax.primitives.control import owned
from stopgrad.interop.jax.steps import NotOurs, Step, plain, rule, uniform

_UNSIGNED = {1: sg.uint8, 2: sg.uint16, 4: sg.uint32, 8: sg.uint64}
MOST_FACTORS = 64
"""Integer powers up to this are products, as in JAX."""


def like(x: Output, value: float) -> np.ndarray[Any, Any]:
    """A number of the dtype of x."""
    return np.asarray(value, x.dtype.numpy)


plain(
    {
        "neg": sg.negative,
        "floor": sg.floor,
        "ceil": sg.ceil,
        "exp": sg.exp,
        "exp2": sg.exp2,
        "log": sg.log,
        "log1p": sg.log1p,
        "expm1": sg.expm1,
        "sin": sg.sin,
        "cos": sg.cos,
        "tan": sg.tan,
        "asin": sg.asin,
        "acos": sg.acos,
        "atan": sg.atan,
        "atan2": sg.atan2,
        "sinh": sg.sinh,
        "cosh": sg.cosh,
        "tanh": sg.tanh,
        "asinh": sg.asinh,
        "acosh": sg.acosh,
        "atanh": sg.atanh,
        "sqrt": sg.sqrt,
        "rsqrt": sg.rsqrt,
        "cbrt": sg.cbrt,
        "square": sg.square,
        "erf": sg.erf,
        "erfc": sg.erfc,
        "erf_inv": sg.erfinv,
        "lgamma": sg.lgamma,
        "digamma": sg.digamma,
        "bessel_i0e": sg.bessel_i0e,
        "bessel_i1e": sg.bessel_i1e,
        "igamma": sg.igamma,
        "igammac": sg.igammac,
        "regularized_incomplete_beta": sg.betainc,
        "is_finite": sg.is_finite,
        "nextafter": sg.nextafter,
        "real": sg.real,
        "imag": sg.imag,
        "complex": sg.complex,
        "add": sg.add,
        "add_any": sg.add,
        "sub": sg.subtract,
        "mul": sg.multiply,
        "rem": sg.truncatemod,
        "eq": sg.equal,
        "ne": sg.not_equal,
        "lt": sg.less,
        "le": sg.less_equal,
        "gt": sg.greater,
        "ge": sg.greater_equal,
        "copy": sg.identity,
        "name": sg.identity,
    }
)


@rule("abs")
def _abs(step: Step, x: Output) -> Output:
    if x.dtype in _UNSIGNED.values():
        return sg.identity(x)
    return sg.maximum(x, -x) if x.dtype.is_floating else sg.abs(x)  # In JAX its derivative at 0 is 1.


@rule("sign")
def _sign(step: Step, x: Output) -> Output:
    if x.dtype in _UNSIGNED.values():
        return sg.cast(sg.not_equal(x, like(x, 0)), x.dtype)
    if x.dtype.is_complex:
        raise NotOurs("the sign of a complex number, through which JAX passes no gradient")
    return _rounded_sign(x)


def _rounded_sign(x: Output) -> Output:
    """The sign of real numbers, through which no gradient passes in JAX; that of our sign is a zero."""
    sign: Output = sg.round(sg.sign(x))
    return sign


@rule("round")
def _round(step: Step, x: Output) -> Output:
    if int(step["rounding_method"]) == 1:
        return sg.round(x)
    whole = sg.trunc(x)  # Halves round away from zero.
    away = sg.greater_equal(sg.abs(x - whole), like(x, 0.5))
    return sg.where(away, whole + _rounded_sign(x), whole)


@rule("logistic")
def _logistic(step: Step, x: Output) -> Output:
    return sg.reciprocal(like(x, 1) + sg.exp(-x)) if x.dtype.is_complex else sg.sigmoid(x)


@rule("conj")
def _conj(step: Step, x: Output) -> Output:
    return sg.conj(x) if x.dtype.is_complex else sg.complex(x, sg.zeros_like(x))


@rule("div")
def _div(step: Step, x: Output, y: Output) -> Output:
    if not x.dtype.is_integer:
        return sg.divide(x, y)
    return sg.floordiv(x - sg.truncatemod(x, y), y)  # Truncates toward zero.


@rule("max")
def _max(step: Step, x: Output, y: Output) -> Output:
    return _ordered(x, y, sg.maximum, sg.logical_or)


@rule("min")
def _min(step: Step, x: Output, y: Output) -> Output:
    return _ordered(x, y, sg.minimum, sg.logical_and)


def _ordered(x: Output, y: Output, numbers: Callable[..., Output], truths: Callable[..., Output]) -> Output:
    if x.dtype.is_bool:
        return truths(x, y)
    if x.dtype.is_complex:
        raise NotOurs("the larger of complex numbers")
    if not x.dtype.is_floating:
        return numbers(x, y)
    half = like(
        x, 0.5
    )  # In JAX each of two equal numbers gets half of the gradient; ours gives all to the first.
    return numbers(x, y) * half + numbers(y, x) * half


@rule("pow")
def _pow(step: Step, x: Output, y: Output) -> Output:
    return sg.pow(x, sg.cast(y, x.dtype))


@rule("integer_pow")
def _integer_pow(step: Step, x: Output) -> Tensor:
    y = int(step["y"])
    if abs(y) > MOST_FACTORS:
        return sg.pow(x, like(x, y))
    if y == 0:
        return sg.fill(x.shape, like(x, 1))
    power, square = None, x
    for bit in reversed(bin(abs(y))[2:]):
        if bit == "1":
            power = square if power is None else power * square
        square = sg.square(square)
    assert power is not None
    return power if y > 0 else sg.reciprocal(power)


@rule("polynomial")
def _polynomial(step: Step, x: Output, *coefficients: Output) -> Output:
    value = sg.broadcast_to(coefficients[-1], step.result.shape)
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


@rule("log2")
def _log2(step: Step, x: Output) -> Output:
    return sg.log(x) / like(x, np.log(2.0))


@rule("one_minus_square")
def _one_minus_square(step: Step, x: Output) -> list[Output]:
    """JAX's own gradient is -2x; that of the product would be zero where x is tiny."""
    one = like(x, 1)
    return owned(step, lambda step, x: [(one + x) * (one - x)], [x])


@rule("polygamma")
def _polygamma(step: Step, m: Output, x: Output) -> Output:
    if m.op.type == "Const":
        orders = np.unique(m.op.value.array)
        if orders.size == 1 and orders[0] == int(orders[0]) >= 0:
            return sg.polygamma(int(orders[0]), x)
    raise NotOurs("polygamma of an order that is no constant whole number")


@rule("clamp")
def _clamp(step: Step, low: Output, x: Output, high: Output) -> Output:
    # At a bound, the gradient is that of the bound.
    return sg.minimum(high, sg.maximum(low, x))


@rule("convert_element_type")
def _convert(step: Step, x: Output) -> Output:
    dtype = dtype_of(step["new_dtype"])
    return sg.identity(x) if dtype is x.dtype else sg.cast(x, dtype)


def _in_total_order(plain_order: Callable[..., Tensor], first_nan: bool | None) -> Callable[..., Tensor]:
    """A comparison in which NaN is the largest number, and equal to itself."""

    def compare(step: Step, x: Output, y: Output) -> Output:
        ordered = plain_order(x, y)
        if not x.dtype.is_floating:
            return ordered
        nan = sg.logical_and(sg.is_nan(y), sg.is_nan(x) if first_nan else sg.logical_not(sg.is_nan(x)))
        return sg.logical_or(ordered, sg.is_nan(y) if first_nan is None else nan)

    return compare


rule("eq_to")(_in_total_order(sg.equal, True))
rule("lt_to")(_in_total_order(sg.less, False))
rule("le_to")(_in_total_order(sg.less_equal, None))

# ------------------------------------------------------------------------------------------- choices


@rule("select_n")
def _select(step: Step, which: Output, *cases: Output) -> Output:
    constant_index = uniform(which)
    if constant_index is not None:  # For example a library's argument that says whether to stop a gradient.
        return sg.identity(cases[min(max(int(constant_index), 0), len(cases) - 1)])
    if which.dtype.is_bool:
        return cases[0] if len(cases) == 1 else sg.where(which, _nan_of(which, cases[1]), cases[0])
    chosen = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        chosen = sg.where(sg.less_equal(which, like(which, i)), cases[i], chosen)
    return chosen


def _nan_of(which: Output, case: Output) -> Output:
    """What is chosen where it is NaN: then no number's gradient passes, as through rounding."""
    test = which.op
    is_nan = test.type == "NotEqual" and test.inputs[0] is case and test.inputs[1] is case
    chosen: Output = sg.round(case) if is_nan and case.dtype.is_floating else case
    return chosen


# ------------------------------------------------------------------------------------- bits and truths


def _truths_or_bits(truths: Callable[..., Tensor], bits: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda step, *xs: truths(*xs) if xs[0].dtype.is_bool else bits(*xs)


rule("not")(_truths_or_bits(sg.logical_not, sg.invert))
rule("and")(_truths_or_bits(sg.logical_and, sg.bitwise_and))
rule("or")(_truths_or_bits(sg.logical_or, sg.bitwise_or))
rule("xor")(_truths_or_bits(sg.logical_xor, sg.bitwise_xor))


def unsigned(dtype: DType) -> DType:
    """The unsigned integers with as many bits."""
    return _UNSIGNED[dtype.itemsize]


def within_word(function: Callable[..., Output], x: Output, y: Output, beyond: ArrayLike) -> Output:
    """A shift whose result is *beyond* if it is by as many bits as x has, or more."""
    bits = 8 * x.dtype.itemsize
    far = sg.greater_equal(sg.cast(y, unsigned(y.dtype)), np.asarray(bits, unsigned(y.dtype).numpy))
    return sg.where(far, beyond, function(x, sg.where(far, like(y, 0), y)))


@rule("shift_left")
def _shift_left(step: Step, x: Output, y: Output) -> Output:
    return within_word(sg.left_shift, x, y, like(x, 0))


@rule("shift_right_logical")
def _shift_right_logical(step: Step, x: Output, y: Output) -> Output:
    kind = unsigned(x.dtype)
    word = sg.cast(x, kind)
    return sg.cast(within_word(sg.right_shift, word, sg.cast(y, kind), like(word, 0)), x.dtype)


@rule("shift_right_arithmetic")
def _shift_right_arithmetic(step: Step, x: Output, y: Output) -> Output:
    signed = dtype_of(f"int{8 * x.dtype.itemsize}")
    word = sg.cast(x, signed)
    sign = sg.where(sg.less(word, like(word, 0)), like(word, -1), like(word, 0))
    return sg.cast(within_word(sg.right_shift, word, sg.cast(y, signed), sign), x.dtype)


@rule("population_count")
def _population_count(step: Step, x: Output) -> Output:
    return sg.cast(_ones(sg.cast(x, unsigned(x.dtype))), x.dtype)


def _ones(word: Output) -> Output:
    """The number of bits that are set."""
    bits = [
        sg.bitwise_and(sg.right_shift(word, like(word, i)), like(word, 1))
        for i in range(8 * word.dtype.itemsize)
    ]
    total: Output = sg.add_n(bits)
    return total


@rule("clz")
def _leading_zeros(step: Step, x: Output) -> Output:
    bits = 8 * x.dtype.itemsize
    word = sg.cast(x, unsigned(x.dtype))
    for distance in (1, 2, 4, 8, 16, 32):  # Each bit below the first one set becomes set.
        if distance < bits:
            word = sg.bitwise_or(word, sg.right_shift(word, like(word, distance)))
    return sg.cast(like(word, bits) - _ones(word), x.dtype)


@rule("reduce_precision")
def _reduce_precision(step: Step, x: Output) -> Output:
    precision = int(step["exponent_bits"]), int(step["mantissa_bits"])
    for dtype, bits in _PRECISIONS.items():
        if precision == bits:
            return sg.identity(x) if dtype is x.dtype else sg.cast(sg.cast(x, dtype), x.dtype)
    raise NotOurs(f"rounding to {precision[0]} bits of exponent and {precision[1]} of mantissa")


_PRECISIONS = {
    sg.float64: (11, 52),
    sg.float32: (8, 23),
    sg.bfloat16: (8, 7),
    sg.float16: (5, 10),
}
