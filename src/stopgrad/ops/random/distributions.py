"""Random numbers with distributions whose quantiles are elementary functions.

Each is the quantile of a uniform number, scaled and shifted, so that gradients flow to its parameters: the
reparametrisation trick (Kingma and Welling 2013, arXiv:1312.6114).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, DType, DTypeLike, ShapeLike, Tensor
from stopgrad.ops.elementwise.arithmetic import (
    abs,
    divide,
    maximum,
    minimum,
    multiply,
    negative,
    sign,
    subtract,
)
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.elementwise.powers import log, log1p
from stopgrad.ops.elementwise.trigonometric import tan
from stopgrad.ops.gates.stopping import stop_gradient
from stopgrad.ops.random.draws import random_uniform
from stopgrad.ops.random.keys import drawn_shape, keyed, located, parameters
from stopgrad.ops.special.gamma import erf, erfinv

__all__ = [
    "random_cauchy",
    "random_exponential",
    "random_gumbel",
    "random_laplace",
    "random_logistic",
    "random_truncated_normal",
]


def _limits(dtype: DType) -> np.finfo[Any]:
    """NumPy's ``finfo`` of a dtype; for bfloat16 that of float32, whose range it has."""
    return np.finfo((d.float32 if dtype is d.bfloat16 else dtype).numpy)


def _step(dtype: DType) -> float:
    """The distance between the uniform numbers of a dtype."""
    return 2.0**-7 if dtype is d.bfloat16 else float(_limits(dtype).eps)


def _uniform_above(least: float, shape: ShapeLike, key: ArrayLike, dtype: DType) -> Tensor:
    """Uniform numbers in (0, 1): those below *least*, such as 0, are replaced by it."""
    return maximum(random_uniform(shape, key, dtype=dtype), d.as_array(least, dtype))


def gumbel_noise(shape: ShapeLike, key: ArrayLike, dtype: DType, name: str | None = None) -> Tensor:
    """Numbers with the standard Gumbel distribution."""
    u = _uniform_above(float(_limits(dtype).tiny), shape, key, dtype)
    return negative(log(negative(log(u))), name)


