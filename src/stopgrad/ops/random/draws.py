"""Random numbers from keys: the same key gives the same numbers, on every engine and at every run.

A key is two uint32 numbers. Nothing is stored or advanced: for more numbers, :func:`random_split` a key or
:func:`random_fold_in` a number, and use each key once. Element i of a draw is the Threefry-2x32 cipher with
20 rounds (J. Salmon, M. Moraes, R. Dror and D. Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"),
applied to the counter i. Bits, keys and uniform numbers are, bit for bit, those of ``jax.random`` (in its
partitionable mode, which is its default); what is computed from them with logarithms agrees to rounding.

Arguments come in the order of TensorFlow's stateless functions, with a key where these have ``seed``: the
shape, the key, the parameters of the distribution, the dtype. The parameters broadcast to the shape; None is
the shape that they have together. A larger shape of parameters is refused, since numbers would be used twice.
A draw has the dtype that is asked for, to which the parameters are cast; by default it is the common dtype of
the parameters by NumPy's rule, not counting Python's numbers, or float32.
"""

from __future__ import annotations

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
    Op,
    Shape,
    ShapeError,
    ShapeLike,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.arithmetic import add, floormod, multiply, subtract
from stopgrad.ops.elementwise.compare import greater
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.random.keys import (
    KEY,
    NO_GRADIENT,
    check_key,
    drawn,
    drawn_shape,
    fraction,
    is_number,
    keyed,
    located,
    parameters,
    words,
)

__all__ = [
    "random_bits",
    "random_integers",
    "random_normal",
    "random_uniform",
]


