"""What operations compute, from elsewhere: in 80-bit or arbitrary precision, and in integers without bounds.

Values come from NumPy's long double, Python's integers, or mpmath; never from this package. Distances are
counted in ulps: units in the last place of the dtype of the result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from stopgrad.base.types import DType, dtype_of

Array = np.ndarray[Any, Any]
Wide = Array
"""An array of long doubles, of complex long doubles, of Python's integers, or of booleans."""

LONG, COMPLEX = np.longdouble, np.clongdouble
PRECISION = {"float16": (11, -13), "bfloat16": (8, -125), "float32": (24, -125), "float64": (53, -1021)}
"""Bits of the mantissa, and the exponent, as ``frexp`` counts it, of the least normal number."""


def widen(x: Array) -> Wide:
    """The same values where nothing rounds and nothing wraps."""
    dtype = dtype_of(x.dtype)
    if dtype.is_bool:
        return x
    if dtype.is_integer:
        return np.vectorize(int, otypes=[object])(x) if x.size else x.astype(object)
    if dtype.is_complex:
        return x.astype(COMPLEX)
    return x.astype(np.float64 if dtype.itemsize == 8 else np.float32).astype(LONG)


def least_normal(dtype: DType) -> Any:
    return LONG(2.0) ** (PRECISION[dtype.real.name][1] - 1)


def greatest(dtype: DType) -> Any:
    bits, low = PRECISION[dtype.real.name]
    return LONG(2.0) ** (2 - low) * (1 - LONG(2.0) ** -bits)


def flushed(x: Array) -> Array:
    """Zeros in the place of subnormal numbers, with their signs."""
    dtype = dtype_of(x.dtype)
    if not dtype.is_differentiable:
        return x
    if dtype.is_complex:
        found = x.copy()
        found.real, found.imag = flushed(x.real), flushed(x.imag)
        return found
    wide = widen(x)
    return np.where(np.abs(wide) < least_normal(dtype), np.copysign(0, wide), wide).astype(x.dtype)


def ulp(values: Wide, dtype: DType) -> Wide:
    """The distance of neighbouring numbers of a dtype around some values."""
    bits, low = PRECISION[dtype.real.name]
    size = np.abs(values).astype(LONG)
    _, exponent = np.frexp(np.where(np.isfinite(size), size, greatest(dtype)))
    exponent = np.where(size == 0, low, exponent)
    return np.ldexp(LONG(1), np.maximum(exponent, low) - bits)


def _bounded(values: Wide, dtype: DType) -> Wide:
    """Values beyond the dtype's, infinities too, as the number that would follow its greatest."""
    beyond = greatest(dtype) + ulp(greatest(dtype), dtype)
    return np.clip(values, -beyond, beyond)


def distance(found: Array, expected: Wide, scale: Wide | None = None) -> Array:
    """How far from the expected values those found are, in ulps of these, or of a larger *scale*."""
    dtype = dtype_of(found.dtype)
    if not dtype.is_differentiable:
        if dtype.is_integer:
            expected = wrapped(expected, dtype) if np.size(expected) else expected
        return np.where(np.equal(found, expected).astype(bool), 0.0, np.inf)
    if dtype.is_complex:
        size = np.abs(expected) if scale is None else np.maximum(np.abs(expected), np.abs(scale))
        parts = (distance(np.asarray(p(found)), p(expected), size) for p in (np.real, np.imag))
        return np.maximum(*parts)
    got, want = widen(found), np.asarray(expected, LONG)
    size = np.abs(_bounded(want, dtype))
    unit = ulp(size if scale is None else np.fmax(size, np.abs(scale)), dtype)
    apart = np.abs(_bounded(got, dtype) - _bounded(want, dtype)) / unit
    return np.where(np.isnan(got) != np.isnan(want), np.inf, np.where(np.isnan(got), 0, apart))


