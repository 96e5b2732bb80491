"""Maxima and means over windows, in TensorFlow's layout: [batch, spatial..., channels]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Namespace,
    Op,
    Operation,
    Promotion,
    Shape,
    ShapeError,
    Sizes,
    Tensor,
    TensorType,
)
from stopgrad.ops.neural.windows import (
    Geometry,
    Padding,
    PaddingLike,
    PerAxis,
    PerAxisLike,
    at,
    back_pads,
    normal_padding,
    output_shape,
    padded,
    padded_shape,
    pads,
    per_axis,
    put_back,
    reach,
    reduced,
    spread,
    trimmed,
    view,
)

__all__: list[str] = []  # Its public functions are in pools.py.

_CHOICE = d.not_differentiable("which element of a window is the largest has no derivative")


def _pooled(
    x: TensorType, ksize: PerAxis, strides: PerAxis, padding: Padding, dilations: PerAxis
) -> TensorType:
    d.check_dtype(x, d.is_floating, "floating-point numbers")
    if x.ndim != len(ksize) + 2 or x.ndim < 3:
        raise ShapeError(f"(C2) takes [batch, {len(ksize)} spatial axes, channels], not {x!r}")
    return d.tensor_type(
        x.dtype, (x.shape[0], *output_shape(x.shape[1:-1], ksize, (strides, padding, dilations)), x.shape[-1])
    )


def _check_shape(actual: TensorType, expected: TensorType, what: str) -> None:
    d.check_same_dtype(actual, expected)
    d.check_shape(actual, expected.shape, f"the {what}", "C5")


class Pool(Op, abstract=True):
    """One number for each window and channel.

    Args:
        x: [batch, spatial..., channels].
        ksize: the size of the window: a number, or one for each spatial axis.
        strides: the step from window to window, likewise; by default ksize.
        padding: "VALID", "SAME" or pairs of numbers, as for :func:`conv`.
        dilations: the step inside a window: a number, or one for each spatial axis.

    Constraints:
        (C1) x holds floating-point numbers.
        (C2) x is [batch, spatial..., channels], with at least one spatial axis.
        (C3) ksize, strides and dilations are positive, and padding is one of the words or pairs of sizes; all
            have as many numbers as there are spatial axes.
        (C4) The window fits into each padded axis, unless the axis has no elements.
    """

    @staticmethod
    def infer(x: TensorType, *, ksize: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes) -> TensorType:
        return _pooled(x, ksize, strides, padding, dilations)

    batch = d.FOLD
    rounds_once = True
    samples: d.Samples = [
        d.sample(d.floats(2, 5, 3, distinct=True), ksize=(2,), strides=(2,), padding="VALID", dilations=(1,)),
        d.sample(
            d.floats("n", 5, 4, 2, distinct=True),
            ksize=(3, 2),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
        ),
        d.sample(
            d.floats(1, 4, 5, 1, distinct=True),
            ksize=(2, 3),
            strides=(1, 3),
            padding=((1, 0), (1, 1)),
            dilations=(1, 1),
        ),
        d.sample(
            d.floats(1, "n", 2, distinct=True), ksize=(2,), strides=(2,), padding="SAME", dilations=(1,)
        ),
        d.sample(d.floats(0, 4, 2), ksize=(2,), strides=(1,), padding="VALID", dilations=(1,)),
    ]


_WITH_COTANGENT = [
    d.sample(
        d.floats(2, 5, 3, distinct=True),
        d.floats(2, 2, 3),
        ksize=(2,),
        strides=(2,),
        padding="VALID",
        dilations=(1,),
    ),
    d.sample(
        d.floats("n", 5, 4, 2, distinct=True),
        d.floats("n", 3, 4, 2),
        ksize=(3, 2),
        strides=(2, 1),
        padding="SAME",
        dilations=(1, 2),
    ),
]


def _attributes(op: Operation) -> tuple[Any, ...]:
    return op.ksize, op.strides, op.padding, op.dilations


@d.reads_arguments
def read_geometry(
    definition: type[Op],
    operands: tuple[ArrayLike, ...],
    ndim: int,
    ksize: PerAxisLike,
    strides: PerAxisLike | None,
    padding: PaddingLike,
    dilations: PerAxisLike,
) -> tuple[PerAxis, PerAxis, Padding, PerAxis]:
    """The attributes that a function's arguments mean: ksize, strides, padding, dilations."""
    rank = max(ndim - 2, 0)
    with d.about(definition, *operands):
        window = per_axis(ksize, rank, "ksize")
        steps = window if strides is None else per_axis(strides, rank, "strides")
        return window, steps, normal_padding(padding, rank), per_axis(dilations, rank, "dilations")


