"""TensorFlow's convolutions: by number of axes, transposed, by channel, in either data format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Shape, ShapeError, ShapeLike, Tensor
from stopgrad.ops.neural.convolution import Conv, ConvBackpropInput, read_geometry
from stopgrad.ops.neural.windows import (
    Padding,
    PaddingLike,
    PerAxis,
    PerAxisLike,
    channels_last,
    has_channels_first,
    number_of_groups,
    reach,
)
from stopgrad.ops.shapes.reshape import reshape, transpose
from stopgrad.ops.structural.sources import identity

__all__ = [
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "conv_transpose",
    "convolution",
    "depthwise_conv2d",
    "separable_conv2d",
]


def to_channels_last(x: ArrayLike, rank: int, first: bool) -> Tensor:
    """*x* as [batch, spatial..., channels], from [batch, channels, spatial...] if *first* is true."""
    return transpose(x, (0, *range(2, rank + 2), 1)) if first else x


def from_channels_last(x: ArrayLike, rank: int, first: bool, name: str | None) -> Tensor:
    """The inverse of :func:`to_channels_last`, under a name."""
    if first:
        return transpose(x, (0, rank + 1, *range(1, rank + 1)), name=name)
    return x if name is None else identity(x, name)


def _or_one(dilations: PerAxisLike | None) -> int | Sequence[int]:
    return 1 if dilations is None else dilations


@d.reads_arguments
def _convolved(
    what: str,
    rank: int | None,
    x: ArrayLike,
    filters: ArrayLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None,
    dilations: PerAxisLike | None,
    groups: int | None,
    name: str | None,
) -> Tensor:
    """A convolution over *rank* spatial axes, by default as many as the filters have.

    Further leading axes belong to the batch.
    """
    x_type, kind = d.type_of(x), d.type_of(filters)
    n = max(kind.ndim - 2, 1) if rank is None else rank
    with d.about(Conv, x, filters):
        first = has_channels_first(data_format, n)
        extra = x_type.ndim - (n + 2)
        if extra < 0 or (first and extra):
            raise ShapeError(f"(C2) {what} takes an input of {n + 2} axes, not {x_type!r}")
    if extra:
        x = reshape(x, (d.product(x_type.shape[: extra + 1]), *x_type.shape[extra + 1 :]))
    laid = to_channels_last(x, n, first)
    shape = d.type_of(laid).shape
    settings = [channels_last(v, n, first) for v in (strides, padding, _or_one(dilations))]
    geometry = read_geometry(Conv, (x, filters), n, *settings)
    values = (*geometry, number_of_groups(groups, shape[-1], kind.shape))
    direct = name if not first and not extra else None
    y = d.apply(Conv, (laid, filters), values, direct)
    if extra:
        return reshape(y, (*x_type.shape[: extra + 1], *d.type_of(y).shape[1:]), name)
    return from_channels_last(y, n, first, name) if first else y


@d.guarded("convolution")
def convolution(
    input: ArrayLike,
    filters: ArrayLike,
    strides: PerAxisLike | None = None,
    padding: PaddingLike = "VALID",
    data_format: str | None = None,
    dilations: PerAxisLike | None = None,
    name: str | None = None,
    *,
    groups: int | None = None,
) -> Tensor:
    """Convolution over one to three spatial axes, as many as the filters have.

    Args:
        input: [batch, spatial..., channels]; there may be several axes of the batch.
        filters: [window..., channels / groups, output channels]; they are not flipped.
        strides: the step from window to window: a number, or one for each spatial axis; None for 1.
        padding: "VALID" for none; "SAME" for as much as gives ⌈size / stride⌉ windows, an odd zero at the
            end; or for each axis the numbers of zeros before and after.
        data_format: "NWC", "NHWC", "NDHWC" or None for channels at the end; "NCW", "NCHW" or "NCDHW" for
            channels after the batch, in the input and the result.
        dilations: the step inside a window, likewise; None for 1.
        name: of the operation.
        groups: the number of groups of channels, each of which is convolved by itself; by default it follows
            from the numbers of channels.

    Returns:
        The result, in the data format.

    Raises:
        ShapeError, ArgumentError: as :func:`conv`, or the data format is unknown.

    Examples:
        >>> x, filters = np.ones((1, 2, 5, 5)), np.ones((3, 3, 2, 4))
        >>> sg.convolution(x, filters, padding="SAME", data_format="NCHW").shape
        (1, 4, 5, 5)
    """
    steps = 1 if strides is None else strides
    return _convolved(
        "convolution", None, input, filters, steps, padding, data_format, dilations, groups, name
    )


@d.guarded("conv1d")
def conv1d(
    input: ArrayLike,
    filters: ArrayLike,
    stride: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = "NWC",
    dilations: PerAxisLike | None = None,
    name: str | None = None,
    *,
    groups: int | None = None,
) -> Tensor:
    """Convolution over one spatial axis.

    Args:
        input: [batch, width, channels]; there may be several axes of the batch.
        filters: [width, channels / groups, output channels].
        stride: the step from window to window.
        padding: as in :func:`convolution`.
        data_format: "NWC", or "NCW" for [batch, channels, width].
        dilations: the step inside a window; None for 1.
        name: of the operation.
        groups: as in :func:`convolution`.

    Returns:
        The result, [batch, width, output channels].

    Raises:
        ShapeError, ArgumentError: as :func:`convolution`.

    Examples:
        >>> sg.conv1d(np.ones((1, 5, 2)), np.ones((3, 2, 4)), 1, "SAME").shape
        (1, 5, 4)
    """
    return _convolved("conv1d", 1, input, filters, stride, padding, data_format, dilations, groups, name)


@d.guarded("conv2d")
def conv2d(
    input: ArrayLike,
    filters: ArrayLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = "NHWC",
    dilations: PerAxisLike | None = None,
    name: str | None = None,
    *,
    groups: int | None = None,
) -> Tensor:
    """Convolution over two spatial axes.

    Args:
        input: [batch, height, width, channels]; there may be several axes of the batch.
        filters: [height, width, channels / groups, output channels].
        strides: the step from window to window: a number, or one for each axis.
        padding: as in :func:`convolution`.
        data_format: "NHWC", or "NCHW" for [batch, channels, height, width].
        dilations: the step inside a window, likewise; None for 1.
        name: of the operation.
        groups: as in :func:`convolution`.

    Returns:
        The result, [batch, height, width, output channels].

    Raises:
        ShapeError, ArgumentError: as :func:`convolution`.

    Examples:
        >>> sg.conv2d(np.ones((1, 5, 5, 2)), np.ones((3, 3, 2, 4)), 2, "SAME").shape
        (1, 3, 3, 4)
    """
    return _convolved("conv2d", 2, input, filters, strides, padding, data_format, dilations, groups, name)


@d.guarded("conv3d")
def conv3d(
    input: ArrayLike,
    filters: ArrayLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = "NDHWC",
    dilations: PerAxisLike | None = None,
    name: str | None = None,
    *,
    groups: int | None = None,
) -> Tensor:
    """Convolution over three spatial axes.

    Args:
        input: [batch, depth, height, width, channels]; there may be several axes of the batch.
        filters: [depth, height, width, channels / groups, output channels].
        strides: the step from window to window: a number, or one for each axis.
        padding: as in :func:`convolution`.
        data_format: "NDHWC", or "NCDHW" for [batch, channels, depth, height, width].
        dilations: the step inside a window, likewise; None for 1.
        name: of the operation.
        groups: as in :func:`convolution`.

    Returns:
        The result, [batch, depth, height, width, output channels].

    Raises:
        ShapeError, ArgumentError: as :func:`convolution`.

    Examples:
        >>> sg.conv3d(np.ones((1, 4, 5, 5, 2)), np.ones((3, 3, 3, 2, 4)), (1, 2, 2), "VALID").shape
        (1, 2, 2, 2, 4)
    """
    return _convolved("conv3d", 3, input, filters, strides, padding, data_format, dilations, groups, name)


@d.guarded("atrous_conv2d")
def atrous_conv2d(
    value: ArrayLike,
    filters: ArrayLike,
    rate: PerAxisLike,
    padding: PaddingLike,
    name: str | None = None,
) -> Tensor:
    """Convolution over two spatial axes whose windows have gaps: :func:`conv2d` with dilations.

    Args:
        value: [batch, height, width, channels].
        filters: [height, width, channels / groups, output channels].
        rate: the step inside a window.
        padding: as in :func:`convolution`.
        name: of the operation.

    Returns:
        The result, [batch, height, width, output channels].

    Raises:
        ShapeError, ArgumentError: as :func:`convolution`.

    Examples:
        >>> sg.atrous_conv2d(np.ones((1, 5, 5, 2)), np.ones((3, 3, 2, 4)), 2, "VALID").shape
        (1, 1, 1, 4)
    """
    return conv2d(value, filters, 1, padding, "NHWC", rate, name)


# -------------------------------------------------------------------------------------------- transposed


def _shape_before(
    shape: Shape, ksize: Shape, strides: PerAxis, padding: Padding, dilations: PerAxis
) -> tuple[Any, ...]:
    """The smallest spatial sizes that a convolution maps to *shape*."""
    if padding == "SAME":
        return tuple(n * s for n, s in zip(shape, strides, strict=True))
    around = [(0, 0)] * len(shape) if padding == "VALID" else padding
    return tuple(
        (n - 1) * s + reach(k, d) - low - high
        for n, s, k, d, (low, high) in zip(shape, strides, ksize, dilations, around, strict=True)
    )


@d.reads_arguments
def _transposed(
    what: str,
    rank: int | None,
    x: ArrayLike,
    filters: ArrayLike,
    output_shape: ShapeLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None,
    dilations: PerAxisLike | None,
    name: str | None,
    groups: int | None,
) -> Tensor:
    """The transpose of a convolution over *rank* spatial axes, or as many as the filters have."""
    x_type, kind = d.type_of(x), d.type_of(filters)
    n = max(kind.ndim - 2, 1) if rank is None else rank
    with d.about(ConvBackpropInput, filters, x):
        first = has_channels_first(data_format, n)
        for type, which in ((x_type, "an input"), (kind, "filters")):
            if type.ndim != n + 2:
                raise ShapeError(f"(C2) {what} takes {which} of {n + 2} axes, not {type!r}")
    settings = [channels_last(v, n, first) for v in (strides, padding, _or_one(dilations))]
    geometry = read_geometry(ConvBackpropInput, (filters, x), n, *settings)
    laid = to_channels_last(x, n, first)
    shape = d.type_of(laid).shape
    count = 1 if groups is None else d.whole(groups)
    batch, channels = shape[0], kind.shape[-2] * count
    if output_shape is None:
        spatial = _shape_before(shape[1:-1], kind.shape[:-2], *geometry)
    else:
        sizes = channels_last(d.shape_of(output_shape), n, first)
        if len(sizes) == n + 2:
            batch, spatial, channels = sizes[0], tuple(sizes[1:-1]), sizes[-1]
        elif len(sizes) == n:
            spatial = tuple(sizes)
        else:
            with d.about(ConvBackpropInput, filters, x):
                raise ShapeError(f"(C2) output_shape has {len(sizes)} sizes; there are {n + 2} axes")
    groups = number_of_groups(groups, channels, kind.shape)
    direct = None if first else name
    y = d.apply(ConvBackpropInput, (filters, laid), ((batch, *spatial, channels), *geometry, groups), direct)
    return from_channels_last(y, n, first, name) if first else y


@d.guarded("conv_transpose")
def conv_transpose(
    input: ArrayLike,
    filters: ArrayLike,
    output_shape: ShapeLike,
    strides: PerAxisLike,
    padding: PaddingLike = "SAME",
    data_format: str | None = None,
    dilations: PerAxisLike | None = None,
    name: str | None = None,
    *,
    groups: int | None = None,
) -> Tensor:
    """The transpose of :func:`convolution`, which maps from the space of its result to that of its input.

    Args:
        input: [batch, spatial..., channels].
        filters: [window..., output channels / groups, channels], as those of the convolution that this
            transposes.
        output_shape: of the result, in the data format; or its spatial sizes alone; or None for the smallest
            sizes with "VALID", and size · stride with "SAME".
        strides: of the convolution that this transposes.
        padding: of the convolution that this transposes.
        data_format: as in :func:`convolution`.
        dilations: of the convolution that this transposes; None for 1.
        name: of the operation.
        groups: of the convolution that this transposes; by default it follows from the output shape.

    Returns:
        A tensor of that shape.

    Raises:
        ShapeError, ArgumentError: the convolution does not map the output's shape to the input's.

    References:
        Zeiler, Krishnan, Taylor and Fergus 2010, "Deconvolutional networks".

    Examples:
        >>> sg.conv_transpose(np.ones((1, 2, 1)), np.ones((2, 1, 1)), (1, 4, 1), 2)[0, :, 0]
        array([1., 1., 1., 1.])
    """
    return _transposed(
        "conv_transpose",
        None,
        input,
        filters,
        output_shape,
        strides,
        padding,
        data_format,
        dilations,
        name,
        groups,
    )


def _transpose_of_rank(rank: int, data_format: str) -> Callable[..., Tensor]:
    """The public function for one number of spatial axes."""
    other = f"{data_format[0]}C{data_format[1:-1]}"
    axes = ", ".join(["depth", "height", "width"][-rank:])
    what = f"conv{rank}d_transpose"

    def transposed(
        input: ArrayLike,
        filters: ArrayLike,
        output_shape: ShapeLike,
        strides: PerAxisLike,
        padding: PaddingLike = "SAME",
        data_format: str | None = data_format,
        dilations: PerAxisLike | None = None,
        name: str | None = None,
        *,
        groups: int | None = None,
    ) -> Tensor:
        return _transposed(
            what, rank, input, filters, output_shape, strides, padding, data_format, dilations, name, groups
        )

    ones, size = ", ".join(["2"] * rank), ", ".join(["4"] * rank)
    transposed.__name__ = transposed.__qualname__ = what
    transposed.__doc__ = f"""The transpose of :func:`conv{rank}d`, from its result's space to its input's.

    Args:
        input: [batch, {axes}, channels].
        filters: [{axes}, output channels / groups, channels].
        output_shape: as in :func:`conv_transpose`.
        strides: of the convolution that this transposes.
        padding: of the convolution that this transposes.
        data_format: "{data_format}", or "{other}" for channels after the batch.
        dilations: of the convolution that this transposes; None for 1.
        name: of the operation.
        groups: as in :func:`conv_transpose`.

    Returns:
        A tensor of that shape.

    Raises:
        ShapeError, ArgumentError: as :func:`conv_transpose`.

    Examples:
        >>> sg.{what}(np.ones((1, {ones}, 1)), np.ones(({ones}, 1, 1)), (1, {size}, 1), 2).shape
        (1, {size}, 1)
    """
    return d.guarded(what)(transposed)


conv1d_transpose: Callable[..., Tensor] = _transpose_of_rank(1, "NWC")
conv2d_transpose: Callable[..., Tensor] = _transpose_of_rank(2, "NHWC")
conv3d_transpose: Callable[..., Tensor] = _transpose_of_rank(3, "NDHWC")


@d.guarded("atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: ArrayLike,
    filters: ArrayLike,
    output_shape: ShapeLike,
    rate: PerAxisLike,
    padding: PaddingLike,
    name: str | None = None,
) -> Tensor:
    """The transpose of :func:`atrous_conv2d`.

    Args:
        value: [batch, height, width, channels].
        filters: [height, width, output channels, channels].
        output_shape: of the result.
        rate: the step inside a window.
        padding: of the convolution that this transposes.
        name: of the operation.

    Returns:
        A tensor of that shape.

    Raises:
        ShapeError, ArgumentError: as :func:`conv_transpose`.

    Examples:
        >>> x, filters = np.ones((1, 1, 1, 2)), np.ones((2, 2, 3, 2))
        >>> sg.atrous_conv2d_transpose(x, filters, (1, 3, 3, 3), 2, "VALID").shape
        (1, 3, 3, 3)
    """
    return conv2d_transpose(value, filters, output_shape, 1, padding, "NHWC", rate, name)


# -------------------------------------------------------------------------------------------- by channel


@d.guarded("depthwise_conv2d")
def depthwise_conv2d(
    input: ArrayLike,
    filter: ArrayLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = None,
    dilations: PerAxisLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolution of each channel by itself, with filters of its own.

    Args:
        input: [batch, height, width, channels].
        filter: [height, width, channels, multiplier].
        strides: the step from window to window: a number, or one for each axis.
        padding: as in :func:`convolution`.
        data_format: "NHWC", also for None, or "NCHW".
        dilations: the step inside a window; None for 1.
        name: of the operation.

    Returns:
        The result, [batch, height, width, channels · multiplier]; results of one channel are neighbours.

    Raises:
        ShapeError, ArgumentError: as :func:`convolution`.

    Examples:
        >>> sg.depthwise_conv2d(np.ones((1, 5, 5, 3)), np.ones((2, 2, 3, 2)), 1, "VALID").shape
        (1, 4, 4, 6)
    """
    return conv2d(
        input,
        _by_channel(filter, "depthwise_conv2d"),
        strides,
        padding,
        data_format,
        dilations,
        name,
        groups=_channels(filter),
    )


