"""Random numbers from keys: the same key gives the same numbers, on every engine and at every run.

A key is two uint32 numbers. Nothing is stored or advanced: for more numbers, :func:`random_split` a key or
:func:`random_fold_in` a number, and use each key once. Element i of a draw is the Threefry-2x32 cipher with
20 rounds (J. Salmon, M. Moraes, R. Dror and D. Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"),
applied to the counter i. Bits, keys and uniform numbers are, bit for bit, those of ``jax.random`` (in its
partitionable mode, which is its default); what is computed from them with logarithms agrees to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.batch_rules import KEYS
from stopgrad.build import about, apply
from stopgrad.errors import DTypeError, ShapeError
from stopgrad.op import Op, not_differentiable
from stopgrad.operands import Tensor, as_array, is_python, type_of
from stopgrad.ops.arithmetic import add, multiply, subtract
from stopgrad.ops.convert import cast
from stopgrad.ops.data import constant
from stopgrad.ops.inference import check_dtype, is_floating, is_integer
from stopgrad.ops.join import stack
from stopgrad.public import builds, guarded
from stopgrad.samples import sample
from stopgrad.types import (
    DType,
    DTypeLike,
    Shape,
    ShapeLike,
    Size,
    TensorType,
    dtype_of,
    float16,
    float32,
    float64,
    product,
    same_size,
    shape_of,
    tensor_type,
    uint32,
)

__all__ = [
    "random_bits",
    "random_fold_in",
    "random_key",
    "random_normal",
    "random_split",
    "random_uniform",
]

_NO_GRADIENT = not_differentiable("random bits carry no gradient")
_KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(xp: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """The Threefry-2x32-20 cipher: from two words of a key and two of a counter to two words.

    All are uint32 and broadcast.
    """
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(_PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for step in range(5):
        for distance in _ROTATIONS[step % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(distance)) | (x1 >> np.uint32(32 - distance)))
        x0 = x0 + keys[(step + 1) % 3]
        x1 = x1 + keys[(step + 2) % 3] + np.uint32(step + 1)
    return x0, x1


def _words(xp: Any, key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Two words for each element of a shape, for each key. The counter is the position in row-major order."""
    counter = xp.zeros(shape, np.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        along = xp.arange(shape[axis], dtype=np.uint32) * np.uint32(stride % 2**32)
        counter = counter + along.reshape((-1,) + (1,) * (len(shape) - axis - 1))
        stride *= shape[axis]
    many = (*key.shape[:-1], *(1,) * len(shape))
    k0, k1 = key[..., :1].reshape(many), key[..., 1:].reshape(many)
    return threefry(xp, k0, k1, xp.zeros(shape, np.uint32), counter)


def _mantissa(xp: Any, key: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """Uniform numbers in [0, 1) with as many bits as the dtype's mantissa has."""
    high, low = _words(xp, key, shape)
    if dtype is float64:
        return (high.astype(np.float64) * 2.0**20 + (low >> np.uint32(12)).astype(np.float64)) * 2.0**-52
    mixed = high ^ low
    if dtype is float32:
        return (mixed >> np.uint32(9)).astype(np.float32) * np.float32(2.0**-23)
    mask, shift, digits = (0xFFFF, 6, 10) if dtype is float16 else (0xFF, 1, 7)
    return ((mixed & np.uint32(mask)) >> np.uint32(shift)).astype(dtype.numpy) * np.asarray(
        2.0**-digits, dtype.numpy
    )


# ----------------------------------------------------------------------------------------------- keys


def check_key(key: TensorType, *, many: bool = False) -> None:
    """Refuse what is not a key (C1); with *many*, one for each example, as vmap makes it, is one too."""
    if key.dtype is not uint32:
        raise DTypeError(f"(C1) a key is two uint32 numbers, made by sg.random_key, not {key!r}")
    if not (key.ndim == 1 or (many and key.ndim)) or not same_size(key.shape[-1], 2):
        raise ShapeError(
            f"(C1) a key is two uint32 numbers, not {key!r}; of several keys take one, as in keys[0]"
        )


@guarded("random_key")
def random_key(seed: Any, name: str | None = None) -> Tensor:
    """A key from a seed.

    Args:
        seed: a Python integer, taken modulo 2⁶⁴, or a scalar integer tensor of at most 32 bits.

    Returns:
        A key: two uint32 numbers.

    Examples:
        >>> sg.random_key(7)
        array([0, 7], dtype=uint32)
    """
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        number = int(seed) % 2**64
        return constant(np.array([number >> 32, number % 2**32], np.uint32), name=name)
    kind = type_of(seed)
    if not kind.dtype.is_integer or kind.ndim or kind.dtype.itemsize > 4:
        raise DTypeError(
            f"a seed is a Python integer or a scalar integer tensor of at most 32 bits, not {kind!r}"
        )
    return stack([as_array(0, uint32), cast(seed, uint32)], name=name)


def _from_key(
    definition: type[Op], operands: tuple[Any, ...], values: tuple[Any, ...], name: str | None
) -> Tensor:
    """An operation on one key: only vmap builds it for several."""
    with about(definition, *operands):
        check_key(type_of(operands[0]))
    return apply(definition, operands, values, name)


class RandomSplit(Op):
    """Several new keys from one.

    Args:
        key: the key to split; do not use it again.
        n: how many keys.

    Returns:
        A tensor uint32[n, 2]: a key in each row.

    Constraints:
        (C1) The key is two uint32 numbers.

    Examples:
        >>> sg.random_split(sg.random_key(0)).shape
        (2, 2)
    """

    @staticmethod
    def infer(key: TensorType, *, n: Size) -> TensorType:
        check_key(key, many=True)
        return tensor_type(uint32, (*key.shape[:-1], n, 2))

    gradient = _NO_GRADIENT
    batch = KEYS
    lower = lambda xp, key, n: xp.stack(_words(xp, key, (n,)), -1)
    samples = [sample(_KEY, n=2), sample(_KEY, n=0)]


@builds(RandomSplit)
def random_split(key: Any, n: Any = 2, name: str | None = None) -> Tensor:
    return _from_key(RandomSplit, (key,), (shape_of(n)[0],), name)


class RandomFoldIn(Op):
    """A new key from a key and a number, such as the number of a step.

    Args:
        key: the key.
        data: the number, taken modulo 2³².

    Returns:
        A key.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) data is a scalar integer.

    Examples:
        >>> sg.random_fold_in(sg.random_key(0), 1).shape
        (2,)
    """

    @staticmethod
    def infer(key: TensorType, data: TensorType) -> TensorType:
        check_key(key, many=True)
        check_dtype(data, is_integer, "an integer to fold in", "C2")
        if data.ndim != key.ndim - 1 or not all(map(same_size, data.shape, key.shape)):
            raise ShapeError(f"(C2) takes a scalar to fold in, not {data!r}")
        return key

    gradient = _NO_GRADIENT

    batch = KEYS

    @staticmethod
    def lower(xp: Any, key: Any, data: Any) -> Any:
        low = xp.asarray(data).astype(np.uint32)[..., None]
        return xp.concatenate(threefry(xp, key[..., :1], key[..., 1:], xp.zeros((1,), np.uint32), low), -1)

    samples = [sample(_KEY, np.array(3, np.int32)), sample(_KEY, np.array(-1, np.int64))]


@builds(RandomFoldIn)
def random_fold_in(key: Any, data: Any, name: str | None = None) -> Tensor:
    number = np.asarray(int(data) % 2**32, np.uint32) if isinstance(data, (int, np.integer)) else data
    return _from_key(RandomFoldIn, (key, number), (), name)


# ---------------------------------------------------------------------------------------------- draws


def _draw(key: TensorType, shape: Shape, dtype: DType) -> TensorType:
    check_key(key, many=True)
    size = product(shape)
    if isinstance(size, int) and size > 2**32:
        raise ShapeError(f"(C2) draws at most 2³² numbers from one key, not {size}; split the key")
    return tensor_type(dtype, (*key.shape[:-1], *shape))


class RandomBits(Op):
    """Random bits.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.

    Returns:
        Numbers as uint32, all equally likely.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.

    Examples:
        >>> sg.random_bits(sg.random_key(0), [2])
        array([4070199207, 4202968722], dtype=uint32)
    """

    @staticmethod
    def infer(key: TensorType, *, shape: Shape) -> TensorType:
        return _draw(key, shape, uint32)

    gradient = _NO_GRADIENT

    batch = KEYS

    @staticmethod
    def lower(xp: Any, key: Any, shape: tuple[int, ...]) -> Any:
        high, low = _words(xp, key, shape)
        return high ^ low

    samples = [sample(_KEY, shape=(2, 3)), sample(_KEY, shape=()), sample(_KEY, shape=(0, 2))]


@builds(RandomBits)
def random_bits(key: Any, shape: ShapeLike, name: str | None = None) -> Tensor:
    return _from_key(RandomBits, (key,), (shape_of(shape),), name)


class Drawn(Op, abstract=True):
    """Floating-point numbers of a shape from a key."""

    @staticmethod
    def infer(key: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
        check_dtype(tensor_type(dtype, ()), is_floating, "a floating-point dtype", "C3")
        return _draw(key, shape, dtype)

    gradient = _NO_GRADIENT
    batch = KEYS
    samples = [
        *(
            sample(_KEY, shape=(2, 3), dtype=dtype_of(d))
            for d in ("float64", "float32", "float16", "bfloat16")
        ),
        sample(_KEY, shape=(), dtype=float64),
        sample(_KEY, shape=(0, 2), dtype=float32),
    ]


class RandomUniform(Drawn):
    """Random numbers of which all in [0, 1) are equally likely.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        dtype: of the result.

    Returns:
        Multiples of 2⁻²³ for float32, of 2⁻⁵² for float64.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point.
    """

    lower = lambda xp, key, shape, dtype: _mantissa(xp, key, shape, dtype)


@builds(RandomUniform)
def random_uniform(
    key: Any,
    shape: ShapeLike,
    low: Any = 0.0,
    high: Any = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers of which all in an interval are equally likely.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        low: where the interval begins: a number or a floating-point tensor, through which gradients flow.
        high: where the interval ends, likewise.
        dtype: of the result; by default that of low or high, or float32.

    Returns:
        Numbers in [low, high); before they are moved into it, multiples of 2⁻²³ for float32 and of 2⁻⁵² for
        float64.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point.

    Examples:
        >>> sg.random_uniform(sg.random_key(0), [2])
        array([0.947667 , 0.9785799], dtype=float32)
    """
    u = _from_key(RandomUniform, (key,), (shape_of(shape), drawn_dtype(dtype, low, high)), name)
    if _is_number(low, 0):
        return u if _is_number(high, 1) else multiply(u, high)
    return add(multiply(u, subtract(_meeting(high, u, low), low)), low)


class RandomNormal(Drawn):
    """Random numbers with the standard normal distribution.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        dtype: of the result. Half-size types are drawn as float32 and rounded.

    Returns:
        The normal quantiles of uniform numbers, as ``jax.random.normal`` draws them.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point.

    References:
        The quantile: M. Wichura 1988, "Algorithm AS 241: the percentage points of the normal distribution".
    """

    @staticmethod
    def lower(xp: Any, key: Any, shape: tuple[int, ...], dtype: DType) -> Any:
        wide = float64 if dtype is float64 else float32
        lowest = np.nextafter(np.asarray(-1, wide.numpy), np.asarray(0, wide.numpy))
        return _quantile(xp, _mantissa(xp, key, shape, wide) * 2 + lowest).astype(dtype.numpy)


@builds(RandomNormal)
def random_normal(
    key: Any,
    shape: ShapeLike,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a normal distribution.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        mean: a number or a floating-point tensor, through which gradients flow.
        stddev: the standard deviation, likewise.
        dtype: of the result; by default that of mean or stddev, or float32. Half-size types are drawn as
            float32 and rounded.

    Returns:
        The numbers mean + stddev · z, where z is the normal quantile of a uniform number, as
        ``jax.random.normal`` draws it.

    Constraints:
        (C1) The key is two uint32 numbers.
        (C2) The result has at most 2³² elements.
        (C3) The dtype is floating-point.

    Examples:
        >>> sg.random_normal(sg.random_key(0), [2], dtype=sg.float64).shape
        (2,)
    """
    z = _from_key(RandomNormal, (key,), (shape_of(shape), drawn_dtype(dtype, mean, stddev)), name)
    z = z if _is_number(stddev, 1) else multiply(z, stddev)
    return z if _is_number(mean, 0) else add(z, mean)


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


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    above, below = (x * c[0] + c[1] for c in coefficients)
    for a, b in zip(coefficients[0][2:], coefficients[1][2:], strict=True):
        above, below = above * x + a, below * x + b
    return above / below


def _quantile(xp: Any, v: Any) -> Any:
    """The normal quantile of (1 + v) / 2, for v in (-1, 1)."""
    q = v * 0.5
    away = xp.sqrt(-xp.log(0.5 - xp.abs(q)))
    outer = xp.where(away <= 5, _ratio(_SHOULDER, away - 1.6), _ratio(_TAIL, away - 5))
    return xp.where(xp.abs(q) <= 0.425, q * _ratio(_CENTRE, 0.180625 - q * q), xp.where(q < 0, -outer, outer))


def drawn_dtype(dtype: DTypeLike | None, *operands: Any) -> DType:
    """The dtype asked for, or that of the first operand that has a floating-point one, or float32."""
    if dtype is not None:
        return dtype_of(dtype)
    found = next(
        (type_of(x).dtype for x in operands if hasattr(x, "dtype") or hasattr(x, "as_output")), float32
    )
    return found if found.is_floating else float32


def _meeting(x: Any, drawn: Any, other: Any) -> Any:
    """A number that meets another one, and would take no dtype from it, in that of what was drawn."""
    return as_array(x, type_of(drawn).dtype) if is_python(x) and is_python(other) else x


def _is_number(x: Any, value: float) -> bool:
    return isinstance(x, (int, float)) and x == value