def wrapped(x: Any, dtype: DType) -> Any:
    """Integers modulo 2ⁿ, as all integer arithmetic is."""
    bits = 8 * dtype.itemsize
    low = -(1 << bits - 1) if dtype.kind == "i" else 0
    return np.vectorize(lambda v: (int(v) - low) % (1 << bits) + low, otypes=[object])(x)


# ------------------------------------------------------------------------------------------ elementwise


def numbers(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers of mpmath, as one of arrays; NaN where it has no value."""

    @functools.lru_cache(100_000)
    def one(*values: Any) -> Any:
        with mpmath.workprec(120):
            found = f(*map(_exact, values))
        return _long(found)

    def function(*arrays: Any) -> Any:
        wide = np.broadcast_arrays(*arrays)
        made = np.empty(wide[0].shape, LONG)
        for i in np.ndindex(*made.shape):
            values = [a[i] for a in wide]
            made[i] = math.nan if any(np.isnan(v) for v in values) else one(*values)
        return made

    return function


def _exact(x: Any) -> Any:
    if not np.isfinite(x):
        return mpmath.mpf(float(x))
    mantissa, exponent = np.frexp(x)
    return mpmath.ldexp(mpmath.mpf(int(mantissa * LONG(2) ** 64)), int(exponent) - 64)


def _long(x: Any) -> Any:
    if mpmath.isnan(x) or mpmath.isinf(x) or x == 0:
        return LONG(float(x))
    mantissa, exponent = mpmath.frexp(x)
    high = int(mpmath.nint(abs(mantissa) * 2**64))
    wide = LONG(high >> 32) * LONG(2.0) ** 32 + LONG(high & 0xFFFFFFFF)
    return np.copysign(
        np.ldexp(wide, max(min(int(exponent), 20_000), -20_000) - 64), LONG(float(mpmath.sign(x)))
    )


def integers(f: Callable[..., Any]) -> Callable[..., Any]:
    return np.vectorize(f, otypes=[object])


def _where_nan(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: np.where(functools.reduce(np.logical_or, map(np.isnan, xs)), LONG(math.nan), f(*xs))


def _polygamma(n: int) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        if mpmath.isinf(x):
            return mpmath.mpf(0) if x > 0 else mpmath.nan
        if x <= 0 and x == mpmath.floor(x):  # SciPy's convention.
            return mpmath.inf * (-1) ** (n + 1)
        if x > 0:
            return mpmath.polygamma(n, x)
        # mpmath steps from there to the right, one by one; the reflection is DLMF 5.15.6.
        sine, cotangent = mpmath.sinpi(x), mpmath.cospi(x) / mpmath.sinpi(x)
        slope = {1: -1, 2: 2 * mpmath.pi * cotangent}[n] * (mpmath.pi / sine) ** 2
        return (-1) ** n * mpmath.polygamma(n, 1 - x) - slope

    return numbers(f)


def _digamma(x: Any) -> Any:
    if mpmath.isinf(x):
        return x if x > 0 else mpmath.nan
    if x <= 0 and x == mpmath.floor(x):
        return mpmath.nan
    return mpmath.digamma(x)


def _lgamma(x: Any) -> Any:
    if mpmath.isinf(x) or (x <= 0 and x == mpmath.floor(x)):
        return mpmath.inf
    if x > -1e3:
        return mpmath.re(mpmath.loggamma(x))
    # The reflection, DLMF 5.5.3, because the logarithm of a number so small has lost its size.
    return mpmath.log(mpmath.pi / abs(mpmath.sinpi(x))) - mpmath.loggamma(1 - x)


def _erfc(x: Any) -> Any:
    return mpmath.erfc(max(min(x, mpmath.mpf(200)), mpmath.mpf(-200)))


def _erfinv(x: Any) -> Any:
    if abs(x) >= 1:
        return mpmath.inf * x if abs(x) == 1 else mpmath.nan
    return mpmath.erfinv(x)


def _ndtri(x: Any) -> Any:
    if not 0 < x < 1:
        return {0: -mpmath.inf, 1: mpmath.inf}.get(x, mpmath.nan)
    if x > 1e-3:
        return mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1)
    return -mpmath.sqrt(2) * _erfcinv(2 * x)


def _erfcinv(x: Any) -> Any:
    """By Newton's method on log erfc, from its first asymptotic term."""
    y = mpmath.sqrt(-mpmath.log(x))
    for _ in range(60):
        value = mpmath.erfc(y)
        slope = -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-y * y) / value
        y, before = y - (mpmath.log(value) - mpmath.log(x)) / slope, y
        if abs(y - before) < abs(y) * mpmath.mpf(2) ** -100:
            break
    return y


