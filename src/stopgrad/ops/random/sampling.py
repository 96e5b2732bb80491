"""Sampling: random booleans, classes, permutations and choices, and dropout."""

from __future__ import annotations

from typing import Any, TypeGuard, cast as typed

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    Dim,
    DTypeLike,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Tensor,
)
from stopgrad.ops.elementwise.arithmetic import add, divide, multiply, subtract
from stopgrad.ops.elementwise.compare import greater, less
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.powers import log
from stopgrad.ops.indexing.gather import gather
from stopgrad.ops.order.sorting import argsort, top_k
from stopgrad.ops.random.distributions import gumbel_noise
from stopgrad.ops.random.draws import integers, random_bits, random_uniform
from stopgrad.ops.random.keys import broadcasts_to, checked_key, drawn_shape, is_key, keyed, parameters
from stopgrad.ops.reductions.cumulative import cumsum
from stopgrad.ops.reductions.reduce import argmax
from stopgrad.ops.shapes.reshape import expand_dims, reduce_sum, reshape, transpose
from stopgrad.ops.structural.sources import size_as

__all__ = [
    "dropout",
    "random_bernoulli",
    "random_categorical",
    "random_choice",
    "random_permutation",
    "random_shuffle",
]


@keyed("random_bernoulli", "p shape", shape=None)
def random_bernoulli(shape: ShapeLike, key: ArrayLike, p: ArrayLike = 0.5, name: str | None = None) -> Tensor:
    """Booleans that are True with probability p.

    Args:
        shape: of the result; sizes may be symbolic. None: p's.
        key: the key; use it once.
        p: a number or a tensor, which broadcasts to the shape. Where it is NaN, the result is False.

    Returns:
        Booleans. No gradient passes to p, since a comparison has none; :func:`straight_through` gives an
        estimate.

    Examples:
        >>> sg.random_bernoulli([4], sg.random_key(0), 0.5)
        array([False, False,  True,  True])
    """
    dtype, (chance,) = parameters(None, p=p)
    sizes = drawn_shape(shape, key, p=chance)
    return less(random_uniform(sizes, key, dtype=dtype), chance, name)


@keyed("random_categorical", "logits axis", num_samples=None)
def random_categorical(
    logits: ArrayLike,
    num_samples: ShapeLike,
    key: ArrayLike,
    dtype: DTypeLike = d.int64,
    name: str | None = None,
    *,
    axis: int = -1,
) -> Tensor:
    """Class numbers, drawn with probabilities softmax(logits).

    Args:
        logits: floating-point numbers, with an axis of classes; -∞ for a class that never comes.
        num_samples: how many are drawn from each distribution; None for one, without an axis of samples.
        key: the key; use it once.
        dtype: of the result: int32 or int64.
        axis: that of the classes.

    Returns:
        Integers of the logits' shape without the axis of classes, with an axis of num_samples at its end. No
        gradient passes to the logits, since the position of a maximum has none; for a differentiable
        relaxation add :func:`random_gumbel` and take :func:`softmax`.

    Constraints:
        (C1) The axis exists in logits.

    References:
        The Gumbel-max trick. The numbers are those of ``jax.random.categorical``, whose axis of samples comes
        first.

    Examples:
        >>> sg.random_categorical(np.array([[0.0, -np.inf], [-np.inf, 0.0]]), 3, sg.random_key(0))
        array([[0, 0, 0],
               [1, 1, 1]])
    """
    checked_key(key, "logits, num_samples")
    float_dtype, (weights,) = parameters(None, logits=logits)
    kind = d.type_of(weights)
    axis_from_end = d.normal_axis(axis, kind.ndim, "C1") - kind.ndim
    if num_samples is None:
        return argmax(add(gumbel_noise(kind.shape, key, float_dtype), weights), axis_from_end, dtype, name)
    sizes = _count(num_samples, "num_samples")
    draws = argmax(add(gumbel_noise((*sizes, *kind.shape), key, float_dtype), weights), axis_from_end, dtype)
    return transpose(draws, [*range(1, kind.ndim), 0], name=name)


@d.reads_arguments
def _count(count: ShapeLike, what: str) -> tuple[Size]:
    if isinstance(count, (list, tuple)):
        raise ShapeError(f"{what} is one number, not {count!r:.60}")
    return (d.shape_of(count)[0],)