@keyed("random_gumbel", "shape dtype", shape=())
def random_gumbel(
    shape: ShapeLike,
    key: ArrayLike,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a Gumbel distribution, loc - scale · log(-log u) for uniform u.

    Args:
        shape: of the result; sizes may be symbolic. None: that of loc and scale together.
        key: the key; use it once.
        loc: the mode: a number or a tensor, through which gradients flow.
        scale: likewise.
        dtype: of the result; by default that of floating-point parameters, or float32.

    Returns:
        A tensor of that type; the standard numbers are those of ``jax.random.gumbel``.

    References:
        Jang, Gu and Poole 2016, "Categorical reparameterization with Gumbel-softmax", arXiv:1611.01144.

    Examples:
        >>> sg.random_gumbel([2], sg.random_key(0)).shape
        (2,)
    """
    target, (a, b) = parameters(dtype, loc=loc, scale=scale)
    sizes = drawn_shape(shape, key, loc=a, scale=b)
    return located(lambda name: gumbel_noise(sizes, key, target, name), loc, a, scale, b, name)


@keyed("random_exponential", "shape dtype", shape=())
def random_exponential(
    shape: ShapeLike,
    key: ArrayLike,
    rate: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with an exponential distribution, -log(1 - u) / rate for uniform u.

    Args:
        shape: of the result; sizes may be symbolic. None: rate's.
        key: the key; use it once.
        rate: one over the mean: a number or a tensor, through which gradients flow.
        dtype: of the result; by default that of a floating-point rate, or float32.

    Returns:
        A tensor of that type; for a rate of 1 the numbers are those of ``jax.random.exponential``.

    Examples:
        >>> sg.random_exponential([2], sg.random_key(0), 10.0).shape
        (2,)
    """
    target, (slope,) = parameters(dtype, rate=rate)
    sizes = drawn_shape(shape, key, rate=slope)
    plain = d.is_python(rate) and rate == 1
    noise = negative(log1p(negative(random_uniform(sizes, key, dtype=target))), name if plain else None)
    return noise if plain else divide(noise, slope, name)


@keyed("random_laplace", "shape dtype", shape=())
def random_laplace(
    shape: ShapeLike,
    key: ArrayLike,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a Laplace distribution, whose density falls as exp(-|x - loc| / scale).

    Args:
        shape: of the result; sizes may be symbolic. None: that of loc and scale together.
        key: the key; use it once.
        loc: the mean: a number or a tensor, through which gradients flow.
        scale: the mean distance from it, likewise.
        dtype: of the result; by default that of floating-point parameters, or float32.

    Returns:
        A tensor of that type; the standard numbers are those of ``jax.random.laplace``.

    Examples:
        >>> sg.random_laplace([2], sg.random_key(0), 1.0, 0.5).shape
        (2,)
    """
    target, (a, b) = parameters(dtype, loc=loc, scale=scale)
    sizes = drawn_shape(shape, key, loc=a, scale=b)

    def draw(name: str | None) -> Tensor:
        u = random_uniform(sizes, key, _step(target) / 2 - 1, 1.0, dtype=target)
        return multiply(sign(u), log1p(negative(abs(u))), name)

    return located(draw, loc, a, scale, b, name)


@keyed("random_logistic", "shape dtype", shape=())
def random_logistic(
    shape: ShapeLike,
    key: ArrayLike,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a logistic distribution, loc + scale · log(u / (1 - u)) for uniform u.

    Args:
        shape: of the result; sizes may be symbolic. None: that of loc and scale together.
        key: the key; use it once.
        loc: the mean: a number or a tensor, through which gradients flow.
        scale: likewise.
        dtype: of the result; by default that of floating-point parameters, or float32.

    Returns:
        A tensor of that type; the standard numbers are those of ``jax.random.logistic``, except for u = 0.

    Examples:
        >>> sg.random_logistic([2], sg.random_key(0)).shape
        (2,)
    """
    target, (a, b) = parameters(dtype, loc=loc, scale=scale)
    sizes = drawn_shape(shape, key, loc=a, scale=b)

    def draw(name: str | None) -> Tensor:
        u = _uniform_above(_step(target) / 2, sizes, key, target)
        return subtract(log(u), log1p(negative(u)), name)

    return located(draw, loc, a, scale, b, name)


@keyed("random_cauchy", "shape dtype", shape=())
def random_cauchy(
    shape: ShapeLike,
    key: ArrayLike,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Random numbers with a Cauchy distribution, loc + scale · tan(π (u - 1/2)) for uniform u.

    Args:
        shape: of the result; sizes may be symbolic. None: that of loc and scale together.
        key: the key; use it once.
        loc: the median: a number or a tensor, through which gradients flow.
        scale: half the distance between the quartiles, likewise.
        dtype: of the result; by default that of floating-point parameters, or float32.

    Returns:
        A tensor of that type; the standard numbers are those of ``jax.random.cauchy``.

    Examples:
        >>> sg.random_cauchy([2], sg.random_key(0)).shape
        (2,)
    """
    target, (a, b) = parameters(dtype, loc=loc, scale=scale)
    sizes = drawn_shape(shape, key, loc=a, scale=b)
    # In 16 bits π / 2 is so coarse that the tangent would have the wrong sign.
    wide = d.float32 if target in (d.float16, d.bfloat16) else target

    def draw(name: str | None) -> Tensor:
        u = random_uniform(sizes, key, _step(wide), 1.0, dtype=wide)
        angle = multiply(subtract(u, d.as_array(0.5, wide)), d.as_array(math.pi, wide))
        return cast(tan(angle, name if wide is target else None), target, None if wide is target else name)

    return located(draw, loc, a, scale, b, name)


@keyed("random_truncated_normal", "lower upper shape dtype", shape=None)
def random_truncated_normal(
    shape: ShapeLike,
    key: ArrayLike,
    mean: ArrayLike = 0.0,
    stddev: ArrayLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    lower: ArrayLike = -2.0,
    upper: ArrayLike = 2.0,
) -> Tensor:
    """Random numbers with a normal distribution that is truncated to an interval around the mean.

    Args:
        shape: of the result; sizes may be symbolic. None: that of the parameters together.
        key: the key; use it once.
        mean: of the normal distribution: a number or a tensor, through which gradients flow.
        stddev: its standard deviation, likewise.
        dtype: of the result; by default that of floating-point parameters, or float32. Half-size types are
            drawn as float32 and rounded.
        lower: where the interval begins, in standard deviations from the mean.
        upper: where it ends, likewise.

    Returns:
        A tensor of that type: the numbers mean + stddev · z, where z lies in [lower, upper]. The distribution
        is TensorFlow's, the numbers z are those of ``jax.random.truncated_normal``. In the tails, where the
        error function rounds to 1 (beyond 5 for float32, 8 for float64), the numbers are coarse.

    Examples:
        >>> bool(np.all(np.abs(sg.random_truncated_normal([100], sg.random_key(0))) <= 2))
        True
    """
    target, (a, b, low, high) = parameters(dtype, mean=mean, stddev=stddev, lower=lower, upper=upper)
    sizes = drawn_shape(shape, key, mean=a, stddev=b, lower=low, upper=high)
    wide = d.float64 if target is d.float64 else d.float32
    root = d.as_array(math.sqrt(2), wide)
    low, high = cast(low, wide), cast(high, wide)
    ends = [erf(divide(x, root)) for x in (low, high)]
    most = 1 - _step(wide) / 2  # The largest number below 1: its inverse is finite.

    def draw(name: str | None) -> Tensor:
        u = random_uniform(sizes, key, ends[0], ends[1], dtype=wide)
        z = multiply(root, erfinv(minimum(maximum(u, d.as_array(-most, wide)), d.as_array(most, wide))))
        inside = minimum(maximum(z, stop_gradient(low)), stop_gradient(high))
        return cast(inside, target, name)

    return located(draw, mean, a, stddev, b, name)