def _bessel(n: int, x: Any) -> Any:
    if abs(x) > 20_000:
        return mpmath.inf * (mpmath.sign(x) if n else 1)
    return mpmath.besseli(n, x)


def _scaled_bessel(n: int, x: Any) -> Any:
    if mpmath.isinf(x):
        return mpmath.mpf(0)
    if abs(x) < 1e4:
        return mpmath.besseli(n, x) * mpmath.exp(-abs(x))
    # The first terms of DLMF 10.40.1.
    t, m = 1 / (8 * abs(x)), 4 * n * n
    size = 1 - (m - 1) * t + (m - 1) * (m - 9) * t**2 / 2 - (m - 1) * (m - 9) * (m - 25) * t**3 / 6
    return size / mpmath.sqrt(2 * mpmath.pi * abs(x)) * (mpmath.sign(x) if n else 1)


def _sign(x: Any) -> Any:
    if x.dtype == COMPLEX:
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    return np.sign(x)


def _gelu(x: Any, approximate: bool) -> Any:
    if approximate:
        return x / 2 * (1 + np.tanh(np.sqrt(2 / LONG(mpmath.pi)) * (x + LONG("0.044715") * x**3)))
    return np.where(x == -math.inf, LONG(math.nan), numbers(lambda v: v * _erfc(-v / mpmath.sqrt(2)) / 2)(x))


def _power_scale(x: Any, y: Any) -> Any:
    """An error of the exponent y log x is one of the result."""
    if x.dtype != COMPLEX:
        return np.zeros(np.shape(x), LONG)
    return np.abs(np.power(x, y)) * (1 + np.abs(y * np.log(np.where(x == 0, 1, x))))