def _mantissa(xp: Namespace, key: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    """Uniform numbers in [0, 1) with as many bits as the dtype's mantissa has."""
    high, low = words(xp, key, shape)
    if dtype is d.float64:
        return fraction(high, low)
    mixed = high ^ low
    if dtype is d.float32:
        return (mixed >> np.uint32(9)).astype(np.float32) * np.float32(2.0**-23)
    mask, shift, digits = (0xFFFF, 6, 10) if dtype is d.float16 else (0xFF, 1, 7)
    return ((mixed & np.uint32(mask)) >> np.uint32(shift)).astype(dtype.numpy) * np.asarray(
        2.0**-digits, dtype.numpy
    )


# ---------------------------------------------------------------------------------------------- draws


def _draw(key: TensorType, shape: Shape, dtype: DType) -> TensorType:
    check_key(key, many=True)
    size = d.product(shape)
    if isinstance(size, int) and size > 2**32:
        raise ShapeError(f"(C2) draws at most 2³² numbers from one key, not {size}; split the key")
    return d.tensor_type(dtype, (*key.shape[:-1], *shape))


class RandomBits(Op):
    """Random bits.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        dtype: of the result: uint8, uint16, uint32 or uint64.

    Returns:
        Numbers, all equally likely.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is one of unsigned integers.
    """

    @staticmethod
    def infer(key: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
        if dtype not in (d.uint8, d.uint16, d.uint32, d.uint64):
            raise DTypeError(f"(C3) takes uint8, uint16, uint32 or uint64, not {dtype}")
        return _draw(key, shape, dtype)

    gradient: d.Gradient = NO_GRADIENT

    batch = d.KEYS

    @staticmethod
    def lower(xp: Namespace, key: Array, shape: tuple[int, ...], dtype: DType) -> Array:
        high, low = words(xp, key, shape)
        if dtype is d.uint64:
            return (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
        return (high ^ low).astype(dtype.numpy)

    samples: d.Samples = [
        d.sample(KEY, shape=(2, 3), dtype=d.uint32),
        d.sample(KEY, shape=(), dtype=d.uint64),
        d.sample(KEY, shape=(0, 2), dtype=d.uint8),
    ]


@d.builds(RandomBits)
@keyed("RandomBits", "shape dtype", shape=())
def random_bits(
    shape: ShapeLike, key: ArrayLike, dtype: DTypeLike = d.uint32, name: str | None = None
) -> Tensor:
    """Random bits.

    Args:
        shape: of the result; sizes may be symbolic.
        key: the key; use it once.
        dtype: of the result: uint8, uint16, uint32 or uint64.

    Returns:
        Numbers, all equally likely; no gradient passes through them.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is one of unsigned integers.

    Examples:
        >>> sg.random_bits([2], sg.random_key(0))
        array([4070199207, 4202968722], dtype=uint32)
    """
    return drawn(RandomBits, drawn_shape(shape, key), key, d.dtype_of(dtype), name)


class Drawn(Op, abstract=True):
    """Floating-point numbers of a shape from a key.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        dtype: of the result.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point.
    """

    @staticmethod
    def infer(key: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
        d.check_dtype(d.tensor_type(dtype, ()), d.is_floating, "a floating-point dtype", "C3")
        return _draw(key, shape, dtype)

    gradient: d.Gradient = NO_GRADIENT
    batch = d.KEYS
    samples: d.Samples = [
        *(
            d.sample(KEY, shape=(2, 3), dtype=d.dtype_of(word))
            for word in ("float64", "float32", "float16", "bfloat16")
        ),
        d.sample(KEY, shape=(), dtype=d.float64),
        d.sample(KEY, shape=(0, 2), dtype=d.float32),
    ]


class RandomUniform(Drawn):
    """Random numbers with the uniform distribution on [0, 1).

    Returns:
        Multiples of 2⁻²³ for float32, of 2⁻⁵² for float64.
    """

    lower: d.Lowering = lambda xp, key, shape, dtype: _mantissa(xp, key, shape, dtype)


@d.builds(RandomUniform)
@keyed("RandomUniform", "shape dtype minval maxval", shape=())
def random_uniform(
    shape: ShapeLike,
    key: ArrayLike,
    minval: ArrayLike = 0,
    maxval: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with the uniform distribution on an interval.

    Args:
        shape: of the result; sizes may be symbolic. None: that of minval and maxval together.
        key: the key; use it once.
        minval: where the interval begins: a number or a tensor, through which gradients flow.
        maxval: where the interval ends, likewise; by default 1 for floating-point numbers. Integers need one,
            unless minval is None as well: then all of the dtype's numbers are equally likely.
        dtype: of the result: floating-point, or integer, as in :func:`random_integers`. By default that of
            floating-point minval and maxval, or float32.

    Returns:
        Numbers in [minval, maxval); rounding may give maxval itself. Before scaling and shifting, they are
        multiples of 2⁻²³ for float32 and of 2⁻⁵² for float64.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point or integer.
        (C4) minval and maxval broadcast to the shape.

    Examples:
        >>> sg.random_uniform([2], sg.random_key(0))
        array([0.947667 , 0.9785799], dtype=float32)
        >>> sg.random_uniform([2], sg.random_key(0), 0.1, 2.0, dtype=sg.float64).dtype
        dtype('float64')
    """
    target = None if dtype is None else d.dtype_of(dtype)
    if target is not None and target.is_integer:
        return integers(shape, key, minval, maxval, target, name)
    maxval = 1 if maxval is None else maxval
    target, (low, high) = parameters(dtype, minval=minval, maxval=maxval)
    sizes = drawn_shape(shape, key, minval=low, maxval=high)
    if is_number(minval, 0):
        if is_number(maxval, 1):
            return drawn(RandomUniform, sizes, key, target, name)
        return multiply(drawn(RandomUniform, sizes, key, target), high, name)
    return add(multiply(drawn(RandomUniform, sizes, key, target), subtract(high, low)), low, name)


class RandomNormal(Drawn):
    """Random numbers with the standard normal distribution.

    Args:
        dtype: of the result. Half-size types are drawn as float32 and rounded.

    Returns:
        The normal quantiles of uniform numbers, as ``jax.random.normal`` draws them.

    References:
        The quantile: M. Wichura 1988, "Algorithm AS 241: the percentage points of the normal distribution".
    """

    @staticmethod
    def lower(xp: Namespace, key: Array, shape: tuple[int, ...], dtype: DType) -> Array:
        wide = d.float64 if dtype is d.float64 else d.float32
        lowest = np.nextafter(np.asarray(-1, wide.numpy), np.asarray(0, wide.numpy))
        return quantile(xp, _mantissa(xp, key, shape, wide) * 2 + lowest).astype(dtype.numpy)


@d.builds(RandomNormal)
@keyed("RandomNormal", "shape dtype", shape=())
def random_normal(
    shape: ShapeLike,
    key: ArrayLike,
    mean: ArrayLike = 0.0,
    stddev: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a normal distribution.

    Args:
        shape: of the result; sizes may be symbolic. None: that of mean and stddev together.
        key: the key; use it once.
        mean: a number or a tensor, through which gradients flow.
        stddev: the standard deviation, likewise.
        dtype: of the result; by default that of a floating-point mean and stddev, or float32. Half-size types
            are drawn as float32 and rounded.

    Returns:
        The numbers mean + stddev · z, where z is the normal quantile of a uniform number, as
        ``jax.random.normal`` draws it.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point.
        (C4) mean and stddev broadcast to the shape.

    Examples:
        >>> sg.random_normal([2], sg.random_key(0), dtype=sg.float64).shape
        (2,)
    """
    target, (loc, scale) = parameters(dtype, mean=mean, stddev=stddev)
    sizes = drawn_shape(shape, key, mean=loc, stddev=scale)
    return located(lambda name: drawn(RandomNormal, sizes, key, target, name), mean, loc, stddev, scale, name)


_CENTRE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_SHOULDER = (
    (7.74545014278341407640e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    above, below = (x * c[0] + c[1] for c in coefficients)
    for a, b in zip(coefficients[0][2:], coefficients[1][2:], strict=True):
        above, below = above * x + a, below * x + b
    return above / below


def quantile(xp: Namespace, v: Array) -> Array:
    """The normal quantile of (1 + v) / 2, for v in (-1, 1)."""
    q = v * 0.5
    away = xp.sqrt(-xp.log(0.5 - xp.abs(q)))
    outer = xp.where(away <= 5, _ratio(_SHOULDER, away - 1.6), _ratio(_TAIL, away - 5))
    return xp.where(xp.abs(q) <= 0.425, q * _ratio(_CENTRE, 0.180625 - q * q), xp.where(q < 0, -outer, outer))


@d.reads_arguments
def integers(
    shape: ShapeLike,
    key: ArrayLike,
    minval: ArrayLike | None,
    maxval: ArrayLike | None,
    dtype: DType,
    name: str | None,
) -> Tensor:
    """Integers from minval to maxval - 1, or all integers of the dtype if both are None."""
    limits = np.iinfo(dtype.numpy)
    if minval is None and maxval is None:
        minval, maxval = int(limits.min), int(limits.max) + 1
    if minval is None or maxval is None:
        raise ArgumentError("integers need both a minval and a maxval, or None for both")
    bounds = {"minval": minval, "maxval": maxval}
    for what, x in bounds.items():
        if not d.is_whole(x) and not d.type_of(x).dtype.is_integer:
            raise DTypeError(f"{what} is an integer, as the dtype {dtype} is, not {d.type_of(x)!r}")
    if d.is_whole(minval) and d.is_whole(maxval):
        least, beyond = d.whole(minval), d.whole(maxval)
        if not limits.min <= least < beyond <= limits.max + 1:
            raise ArgumentError(
                f"minval={least} must be less than maxval={beyond}, both within those of {dtype}: "
                f"{limits.min} and {int(limits.max) + 1}"
            )
        bits = random_bits(drawn_shape(shape, key), key, d.uint64)
        if beyond - least < 2**64:
            bits = floormod(bits, d.as_array(beyond - least, d.uint64))
        return add(cast(bits, dtype), d.as_array(least, dtype), name)
    low, high = (d.as_array(d.whole(x), d.int64) if d.is_whole(x) else x for x in bounds.values())
    bits = random_bits(drawn_shape(shape, key, minval=low, maxval=high), key, d.uint64)
    wide = [cast(x, d.uint64) for x in (low, high)]
    size = where(greater(high, low), subtract(wide[1], wide[0]), d.as_array(1, d.uint64))
    return add(cast(floormod(bits, size), dtype), cast(low, dtype), name)


@keyed("random_integers", "shape minval maxval dtype")
def random_integers(
    shape: ShapeLike,
    key: ArrayLike,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike = d.int32,
    name: str | None = None,
) -> Tensor:
    """Integers from minval to maxval - 1.

    Args:
        shape: of the result; sizes may be symbolic. None: that of minval and maxval together.
        key: the key; use it once.
        minval: the least: an integer or a tensor of integers. With None for both, the integers are all those
            of the dtype.
        maxval: one more than the greatest. Where a tensor is no greater than minval, the result is minval.
        dtype: of the result; an integer one.

    Returns:
        Integers of that shape: 64 random bits modulo maxval - minval, so that all are equally likely up to a
        relative error of (maxval - minval) / 2⁶⁴. No gradient passes to minval and maxval.

    Examples:
        >>> sg.random_integers([3], sg.random_key(0), 0, 10)
        array([0, 7, 9], dtype=int32)
    """
    target = d.dtype_of(dtype)
    if not target.is_integer:
        raise DTypeError(f"the dtype of integers is one of integers, not {target}; see sg.random_uniform")
    return integers(shape, key, minval, maxval, target, name)
