"""What is made from random numbers: samples of other distributions, random orders, dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.errors import ArgumentError
from stopgrad.operands import Tensor, as_array, type_of
from stopgrad.ops.arithmetic import add, floormod, maximum, multiply, negative
from stopgrad.ops.compare import less
from stopgrad.ops.convert import cast, where
from stopgrad.ops.index import gather
from stopgrad.ops.inference import normal_axis
from stopgrad.ops.order import argsort
from stopgrad.ops.powers import log
from stopgrad.ops.random import drawn_dtype, random_bits, random_uniform
from stopgrad.ops.reduce import argmax
from stopgrad.plain import whole
from stopgrad.public import guarded
from stopgrad.types import DTypeLike, ShapeLike, dtype_of, float16, float64, int32, shape_of, uint32

__all__ = [
    "dropout",
    "random_bernoulli",
    "random_categorical",
    "random_gumbel",
    "random_integers",
    "random_permutation",
]


@guarded("random_bernoulli")
def random_bernoulli(key: Any, p: Any = 0.5, shape: ShapeLike = None, name: str | None = None) -> Tensor:
    """Booleans that hold with probability p.

    Args:
        key: the key; use it once.
        p: a number or a floating-point tensor.
        shape: of the result; by default p's.

    Returns:
        Booleans; no gradient passes to p. For one that estimates it, see :func:`straight_through`.

    Examples:
        >>> sg.random_bernoulli(sg.random_key(0), 0.5, [4])
        array([False, False,  True,  True])
    """
    sizes = type_of(p).shape if shape is None else shape_of(shape)
    return less(random_uniform(key, sizes, dtype=drawn_dtype(None, p)), p, name)


@guarded("random_gumbel")
def random_gumbel(
    key: Any, shape: ShapeLike, dtype: DTypeLike = "float32", name: str | None = None
) -> Tensor:
    """Random numbers with a standard Gumbel distribution, -log(-log u) for uniform u.

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        dtype: of the result; floating-point.

    Returns:
        A tensor of that type.

    Examples:
        >>> sg.random_gumbel(sg.random_key(0), [2]).shape
        (2,)
    """
    smallest = (
        np.finfo(np.float32).tiny
        if dtype_of(dtype) is not float64 and dtype_of(dtype) is not float16
        else np.finfo(dtype_of(dtype).numpy).tiny
    )
    u = maximum(random_uniform(key, shape, dtype=dtype), float(smallest))
    return negative(log(negative(log(u))), name)


@guarded("random_categorical")
def random_categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: ShapeLike | tuple[()] = (),
    dtype: DTypeLike = int32,
    name: str | None = None,
) -> Tensor:
    """Class numbers, drawn with probabilities softmax(logits).

    Args:
        key: the key; use it once.
        logits: floating-point numbers.
        axis: that of the classes.
        shape: sizes to put in front, to draw several times.
        dtype: of the result: int32 or int64.

    Returns:
        Integers of shape ``shape`` + the logits' shape without the axis. No gradient passes to the logits;
        for a differentiable relaxation add :func:`random_gumbel` and take :func:`softmax`.

    Constraints:
        (C1) The axis exists in logits.

    References:
        The Gumbel-max trick.

    Examples:
        >>> sg.random_categorical(sg.random_key(0), np.array([0.0, -np.inf]), shape=[3])
        array([0, 0, 0], dtype=int32)
    """
    kind = type_of(logits)
    behind = normal_axis(axis, kind.ndim, "C1") - kind.ndim
    noise = random_gumbel(key, (*shape_of(shape), *kind.shape), kind.dtype)
    return argmax(add(noise, logits), behind, dtype, name)


@guarded("random_integers")
def random_integers(
    key: Any, shape: ShapeLike, low: int, high: int, dtype: DTypeLike = int32, name: str | None = None
) -> Tensor:
    """Integers from low to high - 1. They are all equally likely but for a part in 2³² / (high - low).

    Args:
        key: the key; use it once.
        shape: of the result; sizes may be symbolic.
        low: the least, a Python integer.
        high: one more than the greatest; less than 2³² above low.
        dtype: of the result.

    Returns:
        Integers of that shape.

    Examples:
        >>> sg.random_integers(sg.random_key(0), [3], 0, 10)
        array([7, 2, 6], dtype=int32)
    """
    low, high = whole(low), whole(high)
    if not low < high <= low + 2**32 - 1:
        raise ArgumentError(f"low={low} must be less than high={high}, by less than 2³²")
    return add(cast(floormod(random_bits(key, shape), as_array(high - low, uint32)), dtype), low, name)


@guarded("random_permutation")
def random_permutation(key: Any, x: Any, name: str | None = None) -> Tensor:
    """The slices of a tensor along its first axis, or the numbers below a Python integer, in random order.

    Two orders of n are equally likely but for a part in 2³² / n².

    Args:
        key: the key; use it once.
        x: a tensor with at least one axis, or a Python integer.

    Returns:
        A tensor of x's type; for an integer, its int32 numbers.

    Examples:
        >>> np.sort(sg.random_permutation(sg.random_key(0), 4))
        array([0, 1, 2, 3], dtype=int32)
    """
    sized = not hasattr(x, "dtype") or isinstance(x, np.integer)
    count = shape_of(x)[0] if sized else type_of(x).shape[0]
    order = argsort(random_bits(key, (count,)), name=name if sized else None)
    return order if sized else gather(x, order, name=name)


@guarded("dropout")
def dropout(x: Any, rate: float, key: Any, name: str | None = None) -> Tensor:
    """A tensor with each element set to 0 with probability *rate*, and the others divided by 1 - rate.

    Args:
        x: floating-point numbers.
        rate: a Python number in [0, 1).
        key: the key; use it once.

    Returns:
        A tensor of x's type.

    References:
        Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks from overfitting".

    Examples:
        >>> sg.dropout(np.ones(4), 0.5, sg.random_key(0))
        array([0., 0., 2., 2.])
    """
    if not 0 <= rate < 1:
        raise ArgumentError(f"the rate must lie in [0, 1), not {rate!r}")
    kept = random_bernoulli(key, np.asarray(1 - rate, np.float32), type_of(x).shape)
    return where(kept, multiply(x, 1 / (1 - rate)), 0, name)