@keyed("random_permutation", "value axis")
def random_permutation(value: ArrayLike, key: ArrayLike, name: str | None = None, *, axis: int = 0) -> Tensor:
    """The slices of a tensor along an axis, or the numbers below an integer, in random order.

    All orders of n slices are equally likely up to a relative error of n² / 2³².

    Args:
        value: a tensor with at least one axis, or an integer.
        key: the key; use it once.
        axis: along which; the first by default.

    Returns:
        A tensor of value's type; for an integer, int32 numbers. The gradient is permuted back.

    Examples:
        >>> np.sort(sg.random_permutation(4, sg.random_key(0)))
        array([0, 1, 2, 3], dtype=int32)
    """
    checked_key(key, "value")
    if _is_size(value):
        return argsort(random_bits(d.shape_of(value), key), name=name)
    return _shuffled(value, key, axis, name)


@keyed("random_shuffle", "value")
def random_shuffle(value: ArrayLike, key: ArrayLike, name: str | None = None) -> Tensor:
    """The slices of a tensor along its first axis, in random order: :func:`random_permutation` for axis 0.

    Args:
        value: a tensor with at least one axis.
        key: the key; use it once.

    Returns:
        A tensor of value's type.

    Examples:
        >>> np.sort(sg.random_shuffle(np.array([3, 1, 2]), sg.random_key(0)))
        array([1, 2, 3])
    """
    checked_key(key, "value")
    return _shuffled(value, key, 0, name)


@d.reads_arguments
def _shuffled(value: ArrayLike, key: ArrayLike, axis: int, name: str | None) -> Tensor:
    kind = d.type_of(value)
    if not kind.ndim:
        raise ShapeError("a number has no order; takes a tensor with at least one axis")
    along = d.normal_axis(axis, kind.ndim)
    return gather(value, argsort(random_bits((kind.shape[along],), key)), axis=along, name=name)


def _is_size(x: ArrayLike) -> TypeGuard[Size]:
    """Whether this is a size, which may be symbolic, and not a tensor."""
    return d.is_whole(x) or not (hasattr(x, "dtype") or hasattr(x, "as_output") or hasattr(x, "__len__"))


@keyed("random_choice", "a shape replace p axis", shape=())
def random_choice(
    shape: ShapeLike,
    key: ArrayLike,
    a: ArrayLike,
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    name: str | None = None,
) -> Tensor:
    """Slices of a tensor along an axis, or numbers below an integer, chosen at random.

    Args:
        shape: the shape of the choices; sizes may be symbolic.
        key: the key; use it once.
        a: a tensor with at least one axis, or an integer.
        replace: whether a slice may be chosen more than once.
        p: the weight of each slice, which need not sum to 1; by default all are equally likely. No gradient
            passes to it, since comparisons have none.
        axis: along which.

    Returns:
        A tensor of a's dtype and shape, with ``shape`` in the place of the axis; for an integer a, int32
        numbers.

    Constraints:
        (C1) Without replacement, no more are chosen than there are.
        (C2) The axis exists in a.
        (C3) p has one axis, of as many weights as there are slices.

    References:
        Without replacement, with weights: the largest of log p plus Gumbel noise (Kool, van Hoof and Welling
        2019, arXiv:1903.06059).

    Examples:
        >>> sg.random_choice([3], sg.random_key(0), np.array([5.0, 7.0]), p=[0.0, 1.0])
        array([7., 7., 7.])
    """
    checked_key(key, "shape")
    again = d.flag(replace, "replace")
    sized = _is_size(a)
    along = 0 if sized else d.normal_axis(axis, d.type_of(a).ndim, "C2")
    count = d.shape_of(a)[0] if _is_size(a) else d.type_of(a).shape[along]
    sizes = d.shape_of(shape)
    total = d.product(sizes)
    most = total if again and count else count
    if isinstance(most, int) and isinstance(total, int) and total > most:
        raise ShapeError(f"(C1) cannot choose {total} of {count}{'' if again else ' without replacement'}")
    if p is not None:
        _, (weights,) = parameters(None, p=p)
        if d.type_of(weights).ndim != 1 or not d.same_size(d.type_of(weights).shape[0], count):
            raise ShapeError(f"(C3) p holds a weight for each of {count}, not {d.type_of(weights)!r}")
        chosen = _weighted(sizes, total, key, weights, again)
    elif again:
        limit = max(count, 1) if isinstance(count, int) else size_as(count, d.int32, key)
        chosen = integers(sizes, key, 0, limit, d.int32, None)
    else:
        chosen = argsort(random_bits((count,), key))[:total]
    return reshape(chosen, sizes, name) if sized else gather(a, reshape(chosen, sizes), axis=along, name=name)


