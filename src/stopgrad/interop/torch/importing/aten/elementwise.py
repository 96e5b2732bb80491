"""Operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import Refused, Value, brought
from stopgrad.interop.torch.importing.aten.calling import Call, Table, Translation, dtype_or, table


def unary(function: Callable[..., Tensor]) -> Translation:
    """A function of one tensor, computed in the result's element type."""
    return lambda call, x: function(brought(x, call.dtype))


def unconverted(function: Callable[..., sg.Output]) -> Translation:
    """A function of one tensor that needs no conversion, such as a test with a boolean result."""
    return lambda call, x: function(x)


def whole(function: Callable[..., sg.Output]) -> Translation:
    """Rounding, which leaves integers as they are."""
    return lambda call, x: x if x.dtype.is_integer else function(x)


def binary(function: Callable[..., sg.Output]) -> Translation:
    """A function of two tensors or numbers, computed in the result's element type."""

    def translated(call: Call, x: sg.Output, y: Value) -> sg.Output:
        return function(*_both(call.dtype, x, y))

    return translated


def compared(function: Callable[..., sg.Output]) -> Translation:
    """A comparison of two tensors or numbers, in the element type to which both are promoted."""

    def translated(call: Call, x: sg.Output, y: Value) -> sg.Output:
        dtype = call.common(0, 1)
        x, y = _both(sg.uint8 if dtype.is_bool else dtype, x, y)
        return brought(function(x, y), call.dtype)

    return translated


def logical(function: Callable[..., sg.Output]) -> Translation:
    """A logical function of two tensors, in which every number other than 0 is true."""
    return lambda call, x, y: function(*_both(sg.bool_, x, y))


def bitwise(bits: Callable[..., sg.Output], truth: Callable[..., sg.Output]) -> Translation:
    """A function of the bits of integers; for booleans, a function of truth values."""

    def translated(call: Call, x: sg.Output, y: Value) -> sg.Output:
        return (truth if call.dtype.is_bool else bits)(*_both(call.dtype, x, y))

    return translated


def _both(dtype: DType, x: Value, y: Value) -> tuple[sg.Output, sg.Output]:
    like = x if isinstance(x, sg.Output) else y
    return brought(x, dtype, like), brought(y, dtype, like)


# -------------------------------------------------------------------------------------------- arithmetic


def _add(call: Call, x: sg.Output, y: Value, alpha: float = 1) -> sg.Output:
    x, y = _both(call.dtype, x, y)
    if call.dtype.is_bool:
        return sg.logical_or(x, y)
    return sg.add(x, _times(y, alpha))


def _subtract(call: Call, x: Value, y: Value, alpha: float = 1) -> sg.Output:
    x, y = _both(call.dtype, x, y)
    return sg.subtract(x, _times(y, alpha))


def _times(x: sg.Output, factor: float) -> sg.Output:
    if not isinstance(factor, (sg.Dim, sg.Output)) and factor == 1:
        return x
    return sg.multiply(x, brought(factor, x.dtype, x))


def _multiply(call: Call, x: sg.Output, y: Value) -> sg.Output:
    x, y = _both(call.dtype, x, y)
    return sg.logical_and(x, y) if call.dtype.is_bool else sg.multiply(x, y)


def _divide(call: Call, x: sg.Output, y: Value, rounding_mode: str | None = None) -> sg.Output:
    x, y = _both(call.dtype, x, y)
    if rounding_mode is None:
        return sg.realdiv(x, y)
    if rounding_mode == "floor":
        return sg.floor_divide(x, y)
    return sg.truncatediv(x, y) if call.dtype.is_integer else sg.trunc(sg.realdiv(x, y))


def _power(call: Call, x: Value, y: Value) -> sg.Output:
    if not isinstance(y, (sg.Output, sg.Dim)):
        x = brought(x, call.dtype)
        if y == 2:
            return sg.square(x)
        if y == 1:
            return sg.identity(x)
        if y == 0:
            return sg.ones_like(x)
    return sg.pow(*_both(call.dtype, x, y))


def _clamped(call: Call, x: sg.Output, min: Value | None = None, max: Value | None = None) -> sg.Output:
    x = brought(x, call.dtype)
    if min is not None:
        x = sg.maximum(x, brought(min, call.dtype, x))
    return x if max is None else sg.minimum(x, brought(max, call.dtype, x))


