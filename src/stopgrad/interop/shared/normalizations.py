"""Normalisation, with the statistics that programs keep or return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.interop.shared.conversions import brought, product
from stopgrad.ops.shapes.reshape import reshape


def variance(x: sg.Output, axes: tuple[int, ...], correction: float, keepdim: bool) -> sg.Output:
    """The sum of the squared distances from the mean, divided by the number of elements less a correction."""
    mean = sg.reduce_mean(x, axis=axes, keepdims=True) if axes else x
    distance = sg.subtract(x, mean)
    squares = sg.multiply(distance, sg.conj(distance)) if x.dtype.is_complex else sg.square(distance)
    squares = sg.real(squares) if x.dtype.is_complex else squares
    total = sg.reduce_sum(squares, axis=axes, keepdims=keepdim) if axes else squares
    count = product([x.shape[axis] for axis in axes])
    left = count - correction if not isinstance(count, sg.Dim) else None
    if left is None:
        divisor = sg.subtract(brought(count, total.dtype, x), brought(correction, total.dtype))
        return sg.realdiv(total, sg.maximum(divisor, brought(0, total.dtype)))
    return sg.realdiv(total, brought(max(left, 0), total.dtype))


def statistics(x: sg.Output, axes: tuple[int, ...], eps: float, keepdim: bool) -> tuple[Any, Any]:
    """The mean, and one over the standard deviation."""
    mean = sg.reduce_mean(x, axis=axes, keepdims=keepdim)
    spread = sg.add(variance(x, axes, 0, keepdim), brought(eps, x.dtype))
    return mean, sg.rsqrt(spread)


def affine(
    y: sg.Output, weight: sg.Output | None, bias: sg.Output | None, shape: Sequence[Any] | None = None
) -> sg.Output:
    """y · weight + bias, either of which may be None, in y's element type."""
    for function, parameter in ((sg.multiply, weight), (sg.add, bias)):
        if parameter is not None:
            parameter = brought(parameter, y.dtype)
            y = function(y, parameter if shape is None else reshape(parameter, list(shape)))
    return y


def wide(x: sg.Output) -> sg.Output:
    """x in the element type for computing: float32 for 16-bit numbers."""
    return sg.cast(x, sg.float32) if x.dtype.itemsize == 2 else x


def by_channel(x: sg.Output, axis: int = 1) -> list[Any]:
    """The shape in which a number for each channel, along this axis, broadcasts with x."""
    return [1] * axis + [-1] + [1] * (x.ndim - 1 - axis)


def with_running(
    x: sg.Output,
    weight: sg.Output | None,
    bias: sg.Output | None,
    mean: sg.Output,
    var: sg.Output,
    eps: float,
    axis: int = 1,
) -> sg.Output:
    """Normalises by given statistics of the channels, which lie along an axis."""
    values, shape = wide(x), by_channel(x, axis)
    mean, var = (reshape(brought(s, values.dtype), shape) for s in (mean, var))
    rstd = sg.rsqrt(sg.add(var, brought(eps, values.dtype)))
    y = affine(sg.multiply(sg.subtract(values, mean), rstd), weight, bias, shape)
    return brought(y, x.dtype)


def layer_normalized(
    x: sg.Output,
    axes: tuple[int, ...],
    weight: sg.Output | None,
    bias: sg.Output | None,
    eps: float,
    with_statistics: bool = False,
) -> tuple[Any, Any, Any]:
    """:func:`sg.layer_norm`, the mean and one over the deviation; computed in float32 for 16-bit numbers.

    The statistics are None unless they are asked for.
    """
    values = wide(x)
    y = brought(affine(sg.layer_norm(values, axis=axes, epsilon=eps), weight, bias), x.dtype)
    return y, *(statistics(values, axes, eps, True) if with_statistics else (None, None))


def batch_normalized(
    x: sg.Output, weight: sg.Output | None, bias: sg.Output | None, eps: float, axis: int = 1
) -> tuple[Any, Any, Any, Any]:
    """Normalises by the batch's statistics: the result, the mean, the variance and one over the deviation.

    The statistics are vectors along the channels.
    """
    axes = tuple([i for i in range(x.ndim) if i != axis])
    values = wide(x)
    mean = sg.reduce_mean(values, axis=axes, keepdims=True)
    apart = sg.subtract(values, mean)
    var = sg.reduce_mean(sg.square(apart), axis=axes, keepdims=True)
    rstd = sg.rsqrt(sg.add(var, brought(eps, values.dtype)))
    y = brought(affine(sg.multiply(apart, rstd), weight, bias, by_channel(x, axis)), x.dtype)
    return y, *(reshape(s, [-1]) for s in (mean, var, rstd))


def unbiased(var: sg.Output, x: sg.Output, axis: int = 1) -> sg.Output:
    """The variance of each channel of a batch, x, as an estimate for all that it is drawn from."""
    count = brought(product([size for i, size in enumerate(x.shape) if i != axis]), var.dtype, x)
    one = brought(1, var.dtype)
    return sg.multiply(var, sg.realdiv(count, sg.maximum(sg.subtract(count, one), one)))


def moved(old: sg.Output, new: sg.Output, momentum: float) -> sg.Output:
    """A running statistic after a step: momentum · old + (1 - momentum) · new."""
    old_part = sg.multiply(old, brought(momentum, old.dtype))
    return sg.add(old_part, sg.multiply(brought(new, old.dtype), brought(1.0 - momentum, old.dtype)))