class MaxPool(Pool):
    """The largest element of each window; NaN where the window holds a NaN.

    Args:
        padding: "VALID", "SAME" or pairs of numbers, as for :func:`conv`; padding is never the largest.

    Returns:
        The result, [batch, spatial..., channels]. Of elements that tie in a window, the first in row-major
        order gets the gradient, as in TensorFlow.

    Examples:
        >>> sg.max_pool(np.array([1.0, 3.0, 2.0, 0.0]).reshape(1, 4, 1), 2, 2, "VALID")[0, :, 0]
        array([3., 2.])
    """

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: d.apply(MaxPoolGrad, (op.x, g), _attributes(op))}

    @staticmethod
    def lower(
        xp: Namespace,
        x: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        geometry = (strides, padding, dilations)
        counts = output_shape(x.shape[1:-1], ksize, geometry)
        windows = view(xp, padded(xp, x, ksize, geometry, -math.inf), ksize, counts, geometry)
        return xp.max(windows, axis=tuple(range(1 + len(counts), 1 + 2 * len(counts))))

    @staticmethod
    def xla(
        xp: Namespace,
        x: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        around = pads(x.shape[1:-1], ksize, (strides, padding, dilations))
        return reduced(xp, x, -math.inf, xp.lax.max, ksize, strides, around, dilations)


def _choices(xp: Namespace, x: Array, ksize: PerAxis, geometry: Geometry) -> list[tuple[Any, Any]]:
    """For each position of a window, its slices of the padded array, and the windows whose maximum it holds.

    Of elements that tie, the first counts.
    """
    counts = output_shape(x.shape[1:-1], ksize, geometry)
    around = padded(xp, x, ksize, geometry, -math.inf)
    inside = padded(np, np.ones((1, *x.shape[1:-1], 1), bool), ksize, geometry, False)
    places = [at(position, counts, geometry) for position in np.ndindex(*ksize)]
    largest = around[places[0]]
    for place in places[1:]:
        largest = xp.maximum(largest, around[place])
    free = xp.ones(largest.shape, bool)
    choices = []
    for place in places:
        hit = free & (around[place] == largest)
        if not inside[place].all():
            hit = hit & inside[place]  # Padding is never the largest, not even where all elements are -∞.
        free = free & ~hit
        choices.append((place, hit))
    return choices


class MaxPoolGrad(Op):
    """The gradient of :func:`max_pool`: each window's cotangent, at the first of its largest elements.

    Args:
        x: the pooled tensor.
        g: the cotangent of the result.
        ksize: as for :func:`max_pool`.
        strides: as for :func:`max_pool`.
        padding: as for :func:`max_pool`.
        dilations: as for :func:`max_pool`.

    Returns:
        The cotangent of x. A window that holds a NaN passes nothing back.

    Constraints:
        (C1) x and g hold floating-point numbers of one dtype.
        (C2) x is [batch, spatial..., channels], with at least one spatial axis.
        (C3) ksize, strides and dilations are positive, and padding is one of the words or pairs of sizes; all
            have as many numbers as there are spatial axes.
        (C4) The window fits into each padded axis, unless the axis has no elements.
        (C5) g has the result's shape.

    Examples:
        >>> x, g = np.array([1.0, 3.0, 2.0, 2.0]).reshape(1, 4, 1), np.ones((1, 2, 1))
        >>> sg.ops.MaxPoolGrad.function(x, g, 2)[0, :, 0]
        array([0., 1., 1., 0.])
    """

    @staticmethod
    def infer(
        x: TensorType, g: TensorType, *, ksize: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes
    ) -> TensorType:
        _check_shape(g, _pooled(x, ksize, strides, padding, dilations), "cotangent")
        return x

    gradient = {"x": _CHOICE, "g": lambda g, op: d.apply(MaxPoolGradGrad, (op.x, g), _attributes(op))}
    batch = d.FOLD
    rounds_once = True

    @staticmethod
    def lower(
        xp: Namespace,
        x: Array,
        g: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        geometry = (strides, padding, dilations)
        total = xp.zeros(padded_shape(x.shape, ksize, geometry), g.dtype)
        for place, hit in _choices(xp, x, ksize, geometry):
            total[place] += xp.where(hit, g, xp.zeros((), g.dtype))
        return trimmed(total, x.shape[1:-1], ksize, geometry)

    @staticmethod
    def xla(
        xp: Namespace,
        x: Array,
        g: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        if 0 in g.shape:
            return xp.zeros(x.shape, g.dtype)
        geometry = (strides, padding, dilations)
        inside = padded(np, np.ones((1, *x.shape[1:-1], 1), bool), ksize, geometry, False)
        around = padded(xp, x, ksize, geometry, -math.inf)
        # A single pass, so that every window chooses an element: XLA may compute x again for each use and
        # round it differently, and then no element would equal a maximum found in an earlier pass.
        chosen = xp.full(g.shape, -1, np.int32)
        largest, is_nan = xp.full(g.shape, -math.inf, x.dtype), xp.zeros(g.shape, bool)
        for number, position in enumerate(np.ndindex(*ksize)):
            place = at(position, g.shape[1:-1], geometry)
            hit = inside[place] & ((around[place] > largest) | (chosen < 0))  # Padding is never chosen.
            chosen = xp.where(hit, np.int32(number), chosen)
            largest = xp.where(hit, around[place], largest)
            is_nan |= xp.isnan(around[place])
        chosen = xp.where(is_nan, np.int32(-1), chosen)
        total = put_back(xp, g, chosen, ksize, around.shape, geometry)
        return trimmed(total, x.shape[1:-1], ksize, geometry)

    samples: d.Samples = _WITH_COTANGENT


@d.builds(MaxPoolGrad)
def max_pool_grad(
    x: ArrayLike,
    g: ArrayLike,
    ksize: PerAxisLike,
    strides: PerAxisLike | None = None,
    padding: PaddingLike = "VALID",
    dilations: PerAxisLike = 1,
    name: str | None = None,
) -> Tensor:
    return d.apply(
        MaxPoolGrad,
        (x, g),
        read_geometry(MaxPoolGrad, (x, g), d.type_of(x).ndim, ksize, strides, padding, dilations),
        name,
    )


class MaxPoolGradGrad(Op):
    """The element of each window of *h* at the position of the first largest element of *x*.

    Args:
        x: the tensor whose maxima choose.
        h: the tensor to take elements from.
        ksize: as for :func:`max_pool`.
        strides: as for :func:`max_pool`.
        padding: as for :func:`max_pool`.
        dilations: as for :func:`max_pool`.

    Returns:
        One element per window; 0 where x holds a NaN.

    Constraints:
        (C1) x and h hold floating-point numbers of one dtype.
        (C2) x is [batch, spatial..., channels], with at least one spatial axis.
        (C3) ksize, strides and dilations are positive, and padding is one of the words or pairs of sizes; all
            have as many numbers as there are spatial axes.
        (C4) The window fits into each padded axis, unless the axis has no elements.
        (C5) h has x's shape.

    Examples:
        >>> x, h = (np.array(v).reshape(1, 4, 1) for v in ([1.0, 3.0, 2.0, 2.0], [5.0, 6.0, 7.0, 8.0]))
        >>> sg.ops.MaxPoolGradGrad.function(x, h, 2)[0, :, 0]
        array([6., 7.])
    """

    @staticmethod
    def infer(
        x: TensorType, h: TensorType, *, ksize: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes
    ) -> TensorType:
        _check_shape(h, x, "tensor to choose from")
        return _pooled(x, ksize, strides, padding, dilations)

    gradient: d.Gradient = {"x": _CHOICE, "h": lambda g, op: d.apply(MaxPoolGrad, (op.x, g), _attributes(op))}

    batch = d.FOLD

    @staticmethod
    def lower(
        xp: Namespace,
        x: Array,
        h: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        around, zero = padded(xp, h, ksize, (strides, padding, dilations)), xp.zeros((), h.dtype)
        return sum(
            (
                xp.where(hit, around[place], zero)
                for place, hit in _choices(xp, x, ksize, (strides, padding, dilations))
            ),
            zero,
        )

    samples: d.Samples = [
        d.sample(
            d.floats(2, 5, 3, distinct=True),
            d.floats(2, 5, 3),
            ksize=(2,),
            strides=(2,),
            padding="VALID",
            dilations=(1,),
        ),
        d.sample(
            d.floats("n", 5, 4, 2, distinct=True),
            d.floats("n", 5, 4, 2),
            ksize=(3, 2),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
        ),
    ]


@d.builds(MaxPoolGradGrad)
def max_pool_grad_grad(
    x: ArrayLike,
    h: ArrayLike,
    ksize: PerAxisLike,
    strides: PerAxisLike | None = None,
    padding: PaddingLike = "VALID",
    dilations: PerAxisLike = 1,
    name: str | None = None,
) -> Tensor:
    return d.apply(
        MaxPoolGradGrad,
        (x, h),
        read_geometry(MaxPoolGradGrad, (x, h), d.type_of(x).ndim, ksize, strides, padding, dilations),
        name,
    )


def _numbers(shape: Shape, ksize: PerAxis, geometry: Geometry) -> Any:
    """How many elements of each window are not padding: [1, counts..., 1].

    Computed by NumPy on every engine, since it depends on sizes only.
    """
    counts = output_shape(shape[1:-1], ksize, geometry)
    inside = padded(np, np.ones((1, *shape[1:-1], 1)), ksize, geometry)
    return np.sum(
        view(np, inside, ksize, counts, geometry), axis=tuple(range(1 + len(counts), 1 + 2 * len(counts)))
    )


class AvgPool(Pool):
    """The mean of each window; padding does not count.

    Returns:
        The result, [batch, spatial..., channels]; NaN for a window that holds padding only.

    Examples:
        >>> sg.avg_pool(np.array([1.0, 3.0, 2.0, 0.0]).reshape(1, 4, 1), 2, 2, "VALID")[0, :, 0]
        array([2., 1.])
    """

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {"x": lambda g, op: d.apply(AvgPoolGrad, (g,), (op.x.shape, *_attributes(op)))}

    @staticmethod
    def lower(
        xp: Namespace,
        x: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        geometry = (strides, padding, dilations)
        counts = output_shape(x.shape[1:-1], ksize, geometry)
        windows = view(xp, padded(xp, x, ksize, geometry), ksize, counts, geometry)
        total = xp.sum(windows, axis=tuple(range(1 + len(counts), 1 + 2 * len(counts))), dtype=x.dtype)
        return total / _numbers(x.shape, ksize, geometry).astype(x.dtype)

    @staticmethod
    def xla(
        xp: Namespace,
        x: Array,
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        geometry = (strides, padding, dilations)
        total = reduced(xp, x, 0, xp.lax.add, ksize, strides, pads(x.shape[1:-1], ksize, geometry), dilations)
        return total / _numbers(x.shape, ksize, geometry).astype(x.dtype)


class AvgPoolGrad(Op):
    """The gradient of :func:`avg_pool`: each window's cotangent, divided evenly among its elements.

    Args:
        g: the cotangent of the result.
        shape: of the pooled tensor.
        ksize: as for :func:`avg_pool`.
        strides: as for :func:`avg_pool`.
        padding: as for :func:`avg_pool`.
        dilations: as for :func:`avg_pool`.

    Returns:
        A tensor of that shape.

    Constraints:
        (C1) g holds floating-point numbers.
        (C2) The shape is [batch, spatial..., channels], with at least one spatial axis.
        (C3) ksize, strides and dilations are positive, and padding is one of the words or pairs of sizes; all
            have as many numbers as there are spatial axes.
        (C4) The window fits into each padded axis, unless the axis has no elements.
        (C5) g has the result's shape.

    Examples:
        >>> sg.ops.AvgPoolGrad.function(np.ones((1, 2, 1)), (1, 4, 1), 2)[0, :, 0]
        array([0.5, 0.5, 0.5, 0.5])
    """

    @staticmethod
    def infer(
        g: TensorType, *, shape: Shape, ksize: Sizes, strides: Sizes, padding: Sizes, dilations: Sizes
    ) -> TensorType:
        x = d.tensor_type(g.dtype, shape)
        _check_shape(g, _pooled(x, ksize, strides, padding, dilations), "cotangent")
        return x

    gradient: d.Gradient = {"g": lambda g, op: d.apply(AvgPool, (g,), _attributes(op))}

    batch = d.FOLD
    rounds_once = True

    @staticmethod
    def lower(
        xp: Namespace,
        g: Array,
        shape: tuple[int, ...],
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        geometry = (strides, padding, dilations)
        share = g / _numbers(shape, ksize, geometry).astype(g.dtype)
        total = xp.zeros(padded_shape(shape, ksize, geometry), g.dtype)
        for position in np.ndindex(*ksize):
            total[at(position, g.shape[1:-1], geometry)] += share
        return trimmed(total, shape[1:-1], ksize, geometry)

    @staticmethod
    def xla(
        xp: Namespace,
        g: Array,
        shape: tuple[int, ...],
        ksize: PerAxis,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
    ) -> Array:
        geometry = (strides, padding, dilations)
        if 0 in (*shape, *g.shape):
            return xp.zeros(shape, g.dtype)
        share = g / _numbers(shape, ksize, geometry).astype(g.dtype)
        if any(reach(k, d) > s for k, s, d in zip(ksize, strides, dilations, strict=True)):
            total = spread(xp, share, ksize, padded_shape(shape, ksize, geometry), geometry)
            return trimmed(total, shape[1:-1], ksize, geometry)
        around = back_pads(shape[1:-1], ksize, geometry, g.shape[1:-1])
        return reduced(xp, share, 0, xp.lax.add, ksize, (1,) * len(ksize), around, dilations, strides)

    samples: d.Samples = [
        d.sample(
            d.floats(2, 2, 3), shape=(2, 5, 3), ksize=(2,), strides=(2,), padding="VALID", dilations=(1,)
        ),
        d.sample(
            d.floats(2, 3, 4, 2),
            shape=(2, 5, 4, 2),
            ksize=(3, 2),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
        ),
        d.sample(
            d.floats(1, 4, 2, 1),
            shape=(1, 4, 5, 1),
            ksize=(2, 3),
            strides=(1, 3),
            padding=((1, 0), (1, 1)),
            dilations=(1, 1),
        ),
    ]


@d.builds(AvgPoolGrad)
def avg_pool_grad(
    g: ArrayLike,
    shape: Shape,
    ksize: PerAxisLike,
    strides: PerAxisLike | None = None,
    padding: PaddingLike = "VALID",
    dilations: PerAxisLike = 1,
    name: str | None = None,
) -> Tensor:
    return d.apply(
        AvgPoolGrad,
        (g,),
        (
            tuple(shape),
            *read_geometry(AvgPoolGrad, (g,), d.type_of(g).ndim, ksize, strides, padding, dilations),
        ),
        name,
    )
