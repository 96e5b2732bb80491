"""Sample operands, which each operation's definition lists, and from which its tests are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stopgrad.base.types import DType, DTypeLike, bool_, complex128, dtype_of, float64, int32


class Values(NamedTuple):
    """Random values of a shape and dtype in ``[low, high)``.

    A size may be a name: then the sample is also built symbolically. *diagonal* is added to the main diagonal
    of each matrix: if it dominates, the matrices are far from singular, and positive definite.
    """

    shape: tuple[int | str, ...]
    dtype: DType
    low: float = -2.0
    high: float = 2.0
    distinct: bool = False
    diagonal: float = 0.0

    def draw(self, generator: np.random.Generator, sizes: dict[str, int]) -> np.ndarray[Any, Any]:
        shape = tuple(sizes.get(s, 3) if isinstance(s, str) else s for s in self.shape)
        if self.dtype.is_bool:
            return generator.random(shape) < 0.5
        if self.dtype.is_integer:
            return generator.integers(int(self.low), int(self.high), shape).astype(self.dtype.numpy)
        if self.distinct:
            # Far enough apart that a finite difference keeps their order.
            count = int(np.prod(shape))
            spread = self.low + (self.high - self.low) * (generator.permutation(count) + 0.5) / max(count, 1)
            return np.reshape(spread, shape).astype(self.dtype.numpy)
        drawn = generator.uniform(self.low, self.high, shape)
        if self.dtype.is_complex:
            drawn = drawn + 1j * generator.uniform(self.low, self.high, shape)
        if self.diagonal:
            drawn = drawn + self.diagonal * np.eye(shape[-2], shape[-1])
        return np.asarray(drawn, self.dtype.numpy)


class Sample(NamedTuple):
    """One call of an operation: its operands and attributes."""

    operands: tuple[Values | np.ndarray[Any, Any], ...]
    attributes: Mapping[str, Any] = MappingProxyType({})

    def __repr__(self) -> str:
        shapes = ",".join("x".join(map(str, o.shape)) or "()" for o in self.operands)
        attributes = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{shapes};{attributes}" if attributes else shapes


def floats(
    *shape: int | str,
    low: float = -2.0,
    high: float = 2.0,
    dtype: DType = float64,
    distinct: bool = False,
    diagonal: float = 0.0,
) -> Values:
    return Values(shape, dtype, low, high, distinct, diagonal)


def complexes(*shape: int | str, diagonal: float = 0.0) -> Values:
    return Values(shape, complex128, diagonal=diagonal)


def ints(*shape: int | str, low: int = -5, high: int = 6, dtype: DType = int32) -> Values:
    return Values(shape, dtype, low, high)


def bools(*shape: int | str) -> Values:
    return Values(shape, bool_)


def sample(*operands: Values | npt.ArrayLike, **attributes: object) -> Sample:
    return Sample(tuple(o if isinstance(o, Values) else np.asarray(o) for o in operands), attributes)


def singles(
    low: float = -2.0,
    high: float = 2.0,
    *,
    dtypes: Sequence[DTypeLike] = (float64,),
    shapes: Sequence[tuple[int | str, ...]] = ((3,), ("n", 2), (0, 2)),
) -> list[Sample]:
    """Samples for an elementwise operation of one operand, with values in ``[low, high)``."""
    return [sample(Values(shape, dtype_of(dtype), low, high)) for dtype in dtypes for shape in shapes]


def pairs(
    x: tuple[float, float] = (-2.0, 2.0),
    y: tuple[float, float] = (-2.0, 2.0),
    *,
    dtypes: Sequence[DTypeLike] = (float64,),
    shapes: Sequence[tuple[tuple[int | str, ...], tuple[int | str, ...]]] = (
        ((3,), (2, 3)),
        (("n",), ()),
        ((2, 1), (1, 3)),
        ((0, 2), (2,)),
    ),
) -> list[Sample]:
    """Samples for an elementwise operation of two operands, with broadcasting."""
    return [
        sample(Values(p, dtype_of(dtype), *x), Values(q, dtype_of(dtype), *y))
        for dtype in dtypes
        for p, q in shapes
    ]