def _weighted(sizes: Shape, total: Size, key: ArrayLike, p: ArrayLike, replace: bool) -> Tensor:
    kind = d.type_of(p)
    if not replace:
        return top_k(add(gumbel_noise(kind.shape, key, kind.dtype), log(p)), total)[1]
    below = cumsum(p, 0)
    u = subtract(d.as_array(1, kind.dtype), random_uniform(sizes, key, dtype=kind.dtype))
    return reduce_sum(cast(less(below, multiply(below[-1], expand_dims(u, -1))), d.int32), -1)


@keyed("dropout")
def dropout(
    x: ArrayLike,
    rate: ArrayLike,
    noise_shape: ShapeLike = None,
    key: ArrayLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A tensor with each element set to 0 with probability *rate*, and the others divided by 1 - rate.

    Args:
        x: floating-point numbers.
        rate: a number in [0, 1], or a scalar tensor. 0 keeps all elements, 1 keeps none.
        noise_shape: the shape of the random mask, which broadcasts to x's; by default x's. With [n, 1], rows
            are kept or set to 0 as a whole. None in it stands for x's size there.
        key: the key; use it once. It may also come third, in the place of noise_shape.

    Returns:
        A tensor of x's type. The gradient passes to the elements that are kept, and to a rate that is a
        tensor through 1 / (1 - rate).

    Constraints:
        (C1) x is floating-point.
        (C2) The rate is a scalar in [0, 1]; a tensor's value is clipped to that.
        (C3) noise_shape broadcasts to x's shape.

    References:
        Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks from overfitting".

    Examples:
        >>> sg.dropout(np.ones(4), 0.5, key=sg.random_key(0))
        array([0., 0., 2., 2.])
    """
    if key is None and is_key(noise_shape):
        noise_shape, key = None, typed("ArrayLike", noise_shape)
    key = checked_key(key, "x, rate")
    _, (x,) = parameters(None, x=x)
    kind = d.type_of(x)
    sizes = kind.shape if noise_shape is None else _noise_shape(noise_shape, kind.shape)
    checked = d.type_of(rate)
    if checked.ndim or not (checked.dtype.is_floating or checked.dtype.is_integer):
        raise ArgumentError(f"(C2) the rate is one number in [0, 1], not {checked!r}")
    if d.is_python(rate) or isinstance(rate, (np.ndarray, np.generic)):
        number: Any = rate
        if not 0 <= number <= 1:
            raise ArgumentError(f"(C2) the rate must lie in [0, 1], not {rate!r}")
        number = np.asarray(rate, None if checked.dtype.is_floating and not d.is_python(rate) else np.float64)
        rest = np.asarray(1 - number)
        scale = d.as_array(1 / rest if rest else rest, kind.dtype)
        return where(random_bernoulli(sizes, key, rest.astype(np.float32)), multiply(x, scale), 0, name)
    rate = rate if checked.dtype.is_floating else cast(rate, d.float32)
    one = d.as_array(1, d.type_of(rate).dtype)
    rest = subtract(one, rate)
    keep = random_bernoulli(sizes, key, cast(rest, d.float32))
    scale = divide(one, where(greater(rest, d.as_array(0, d.type_of(rate).dtype)), rest, one))
    return where(keep, multiply(x, cast(scale, kind.dtype)), 0, name)


@d.reads_arguments
def _noise_shape(noise_shape: Any, shape: Shape) -> tuple[int | Dim, ...]:
    if hasattr(noise_shape, "__len__") and len(noise_shape) == len(shape):
        noise_shape = [m if n is None else n for n, m in zip(noise_shape, shape, strict=True)]
    sizes = d.shape_of(noise_shape)
    if not broadcasts_to(sizes, shape):
        shown = d.show_shape(sizes), d.show_shape(shape)
        raise ShapeError(f"(C3) noise_shape {shown[0]} must broadcast to x's shape {shown[1]}")
    return sizes