def _of_complex(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The size of the exponentials of which complex functions are made; real ones are not."""
    return lambda x: f(x) if x.dtype == COMPLEX else np.zeros(np.shape(x), LONG)


def _gelu_scale(x: Any, approximate: bool) -> Any:
    return np.minimum(np.abs(x), 10) if approximate else _gelu(x, False) * (1 + np.minimum(x * x, 1e3))


def _floor_div(x: Any, y: Any) -> Any:
    return 0 if y == 0 else x // y


def _floor_mod(x: Any, y: Any) -> Any:
    return 0 if y == 0 else x % y


def _truncate_mod(x: Any, y: Any) -> Any:
    return 0 if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


def _zero_unless(x: Any, f: Any) -> Any:
    return np.where(x == 0, LONG(0), f)


def _log1pexp(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Any) -> Any:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _logaddexp(x: Any, y: Any) -> Any:
    return np.where(x == y, x + np.log(LONG(2)), np.logaddexp(x, y))


@dataclass(frozen=True)
class Elementwise:
    """An elementwise function: of wide arrays; of integers where it has another form for them.

    Attributes:
        ulps: how far from it the results of an engine may be, for float32 and float64.
        scale: of terms that may cancel, which the result's error is measured by, besides the result itself.
        integer: the form for integers.
    """

    function: Callable[..., Any]
    ulps: float = 0.5
    scale: Callable[..., Any] | None = None
    integer: Callable[..., Any] | None = None

    def __call__(self, arrays: Sequence[Wide], attributes: dict[str, Any]) -> Any:
        function = self.integer if self.integer and arrays[0].dtype == object else self.function
        return function(*arrays, **attributes)


def _shift(left: bool) -> Callable[..., Any]:
    """By at least as many bits as there are, nothing is left of it but the sign, as in NumPy."""

    def f(x: Any, y: Any) -> Any:
        far = not 0 <= y < 64
        if left:
            return 0 if far else x << y
        return (-1 if x < 0 else 0) if far else x >> y

    return integers(f)


def _whole_power(x: Any, y: Any) -> Any:
    """Modulo 2⁶⁴; below 0, the inverse rounded toward zero."""
    if y >= 0:
        return pow(int(x), int(y), 2**64)
    return 0 if x not in (1, -1) else x if y % 2 else 1


E = Elementwise
ELEMENTWISE: dict[str, Elementwise] = {
    "Identity": E(lambda x: x),
    "Equal": E(np.equal),
    "NotEqual": E(np.not_equal),
    "Less": E(np.less),
    "LessEqual": E(np.less_equal),
    "Greater": E(np.greater),
    "GreaterEqual": E(np.greater_equal),
    "IsNan": E(np.isnan),
    "IsInf": E(np.isinf),
    "IsFinite": E(np.isfinite),
    "LogicalAnd": E(np.logical_and),
    "LogicalOr": E(np.logical_or),
    "LogicalXor": E(np.logical_xor),
    "LogicalNot": E(np.logical_not),
    "BitwiseAnd": E(np.bitwise_and),
    "BitwiseOr": E(np.bitwise_or),
    "BitwiseXor": E(np.bitwise_xor),
    "Invert": E(np.invert),
    "LeftShift": E(_shift(True)),
    "RightShift": E(_shift(False)),
    "SelectV2": E(np.where),
    "Conj": E(np.conj),
    "Real": E(np.real),
    "Imag": E(np.imag),
    "Complex": E(lambda x, y: np.stack(np.broadcast_arrays(x, y), -1).view(COMPLEX)[..., 0]),
    "AddV2": E(np.add),
    "Sub": E(np.subtract),
    "Mul": E(np.multiply, 2),
    "MulNoNan": E(lambda x, y: np.where(y == 0, 0 * y, np.multiply(x, y)), 2),
    "RealDiv": E(np.divide, 3),
    "FloorDiv": E(np.floor_divide, 2, integer=integers(_floor_div)),
    "FloorMod": E(np.remainder, integer=integers(_floor_mod)),
    "Maximum": E(np.maximum),
    "Minimum": E(np.minimum),
    "SquaredDifference": E(lambda x, y: (x - y) ** 2, 3),
    "Neg": E(np.negative),
    "Abs": E(np.abs, 2),
    "Sign": E(_sign, 3, integer=integers(lambda x: (x > 0) - (x < 0))),
    "Square": E(np.square, 2),
    "Floor": E(np.floor),
    "Ceil": E(np.ceil),
    "Round": E(np.rint, integer=lambda x: x),
    "Trunc": E(np.trunc, integer=lambda x: x),
    "TruncateMod": E(np.fmod, integer=integers(_truncate_mod)),
    "SignBit": E(np.signbit),
    "CopySign": E(np.copysign),
    "Hypot": E(np.hypot, 3),
    "Cbrt": E(np.cbrt, 4),
    "Exp2": E(np.exp2, 4),
    "Log2": E(np.log2, 8),
    "Log10": E(np.log10, 8),
    "Sqrt": E(np.sqrt, 2),
    "Rsqrt": E(lambda x: 1 / np.sqrt(x), 3),
    "Reciprocal": E(lambda x: 1 / x, 2),
    "Pow": E(np.power, 8, _power_scale, integer=integers(_whole_power)),
    "Exp": E(np.exp, 2),
    "Expm1": E(np.expm1, 6),
    "Log": E(np.log, 8),
    "Log1p": E(np.log1p, 160),
    "SqrtGrad": E(lambda y, g: g / 2 / y, 4),
    "RsqrtGrad": E(lambda y, g: -g / 2 * y**3, 4),
    "ReciprocalGrad": E(lambda y, g: -g * y**2, 4),
    "Erf": E(numbers(mpmath.erf), 4),
    "Erfc": E(numbers(_erfc), 4, lambda x: numbers(_erfc)(x) * (1 + np.minimum(x * x, 1e3))),
    "BesselI0": E(
        numbers(lambda x: _bessel(0, x)),
        8,
        lambda x: np.abs(x) * np.i0(np.minimum(np.abs(x), 700).astype(float)),
    ),
    "BesselI0e": E(numbers(lambda x: _scaled_bessel(0, x)), 8),
    "BesselI1": E(
        numbers(lambda x: _bessel(1, x)),
        8,
        lambda x: np.abs(x) * np.i0(np.minimum(np.abs(x), 700).astype(float)),
    ),
    "BesselI1e": E(numbers(lambda x: _scaled_bessel(1, x)), 8),
    "Ndtri": E(numbers(_ndtri), 16),
    "Erfinv": E(numbers(_erfinv), 16),
    "Lgamma": E(numbers(_lgamma), 8, lambda x: np.where(np.abs(x) < 100, 2 + np.abs(x), 0)),
    "Digamma": E(
        lambda x: np.where(x == 0, np.copysign(LONG(math.inf), -x), numbers(_digamma)(x)),
        12,
        lambda x: np.where(np.abs(x) < 1e6, 1 + np.log1p(np.abs(x)), 0),
    ),
    "Sin": E(np.sin, 3, _of_complex(lambda z: np.exp(np.abs(z.imag)))),
    "Cos": E(np.cos, 3, _of_complex(lambda z: np.exp(np.abs(z.imag)))),
    "Tan": E(np.tan, 6, _of_complex(lambda z: (1 + np.abs(np.tan(z))) ** 2)),
    "Asin": E(np.arcsin, 4),
    "Acos": E(np.arccos, 4),
    "Atan": E(np.arctan, 4),
    "Atan2": E(np.arctan2, 4),
    "Sinh": E(np.sinh, 6, lambda x: np.sinh(x) * (1 + np.abs(x))),
    "Cosh": E(np.cosh, 6, lambda x: np.exp(np.abs(x.real)) * (1 + np.abs(x))),
    "Tanh": E(np.tanh, 10),
    "TanhGrad": E(lambda y, g: g * (1 - y * y), 2, lambda y, g: g),
    "Asinh": E(np.arcsinh, 4),
    "Acosh": E(np.arccosh, 4),
    "Atanh": E(np.arctanh, 160),
    "Relu": E(lambda x: np.maximum(x, 0)),
    "ReluGrad": E(lambda y, g: np.where(y > 0, g, LONG(0))),
    "Relu6": E(lambda x: np.minimum(np.maximum(x, 0), 6)),
    "Relu6Grad": E(lambda y, g: np.where((y > 0) & (y < 6), g, LONG(0))),
    "LeakyRelu": E(lambda x, alpha: np.where(x > 0, x, x * alpha), 2),
    "Elu": E(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 4),
    "EluGrad": E(lambda y, g: np.where(y > 0, g, g * (y + 1)), 2),
    "Sigmoid": E(_sigmoid, 4),
    "SigmoidGrad": E(lambda y, g: g * (y * (1 - y)), 3),
    "LogSigmoid": E(lambda x: -_log1pexp(-x), 4),
    "Softplus": E(_log1pexp, 4),
    "Softsign": E(lambda x: x / (1 + np.abs(x)), 2),
    "Silu": E(lambda x: x * _sigmoid(x), 4),
    "Gelu": E(_gelu, 8, _gelu_scale),
    "LogAddExp": E(_logaddexp, 4, lambda x, y: 1 + np.maximum(x, y)),
    "Xlogy": E(lambda x, y: _zero_unless(x, x * np.log(y)), 4),
    "Xdivy": E(lambda x, y: _zero_unless(x, x / y), 2),
    "ClipByValue": E(lambda x, low, high: np.minimum(np.maximum(x, low), high)),
    "SigmoidCrossEntropyWithLogits": E(
        lambda z, x: np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x))),
        4,
        lambda z, x: np.maximum(np.abs(x), np.abs(x * z)),
    ),
    "Polygamma": E(
        lambda x, n: _polygamma(n)(x), 16, lambda x, n: np.where((x < 0) & (np.abs(x) < 1e6), LONG(4) ** n, 0)
    ),
}
del E

PARTS = {"Identity", "Equal", "NotEqual", "Neg", "Conj", "Real", "Imag", "AddV2", "Sub", "SelectV2"}
PARTS |= {"IsNan", "IsInf", "IsFinite"}
"""Of complex numbers, these treat each part by itself, so that all infinities and NaN are tested; of others
the libraries disagree on them, as docs/numerics.md says."""

MODERATE = {"SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "TanhGrad", "SigmoidGrad", "EluGrad"}
"""Steps of a gradient whose y is a result of another function, tested at sizes that such results have."""


# ---------------------------------------------------------------------------------------------- values


def edges(dtype: DType) -> Array:
    """Where arithmetic goes wrong, if it does."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        near = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2, info.max // 3]
        small = [n for n in (-100, -8, -7, -3, -2, -1) if n >= info.min] + [0, 1, 2, 3, 7, 8, 31, 63, 64, 100]
        return np.array([*near, *small], dtype.numpy)
    if dtype.is_complex:
        parts = [0.0, -0.0, 1.0, -1.5, 1e-3, 300.0, math.inf, -math.inf, math.nan]
        return np.array([complex(a, b) for a in parts for b in parts], dtype.numpy)
    tiny, eps = least_normal(dtype), ulp(LONG(1), dtype)
    size = [tiny, 2 * tiny, 1.5 * tiny, eps, 1 - eps / 2, 1, 1 + eps, greatest(dtype), greatest(dtype) / 2]
    size += [tiny * eps, tiny / 2, tiny * (1 - eps)]  # subnormal
    size += [1e-4, 0.1, 0.25, 0.5, 0.7, 1.5, math.pi / 2, 2, 2.5, 3, math.pi, 5, 7, 7.4, 7.5, 8.3, 10, 12.7]
    size += [15.5, 17, 30.2, 88.5, 89, 100, 104, 345.6, 709, 1000.3, 2049, 1e4, 1e5 / 3]
    found = [LONG(0), -LONG(0), LONG(math.inf), -LONG(math.inf), LONG(math.nan)]
    for number in size:
        if number <= greatest(dtype):
            found += [LONG(number), -LONG(number)]
    return np.array(found).astype(dtype.numpy)


def drawn(dtype: DType, count: int, generator: np.random.Generator) -> Array:
    """Numbers of all sizes, most of them not far from 1."""
    if dtype.is_bool:
        return generator.random(count) < 0.5
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        wide = generator.integers(info.min, info.max, count, dtype.numpy, endpoint=True)
        return np.where(generator.random(count) < 0.5, wide, wide % np.array(10, dtype.numpy))
    if dtype.is_complex:
        real, imag = (drawn(dtype.real, count, generator) for _ in range(2))
        return (real + 1j * imag).astype(dtype.numpy)
    low = PRECISION[dtype.name][1]
    exponent = np.where(
        generator.random(count) < 0.8, generator.uniform(-8, 8, count), generator.uniform(low, 1 - low, count)
    )
    found = generator.choice([-1.0, 1.0], count) * 2.0**exponent
    return found.astype(dtype.numpy)


def together(dtypes: Sequence[DType], count: int, generator: np.random.Generator) -> list[Array]:
    """Operands of one shape: all pairs of edges, and as many random numbers as are asked for."""
    ends = [edges(d) for d in dtypes]
    if len(ends) == 3:
        ends = [generator.permutation(e)[:13] for e in ends]
    met = np.meshgrid(*ends, indexing="ij")
    return [np.concatenate([m.ravel(), drawn(d, count, generator)]) for m, d in zip(met, dtypes, strict=True)]