def _channels(filter: ArrayLike) -> int:
    """The number of channels of a depthwise filter, which is its number of groups."""
    return d.type_of(filter).shape[2]  # type: ignore[return-value]


@d.reads_arguments
def _by_channel(filter: ArrayLike, what: str) -> Tensor:
    """A depthwise filter, reshaped for a convolution with a group for each channel."""
    kind = d.type_of(filter)
    with d.about(Conv, filter):
        if kind.ndim != 4:
            raise ShapeError(
                f"(C2) {what} takes a filter [height, width, channels, multiplier], not {kind!r}"
            )
        if not isinstance(kind.shape[2], int):
            raise ShapeError(f"(C5) the number of channels of {kind!r} must be known")
    height, width, channels, multiplier = kind.shape
    return reshape(filter, (height, width, 1, channels * multiplier))


@d.guarded("separable_conv2d")
def separable_conv2d(
    input: ArrayLike,
    depthwise_filter: ArrayLike,
    pointwise_filter: ArrayLike,
    strides: PerAxisLike,
    padding: PaddingLike,
    data_format: str | None = None,
    dilations: PerAxisLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A depthwise convolution, followed by a 1 × 1 convolution that mixes channels.

    Args:
        input: [batch, height, width, channels].
        depthwise_filter: [height, width, channels, multiplier].
        pointwise_filter: [1, 1, channels · multiplier, output channels].
        strides: as in :func:`depthwise_conv2d`.
        padding: as in :func:`depthwise_conv2d`.
        data_format: as in :func:`depthwise_conv2d`.
        dilations: as in :func:`depthwise_conv2d`.
        name: of the operation.

    Returns:
        The result, [batch, height, width, output channels].

    Raises:
        ShapeError, ArgumentError: as :func:`convolution`.

    References:
        Chollet 2016, arXiv:1610.02357.

    Examples:
        >>> x, by_channel, mixing = np.ones((1, 5, 5, 3)), np.ones((2, 2, 3, 2)), np.ones((1, 1, 6, 4))
        >>> sg.separable_conv2d(x, by_channel, mixing, 1, "VALID").shape
        (1, 4, 4, 4)
    """
    h = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return conv2d(h, pointwise_filter, 1, "VALID", data_format, None, name, groups=1)