def _sign(call: Call, x: sg.Output) -> sg.Output:
    return x if x.dtype.is_bool else sg.sign(x)


def _absolute(call: Call, x: sg.Output) -> sg.Output:
    return x if x.dtype.is_bool else sg.abs(x)


def _complemented(call: Call, x: sg.Output) -> sg.Output:
    return sg.logical_not(x) if x.dtype.is_bool else sg.invert(x)


def _rounded(call: Call, x: sg.Output, decimals: int = 0) -> sg.Output:
    if x.dtype.is_integer:
        return x
    scale = brought(10.0 ** abs(decimals), x.dtype)
    if decimals < 0:
        return sg.multiply(sg.round(sg.realdiv(x, scale)), scale)
    return sg.realdiv(sg.round(sg.multiply(x, scale)), scale)


def _chosen(call: Call, condition: sg.Output, x: sg.Output, y: sg.Output) -> sg.Output:
    return sg.where(brought(condition, sg.bool_), *_both(call.dtype, x, y))


def _minimum(call: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    x, y = _both(call.dtype, x, y)
    return sg.logical_and(x, y) if call.dtype.is_bool else sg.minimum(x, y)


def _maximum(call: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    x, y = _both(call.dtype, x, y)
    return sg.logical_or(x, y) if call.dtype.is_bool else sg.maximum(x, y)


def _without_nan(function: Callable[..., sg.Output]) -> Translation:
    """fmax and fmin: if one operand is NaN, the result is the other."""

    def translated(call: Call, x: sg.Output, y: sg.Output) -> sg.Output:
        x, y = _both(call.dtype, x, y)
        if not call.dtype.is_floating:
            return function(x, y)
        return sg.where(sg.isnan(x), y, sg.where(sg.isnan(y), x, function(x, y)))

    return translated


def _log_or_zero(call: Call, x: sg.Output, y: sg.Output) -> sg.Output:
    """xlogy: 0 where the first operand is 0; the derivative by it is log(y) there, too, for y above 0."""
    x, y = _both(call.dtype, x, y)
    zero = brought(0, x.dtype)
    no_log = sg.logical_or(sg.less_equal(y, zero), sg.equal(y, brought(math.inf, y.dtype)))
    undefined = sg.logical_and(sg.equal(x, zero), no_log)
    return sg.multiply(x, sg.log(sg.where(undefined, brought(1, y.dtype), y)))


# ------------------------------------------------------------------------------------------- activations


def _angle_of(call: Call, y: sg.Output, x: sg.Output) -> sg.Output:
    """atan2, with a gradient of 0 at the origin."""
    y, x = _both(call.dtype, y, x)
    zero = brought(0, y.dtype)
    origin = sg.logical_and(sg.equal(x, zero), sg.equal(y, zero))
    value = sg.atan2(sg.stop_gradient(y), sg.stop_gradient(x))
    return sg.where(origin, value, sg.atan2(y, sg.where(origin, brought(1, x.dtype), x)))


def _leaky_relu(call: Call, x: sg.Output, slope: float = 0.01) -> sg.Output:
    return sg.where(sg.greater(x, brought(0, x.dtype)), x, _times(x, slope))


def _elu(call: Call, x: sg.Output, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> sg.Output:
    low = sg.minimum(x, brought(0, x.dtype))  # The exponential of these is finite.
    below = _times(sg.expm1(_times(low, input_scale)), alpha * scale)
    return sg.where(sg.greater(x, brought(0, x.dtype)), _times(x, scale), below)


def _gelu(call: Call, x: sg.Output, approximate: str = "none") -> sg.Output:
    return sg.gelu(x, approximate=approximate == "tanh")


def _between(call: Call, x: sg.Output, low: float = -1, high: float = 1) -> sg.Output:
    return _clamped(call, x, low, high)


def _softplus(call: Call, x: sg.Output, beta: float = 1, threshold: float = 20) -> sg.Output:
    scaled = _times(x, beta)
    straight = sg.greater(scaled, brought(threshold, x.dtype))
    low = sg.where(straight, brought(0, x.dtype), scaled)  # The other branch is finite there, and its slope.
    return sg.where(straight, x, sg.realdiv(sg.softplus(low), brought(beta, x.dtype)))


def _log_sigmoid(call: Call, x: sg.Output) -> tuple[sg.Output, None]:
    """The logarithm, and a buffer for a gradient that is computed otherwise here."""
    if call.uses(1):
        raise Refused("of log_sigmoid_forward only the first result is translated")
    return sg.log_sigmoid(x), None


def _sinc(call: Call, x: sg.Output) -> sg.Output:
    scaled = _times(brought(x, call.dtype), math.pi)
    at_zero = sg.equal(scaled, brought(0, scaled.dtype))
    one = brought(1, scaled.dtype)
    return sg.where(at_zero, one, sg.realdiv(sg.sin(scaled), sg.where(at_zero, one, scaled)))


def _logit(call: Call, x: sg.Output, eps: float | None = None) -> sg.Output:
    x = brought(x, call.dtype)
    if eps is not None:
        x = _clamped(call, x, eps, 1.0 - eps)
    return sg.subtract(sg.log(x), sg.log1p(sg.negative(x)))


# ------------------------------------------------------------------------------------------- conversion


def _converted(call: Call, x: sg.Output, dtype: torch.dtype | None = None, **_: object) -> sg.Output:
    target = dtype_or(dtype, x.dtype)
    return sg.identity(x) if target is x.dtype else sg.cast(x, target)


def _unchanged(call: Call, x: sg.Output, *_: object, **__: object) -> sg.Output:
    return x


def _copied(call: Call, x: sg.Output, source: sg.Output, *_: object, **__: object) -> sg.Output:
    return sg.broadcast_to(brought(source, x.dtype), x.shape)


def _item(call: Call, x: sg.Output) -> sg.Output:
    """``item()``: the one number of a tensor, as Python's; no gradient passes."""
    return sg.stop_gradient(sg.reshape(x, ()), name="item")


def _polygamma(call: Call, n: int, x: sg.Output) -> sg.Output:
    return sg.polygamma(n, brought(x, call.dtype))


def _complex_from(call: Call, x: sg.Output) -> sg.Output:
    """Complex numbers from pairs of real ones along the last axis."""
    return sg.complex(x[..., 0], x[..., 1])


def _real_from(call: Call, x: sg.Output) -> sg.Output:
    return sg.stack([sg.real(x), sg.imag(x)], axis=-1)


def _signed(call: Call, x: sg.Output) -> sg.Output:
    return sg.signbit(brought(x, sg.float32)) if x.dtype.is_bool else sg.signbit(x)


def _number(call: Call, value: float, **_: object) -> sg.Output:
    return brought(value, call.dtype)


_ELEMENTARY: dict[str, Callable[..., object]] = {
    "acos": sg.acos,
    "acosh": sg.acosh,
    "asin": sg.asin,
    "asinh": sg.asinh,
    "atan": sg.atan,
    "atanh": sg.atanh,
    "cos": sg.cos,
    "cosh": sg.cosh,
    "erf": sg.erf,
    "erfc": sg.erfc,
    "erfinv": sg.erfinv,
    "exp": sg.exp,
    "exp2": sg.exp2,
    "expm1": sg.expm1,
    "log": sg.log,
    "log10": sg.log10,
    "log1p": sg.log1p,
    "log2": sg.log2,
    "lgamma": sg.lgamma,
    "digamma": sg.digamma,
    "special_i0e": sg.bessel_i0e,
    "special_i1": sg.bessel_i1,
    "special_i1e": sg.bessel_i1e,
    "special_ndtri": sg.ndtri,
    "i0": sg.bessel_i0,
    "neg": sg.negative,
    "reciprocal": sg.reciprocal,
    "rsqrt": sg.rsqrt,
    "sigmoid": sg.sigmoid,
    "sin": sg.sin,
    "sinh": sg.sinh,
    "sqrt": sg.sqrt,
    "tan": sg.tan,
    "tanh": sg.tanh,
    "relu": sg.relu,
    "conj_physical": sg.conj,
    "_conj": sg.conj,
    "_conj_physical": sg.conj,
    "mish": sg.mish,
    "angle": sg.angle,
}

ELEMENTWISE: Table = dict(
    table(
        {name: unary(function) for name, function in _ELEMENTARY.items()},
        {
            "abs": _absolute,
            "sign": _sign,
            "ceil": whole(sg.ceil),
            "floor": whole(sg.floor),
            "trunc": whole(sg.trunc),
            "round round.decimals": _rounded,
            "isinf": unconverted(sg.isinf),
            "isnan": unconverted(sg.isnan),
            "signbit": _signed,
            "logical_not": lambda call, x: sg.logical_not(brought(x, sg.bool_)),
            "bitwise_not": _complemented,
            "real": unconverted(sg.real),
            "imag": unconverted(sg.imag),
            "add.Tensor add.Scalar": _add,
            "sub.Tensor sub.Scalar": _subtract,
            "mul.Tensor mul.Scalar": _multiply,
            "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode": _divide,
            "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar": _power,
            "fmod.Tensor fmod.Scalar": binary(sg.truncatemod),
            "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": binary(sg.floormod),
            "atan2": _angle_of,
            "hypot": binary(sg.hypot),
            "copysign.Tensor copysign.Scalar": binary(sg.copysign),
            "nextafter": binary(sg.nextafter),
            "igamma": binary(sg.igamma),
            "igammac": binary(sg.igammac),
            "xlogy.Tensor xlogy.Scalar_Other xlogy.Scalar_Self": _log_or_zero,
            "polygamma": _polygamma,
            "maximum": _maximum,
            "minimum": _minimum,
            "fmax": _without_nan(sg.maximum),
            "fmin": _without_nan(sg.minimum),
            "eq.Tensor eq.Scalar": compared(sg.equal),
            "ne.Tensor ne.Scalar": compared(sg.not_equal),
            "lt.Tensor lt.Scalar": compared(sg.less),
            "le.Tensor le.Scalar": compared(sg.less_equal),
            "gt.Tensor gt.Scalar": compared(sg.greater),
            "ge.Tensor ge.Scalar": compared(sg.greater_equal),
            "logical_and": logical(sg.logical_and),
            "logical_or": logical(sg.logical_or),
            "logical_xor": logical(sg.logical_xor),
            "bitwise_and.Tensor bitwise_and.Scalar": bitwise(sg.bitwise_and, sg.logical_and),
            "bitwise_or.Tensor bitwise_or.Scalar": bitwise(sg.bitwise_or, sg.logical_or),
            "bitwise_xor.Tensor bitwise_xor.Scalar": bitwise(sg.bitwise_xor, sg.logical_xor),
            "bitwise_left_shift.Tensor __lshift__.Scalar __lshift__.Tensor": binary(sg.left_shift),
            "bitwise_left_shift.Tensor_Scalar": binary(sg.left_shift),
            "bitwise_right_shift.Tensor __rshift__.Scalar __rshift__.Tensor": binary(sg.right_shift),
            "bitwise_right_shift.Tensor_Scalar": binary(sg.right_shift),
            "where.self": _chosen,
            "clamp clamp.Tensor": _clamped,
            "hardtanh": _between,
            "leaky_relu": _leaky_relu,
            "elu": _elu,
            "celu": lambda call, x, alpha=1.0: _elu(call, x, alpha, 1, 1 / alpha),
            "log_sigmoid_forward": _log_sigmoid,
            "sinc": _sinc,
            "gelu": _gelu,
            "softplus": _softplus,
            "logit": _logit,
            "_to_copy to.dtype to.dtype_layout": _converted,
            "lift_fresh lift_fresh_copy contiguous": _unchanged,
            "scalar_tensor": _number,
            "copy": _copied,
            "_local_scalar_dense item": _item,
            "view_as_complex view_as_complex_copy": _complex_from,
            "view_as_real view_as_real_copy": _real_from,
            "resolve_conj resolve_neg": _unchanged,
            "complex": lambda call, x, y: sg.complex(x, y),
            "polar": lambda call, r, t: sg.complex(r * sg.cos(t), r * sg.sin(t)),
            "detach detach_copy": lambda call, x: sg.stop_gradient(x, name="detach"),
            "ldexp.Tensor": lambda call, x, y: sg.multiply(
                brought(x, call.dtype), sg.exp2(brought(y, call.dtype))
            ),
        },
    )
)
