"""TensorFlow's pooling, in either data format, and PyTorch's pooling to a given size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Op, ShapeError, Tensor
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.neural.filters import from_channels_last, to_channels_last
from stopgrad.ops.neural.pooling import AvgPool, MaxPool, read_geometry
from stopgrad.ops.neural.windows import PaddingLike, PerAxisLike, channels_last, has_channels_first
from stopgrad.ops.reductions.reduce import reduce_max, reduce_mean
from stopgrad.ops.shapes.join import concat
from stopgrad.ops.shapes.reshape import reshape

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "global_avg_pool",
    "global_max_pool",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "pool",
]


@d.reads_arguments
def _pooled(
    definition: type[Op],
    rank: int | None,
    x: ArrayLike,
    ksize: PerAxisLike | None,
    strides: PerAxisLike | None,
    padding: PaddingLike,
    data_format: str | None,
    dilations: PerAxisLike | None,
    name: str | None,
    what: str,
) -> Tensor:
    """Pooling over *rank* spatial axes, by default over all that *x* has."""
    kind = d.type_of(x)
    n = max(kind.ndim - 2, 1) if rank is None else rank
    with d.about(definition, x):
        first = has_channels_first(data_format, n)
        if rank is not None and kind.ndim != rank + 2:
            raise ShapeError(f"(C2) {what} takes {rank + 2} axes, not {kind!r}")
    settings = [
        channels_last(v, n, first) for v in (ksize, strides, padding, 1 if dilations is None else dilations)
    ]
    values = read_geometry(definition, (x,), kind.ndim, *settings)
    y = d.apply(definition, (to_channels_last(x, n, first),), values, None if first else name)
    return from_channels_last(y, n, first, name) if first else y


@d.builds(MaxPool)
def max_pool(
    input: ArrayLike,
    ksize: PerAxisLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = None,
    name: str | None = None,
    *,
    dilations: PerAxisLike | None = None,
) -> Tensor:
    """The largest element of each window; NaN where the window holds a NaN.

    Args:
        input: [batch, spatial..., channels].
        ksize: the size of the window: a number, or one for each axis.
        strides: the step from window to window, likewise; None for ksize.
        padding: "VALID", "SAME" or pairs of numbers, as for :func:`conv`; padding is never the largest.
        data_format: "NWC", "NHWC", "NDHWC" or None for channels at the end; "NCW", "NCHW" or "NCDHW" for
            channels after the batch.
        name: of the operation.
        dilations: the step inside a window, likewise; None for 1.

    Returns:
        The result, in the data format. Of elements that tie in a window, the first in row-major order gets
        the gradient, as in TensorFlow.

    Raises:
        ShapeError, ArgumentError: the window does not fit, or has not one size for each spatial axis.

    Examples:
        >>> sg.max_pool(np.array([1.0, 3.0, 2.0, 0.0]).reshape(1, 4, 1), 2, 2, "VALID")[0, :, 0]
        array([3., 2.])
    """
    return _pooled(MaxPool, None, input, ksize, strides, padding, data_format, dilations, name, "max_pool")


@d.builds(AvgPool)
def avg_pool(
    input: ArrayLike,
    ksize: PerAxisLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = None,
    name: str | None = None,
    *,
    dilations: PerAxisLike | None = None,
) -> Tensor:
    """The mean of each window; padding does not count.

    Args:
        input: [batch, spatial..., channels].
        ksize: the size of the window: a number, or one for each axis.
        strides: the step from window to window, likewise; None for ksize.
        padding: "VALID", "SAME" or pairs of numbers, as for :func:`conv`.
        data_format: "NWC", "NHWC", "NDHWC" or None for channels at the end; "NCW", "NCHW" or "NCDHW" for
            channels after the batch.
        name: of the operation.
        dilations: the step inside a window, likewise; None for 1.

    Returns:
        The result, in the data format; NaN for a window that holds padding only.

    Raises:
        ShapeError, ArgumentError: the window does not fit, or has not one size for each spatial axis.

    Examples:
        >>> sg.avg_pool(np.array([1.0, 3.0, 2.0, 0.0]).reshape(1, 4, 1), 2, 2, "VALID")[0, :, 0]
        array([2., 1.])
    """
    return _pooled(AvgPool, None, input, ksize, strides, padding, data_format, dilations, name, "avg_pool")


def _of_rank(definition: type[Op], general: str, rank: int, data_format: str) -> Callable[..., Tensor]:
    """The public function for one number of spatial axes."""
    function_name = f"{general}{rank}d"
    other = f"{data_format[0]}C{data_format[1:-1]}"

    def pool(
        input: ArrayLike,
        ksize: PerAxisLike | None,
        strides: PerAxisLike | None,
        padding: PaddingLike,
        data_format: str | None = data_format,
        name: str | None = None,
        *,
        dilations: PerAxisLike | None = None,
    ) -> Tensor:
        return _pooled(
            definition,
            rank,
            input,
            ksize,
            strides,
            padding,
            data_format,
            dilations,
            name,
            function_name,
        )

    axes = f"[batch, {', '.join(['depth', 'height', 'width'][-rank:])}, channels]"
    pool.__name__ = pool.__qualname__ = function_name
    pool.__doc__ = f""":func:`{general}` for tensors {axes}.

    Args:
        input: {axes}.
        ksize: as for :func:`{general}`.
        strides: as for :func:`{general}`.
        padding: as for :func:`{general}`.
        data_format: "{data_format}", or "{other}" for channels after the batch.
        name: of the operation.
        dilations: as for :func:`{general}`.

    Returns:
        The result, in the data format.

    Raises:
        ShapeError, ArgumentError: as :func:`{general}`.
    """
    return d.guarded(function_name)(pool)


max_pool1d: Callable[..., Tensor] = _of_rank(MaxPool, "max_pool", 1, "NWC")
max_pool2d: Callable[..., Tensor] = _of_rank(MaxPool, "max_pool", 2, "NHWC")
max_pool3d: Callable[..., Tensor] = _of_rank(MaxPool, "max_pool", 3, "NDHWC")
avg_pool1d: Callable[..., Tensor] = _of_rank(AvgPool, "avg_pool", 1, "NWC")
avg_pool2d: Callable[..., Tensor] = _of_rank(AvgPool, "avg_pool", 2, "NHWC")
avg_pool3d: Callable[..., Tensor] = _of_rank(AvgPool, "avg_pool", 3, "NDHWC")


@d.guarded("pool")
def pool(
    input: ArrayLike,
    window_shape: PerAxisLike,
    pooling_type: str,
    strides: PerAxisLike | None = None,
    padding: PaddingLike = "VALID",
    data_format: str | None = None,
    dilations: PerAxisLike | None = None,
    name: str | None = None,
) -> Tensor:
    """:func:`max_pool` or :func:`avg_pool`, chosen by a word.

    Args:
        input: [batch, spatial..., channels].
        window_shape: the size of the window: a number, or one for each spatial axis.
        pooling_type: "MAX" or "AVG".
        strides: the step from window to window, likewise; None for 1.
        padding: as for :func:`max_pool`.
        data_format: as for :func:`max_pool`.
        dilations: the step inside a window, likewise; None for 1.
        name: of the operation.

    Returns:
        The result, in the data format.

    Raises:
        ShapeError, ArgumentError: as :func:`max_pool`, or the word is unknown.

    Examples:
        >>> sg.pool(np.array([1.0, 3.0, 2.0, 0.0]).reshape(1, 4, 1), 2, "MAX")[0, :, 0]
        array([3., 3., 2.])
    """
    function = {"MAX": max_pool, "AVG": avg_pool}.get(pooling_type)
    if function is None:
        raise ArgumentError(f"pooling_type={pooling_type!r} is unknown; take 'MAX' or 'AVG'")
    steps = 1 if strides is None else strides
    return function(input, window_shape, steps, padding, data_format, name, dilations=dilations)


# ------------------------------------------------------------------------------------- to a given size


@d.reads_arguments
def _spatial(what: str, x: ArrayLike, data_format: str | None) -> tuple[int, ...]:
    """The positions of the spatial axes."""
    kind = d.type_of(x)
    if kind.ndim < 3:
        raise ShapeError(f"{what} takes [batch, spatial..., channels], not {kind!r}")
    first = has_channels_first(data_format, kind.ndim - 2)
    return tuple(range(2, kind.ndim)) if first else tuple(range(1, kind.ndim - 1))


@d.guarded("global_avg_pool")
def global_avg_pool(
    x: ArrayLike, keepdims: bool = False, name: str | None = None, *, data_format: str | None = None
) -> Tensor:
    """The mean over all spatial axes.

    Args:
        x: [batch, spatial..., channels].
        keepdims: whether the spatial axes stay, with size 1.
        name: of the operation.
        data_format: as for :func:`max_pool`.

    Returns:
        The result, [batch, channels].

    Raises:
        ShapeError, ArgumentError: there is no spatial axis, or the data format is unknown.

    Examples:
        >>> sg.global_avg_pool(np.array([1.0, 3.0, 2.0]).reshape(1, 3, 1))
        array([[2.]])
    """
    return reduce_mean(x, _spatial("global_avg_pool", x, data_format), d.flag(keepdims), name)


@d.guarded("global_max_pool")
def global_max_pool(
    x: ArrayLike, keepdims: bool = False, name: str | None = None, *, data_format: str | None = None
) -> Tensor:
    """The largest element over all spatial axes; elements that tie share the gradient evenly.

    Args:
        x: [batch, spatial..., channels].
        keepdims: whether the spatial axes stay, with size 1.
        name: of the operation.
        data_format: as for :func:`max_pool`.

    Returns:
        The result, [batch, channels].

    Raises:
        ShapeError, ArgumentError: there is no spatial axis, or the data format is unknown.

    Examples:
        >>> sg.global_max_pool(np.array([1.0, 3.0, 2.0]).reshape(1, 3, 1))
        array([[3.]])
    """
    return reduce_max(x, _spatial("global_max_pool", x, data_format), d.flag(keepdims), name)


@d.reads_arguments
def _adapted(
    what: str,
    reduce: Callable[..., Tensor],
    x: ArrayLike,
    output_size: Any,
    data_format: str | None,
    name: str | None,
) -> Tensor:
    """Reduce each spatial axis over the given number of spans, which may overlap by an element.

    The axes are reduced one after another: the mean of a span's means is its mean, because they are of
    equally many elements.
    """
    axes = _spatial(what, x, data_format)
    sizes = [output_size] * len(axes) if d.is_whole(output_size) else list(output_size)
    if len(sizes) != len(axes):
        raise ShapeError(
            f"{what}: output_size={output_size!r} must be a number, or one for each of {len(axes)} axes"
        )
    for axis, count in zip(axes, sizes, strict=True):
        size = d.type_of(x).shape[axis]
        if count is None:
            continue
        if not isinstance(size, int):
            raise ShapeError(f"{what}: the size of axis {axis}, {size}, must be known; give it a number")
        if d.whole(count) < 1 or size < 1:
            raise ShapeError(f"{what}: {size} elements of axis {axis} cannot be pooled to {count}")
        x = _spans(reduce, x, axis, size, d.whole(count))
    return from_channels_last(x, 0, False, name)


def _spans(reduce: Callable[..., Tensor], x: ArrayLike, axis: int, size: int, count: int) -> Tensor:
    """Reduce *x* along an axis over the spans from ⌊i · size / count⌋ to ⌈(i + 1) · size / count⌉."""
    if size % count == 0:
        shape = d.type_of(x).shape
        return reduce(reshape(x, (*shape[:axis], count, size // count, *shape[axis + 1 :])), axis + 1)
    starts = [i * size // count for i in range(count)]
    ends = [-(-(i + 1) * size // count) for i in range(count)]
    parts = [part_of(x, axis, b, e - b) for b, e in zip(starts, ends, strict=True)]
    return concat([reduce(part, axis, True) for part in parts], axis)


@d.guarded("adaptive_avg_pool")
def adaptive_avg_pool(
    x: ArrayLike,
    output_size: int | Sequence[int | None],
    name: str | None = None,
    *,
    data_format: str | None = None,
) -> Tensor:
    """The mean over windows, of which there is a given number along each spatial axis.

    Args:
        x: [batch, spatial..., channels].
        output_size: the number of windows along each spatial axis, or one for all; None does not pool an
            axis. Window i of n along an axis of size m goes from ⌊i · m / n⌋ to ⌈(i + 1) · m / n⌉, as in
            PyTorch.
        name: of the operation.
        data_format: as for :func:`max_pool`.

    Returns:
        The result, in the data format.

    Raises:
        ShapeError, ArgumentError: there is not one number for each spatial axis, or a size is not known.

    Examples:
        >>> sg.adaptive_avg_pool(np.arange(5.0).reshape(1, 5, 1), 2)[0, :, 0]
        array([1., 3.])
    """
    return _adapted("adaptive_avg_pool", reduce_mean, x, output_size, data_format, name)


@d.guarded("adaptive_max_pool")
def adaptive_max_pool(
    x: ArrayLike,
    output_size: int | Sequence[int | None],
    name: str | None = None,
    *,
    data_format: str | None = None,
) -> Tensor:
    """The largest element of windows, of which there is a given number along each spatial axis.

    Args:
        x: [batch, spatial..., channels].
        output_size: as for :func:`adaptive_avg_pool`.
        name: of the operation.
        data_format: as for :func:`max_pool`.

    Returns:
        The result, in the data format; elements that tie share the gradient.

    Raises:
        ShapeError, ArgumentError: there is not one number for each spatial axis, or a size is not known.

    Examples:
        >>> sg.adaptive_max_pool(np.arange(5.0).reshape(1, 5, 1), 2)[0, :, 0]
        array([2., 4.])
    """
    return _adapted("adaptive_max_pool", reduce_max, x, output_size, data_format, name)
