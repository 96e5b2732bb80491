"""Moments, and normalisation over batches, groups of channels, examples and windows of channels."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, ShapeError, Tensor
from stopgrad.graph.names import check_name
from stopgrad.ops.composing import floating
from stopgrad.ops.elementwise.arithmetic import add, divide, multiply, square, squared_difference, subtract
from stopgrad.ops.elementwise.composite import layer_norm
from stopgrad.ops.elementwise.convert import cast, wide
from stopgrad.ops.elementwise.powers import pow, rsqrt
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.reductions.reduce import reduce_mean, reduce_variance
from stopgrad.ops.shapes.join import pad
from stopgrad.ops.shapes.reshape import broadcast_to, reduce_sum, reshape, squeeze
from stopgrad.ops.structural.sources import identity, size_as

__all__ = [
    "batch_normalization",
    "bias_add",
    "group_norm",
    "instance_norm",
    "local_response_normalization",
    "lrn",
    "moments",
    "normalize_moments",
    "rms_norm",
    "sufficient_statistics",
    "weighted_moments",
]


def _part_name(name: str | None, part: str) -> str | None:
    """The name of one of several results: ``name/part``."""
    if name is None:
        return None
    check_name(name)
    return f"{name}/{part}"


# --------------------------------------------------------------------------------------------- moments


@d.guarded("moments")
def moments(
    x: ArrayLike,
    axes: int | Sequence[int] | None,
    shift: ArrayLike | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean and the variance over axes.

    Args:
        x: floating-point.
        axes: one axis or several; None for all.
        shift: has no effect, as in TensorFlow: the variance is always computed about the mean.
        keepdims: whether the axes stay, with size 1.
        name: the scope of the names of the two results, "mean" and "variance".

    Returns:
        The mean and the variance (of a population: divided by the number of elements).

    Raises:
        ShapeError: an axis does not exist, or is named twice.

    Examples:
        >>> sg.moments(np.array([1.0, 3.0]), 0)
        (array(2.), array(1.))
    """
    (x,) = floating(x)
    keep = d.flag(keepdims)
    mean = reduce_mean(x, axes, keep, _part_name(name, "mean"))
    return mean, reduce_variance(x, axes, keep, _part_name(name, "variance"))


@d.guarded("weighted_moments")
def weighted_moments(
    x: ArrayLike,
    axes: int | Sequence[int] | None,
    frequency_weights: ArrayLike,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The weighted mean and variance over axes.

    Args:
        x: floating-point.
        axes: one axis or several; None for all.
        frequency_weights: the weight of each element, of a shape that broadcasts with x's.
        keepdims: whether the axes stay, with size 1.
        name: the scope of the names of the two results, "mean" and "variance".

    Returns:
        The mean and the variance; NaN where the weights sum to 0.

    Raises:
        ShapeError: an axis does not exist, or the shapes do not broadcast.

    Examples:
        >>> sg.weighted_moments(np.array([1.0, 3.0]), 0, np.array([3.0, 1.0]))
        (array(1.5), array(0.75))
    """
    x, weights = floating(x, frequency_weights)
    shape = d.broadcast_shapes(d.type_of(x).shape, d.type_of(weights).shape)
    values, counts = (broadcast_to(wide(t), shape) for t in (x, weights))
    dtype, keep = d.type_of(x).dtype, d.flag(keepdims)
    total = reduce_sum(counts, axes, True)
    mean = divide(reduce_sum(multiply(counts, values), axes, True), total)
    variance = divide(reduce_sum(multiply(counts, squared_difference(values, mean)), axes, True), total)
    if not keep:
        gone = d.normal_axes(axes, len(shape))
        mean, variance = squeeze(mean, gone), squeeze(variance, gone)
    return cast(mean, dtype, _part_name(name, "mean")), cast(variance, dtype, _part_name(name, "variance"))


@d.guarded("sufficient_statistics")
def sufficient_statistics(
    x: ArrayLike,
    axes: int | Sequence[int] | None,
    shift: ArrayLike | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Sums from which :func:`normalize_moments` computes mean and variance; those of parts can be added up.

    Args:
        x: floating-point.
        axes: one axis or several; None for all.
        shift: a number near the mean, which is subtracted first so that no digits are lost; or None.
        keepdims: whether the axes stay, with size 1.
        name: the scope of the names of the results, "count", "mean_ss", "var_ss", "shift".

    Returns:
        The number of elements (a scalar), the sum of the elements minus the shift, the sum of the squares of
        these differences, and the shift.

    Raises:
        ShapeError: an axis does not exist, or is named twice.

    Examples:
        >>> sg.sufficient_statistics(np.array([1.0, 3.0]), 0)
        (array(2.), array(4.), array(10.), None)
    """
    x, *shifts = floating(x) if shift is None else floating(x, shift)
    kind, keep = d.type_of(x), d.flag(keepdims)
    count = size_as(d.product(kind.shape[a] for a in d.normal_axes(axes, kind.ndim)), kind.dtype, x)
    left = subtract(x, shifts[0]) if shifts else x
    return (
        cast(count, kind.dtype, _part_name(name, "count")),
        reduce_sum(left, axes, keep, _part_name(name, "mean_ss")),
        reduce_sum(square(left), axes, keep, _part_name(name, "var_ss")),
        identity(shifts[0], _part_name(name, "shift")) if shifts else None,
    )


@d.guarded("normalize_moments")
def normalize_moments(
    counts: ArrayLike, mean_ss: ArrayLike, variance_ss: ArrayLike, shift: ArrayLike, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The mean and the variance from the results of :func:`sufficient_statistics`.

    Args:
        counts: the number of elements.
        mean_ss: the sum of the elements minus the shift.
        variance_ss: the sum of the squares of these differences.
        shift: the shift, or None.
        name: the scope of the names of the two results, "mean" and "variance".

    Returns:
        The mean and the variance.

    Raises:
        ShapeError: the shapes do not broadcast.

    Examples:
        >>> sg.normalize_moments(2.0, np.array(4.0), np.array(10.0), None)
        (array(2.), array(1.))
    """
    numbers = [counts, mean_ss, variance_ss] + ([] if shift is None else [shift])
    counts, sums, squares, *shifts = floating(*numbers)
    left = divide(sums, counts)
    variance = subtract(divide(squares, counts), square(left), _part_name(name, "variance"))
    mean = add(left, shifts[0], _part_name(name, "mean")) if shifts else left
    return cast(mean, d.type_of(mean).dtype, None if shifts else _part_name(name, "mean")), variance


# --------------------------------------------------------------------------------------- normalisation


@d.guarded("batch_normalization")
def batch_normalization(
    x: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    offset: ArrayLike,
    scale: ArrayLike,
    variance_epsilon: ArrayLike,
    name: str | None = None,
) -> Tensor:
    """(x - mean) / √(variance + ε) · scale + offset, with mean and variance as from :func:`moments`.

    Args:
        x: floating-point.
        mean: of a shape that broadcasts with x's.
        variance: likewise.
        offset: likewise; None for no offset.
        scale: likewise; None for no scale.
        variance_epsilon: ε, a small number.
        name: of the operation.

    Returns:
        The normalised values, of x's shape.

    Raises:
        ShapeError: the shapes do not broadcast.

    References:
        Ioffe and Szegedy 2015, arXiv:1502.03167.

    Examples:
        >>> x = np.array([[1.0], [3.0]])
        >>> mean, variance = sg.moments(x, 0)
        >>> sg.batch_normalization(x, mean, variance, None, np.array([2.0]), 0.0)
        array([[-2.],
               [ 2.]])
    """
    settings = {"offset": offset, "scale": scale}
    present = {key: value for key, value in settings.items() if value is not None}
    x, mean, variance, epsilon, *rest = floating(x, mean, variance, variance_epsilon, *present.values())
    converted = dict(zip(present, rest, strict=True))
    factor = rsqrt(add(wide(variance), wide(epsilon)))
    if "scale" in converted:
        factor = multiply(factor, wide(converted["scale"]))
    y = multiply(subtract(wide(x), wide(mean)), factor)
    if "offset" in converted:
        y = add(y, wide(converted["offset"]))
    return cast(y, d.type_of(x).dtype, name)


def _scaled(
    y: Tensor, scale: ArrayLike | None, offset: ArrayLike | None, axis: int, name: str | None
) -> Tensor:
    """A tensor times the scales of the channels along an axis, plus their offsets."""
    trailing = d.type_of(y).ndim - axis - 1
    for setting, function in ((scale, multiply), (offset, add)):
        if setting is not None:
            shape = d.type_of(setting).shape
            y = function(y, reshape(setting, (*shape, *(1,) * trailing)) if len(shape) == 1 else setting)
    return cast(y, d.type_of(y).dtype, name)


@d.guarded("group_norm")
def group_norm(
    x: ArrayLike,
    groups: int,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """(x - mean) / √(variance + ε), both over each group of channels and all spatial axes of an example.

    Args:
        x: [batch, ..., channels], floating-point.
        groups: how many groups of channels there are.
        scale: [channels], the factor of the normalised values; None for no factor.
        offset: [channels], added after that; None for no offset.
        axis: the axis of the channels, not the first; 1 for [batch, channels, ...].
        epsilon: ε, a Python number.
        name: of the operation.

    Returns:
        The normalised values, of x's shape.

    Raises:
        ShapeError: the groups do not divide the channels, or the axis does not exist.

    References:
        Wu and He 2018, arXiv:1803.08494.

    Examples:
        >>> sg.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), 2, epsilon=0.0)
        array([[-1.,  1., -1.,  1.]])
    """
    shape = d.type_of(x).shape
    place, count = d.normal_axis(axis, len(shape)), d.whole(groups)
    channels = shape[place]
    if place == 0:
        raise ShapeError("the first axis is that of the examples; the channels have another")
    if count < 1 or not isinstance(channels, int) or channels % count:
        raise ShapeError(f"{groups} groups do not divide {channels} channels")
    split = reshape(x, (*shape[:place], count, channels // count, *shape[place + 1 :]))
    axes = [i for i in range(1, len(shape) + 1) if i != place]
    y = reshape(layer_norm(split, axis=axes, epsilon=d.real(epsilon)), shape)
    return _scaled(y, scale, offset, place, name)


@d.guarded("instance_norm")
def instance_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """(x - mean) / √(variance + ε), both over the spatial axes of each channel of each example.

    Args:
        x: [batch, spatial..., channels], floating-point.
        scale: [channels], the factor of the normalised values; None for no factor.
        offset: [channels], added after that; None for no offset.
        axis: the axis of the channels, not the first; 1 for [batch, channels, spatial...].
        epsilon: ε, a Python number.
        name: of the operation.

    Returns:
        The normalised values, of x's shape.

    Raises:
        ShapeError: there is no spatial axis, or the axis does not exist.

    References:
        Ulyanov, Vedaldi and Lempitsky 2016, arXiv:1607.08022.

    Examples:
        >>> sg.instance_norm(np.array([[[1.0, 20.0], [3.0, 40.0]]]), epsilon=0.0)
        array([[[-1., -1.],
                [ 1.,  1.]]])
    """
    kind = d.type_of(x)
    place = d.normal_axis(axis, kind.ndim)
    axes = [i for i in range(1, kind.ndim) if i != place]
    if place == 0 or not axes:
        raise ShapeError(
            f"takes [batch, spatial..., channels], not {kind!r} with channels along axis {place}"
        )
    return _scaled(layer_norm(x, axis=axes, epsilon=d.real(epsilon)), scale, offset, place, name)


@d.guarded("rms_norm")
def rms_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    axis: int | Sequence[int] | None = -1,
    epsilon: float = 1e-6,
    name: str | None = None,
) -> Tensor:
    """x / √(mean of x² + ε), with the mean over axes.

    Args:
        x: floating-point.
        scale: the factor of the normalised values; None for no factor.
        axis: one axis or several, over which one mean is taken.
        epsilon: ε, a Python number.
        name: of the operation.

    Returns:
        The normalised values, of x's shape.

    Raises:
        ShapeError: an axis does not exist, or the shapes do not broadcast.

    References:
        Zhang and Sennrich 2019, arXiv:1910.07467.

    Examples:
        >>> sg.rms_norm(np.array([3.0, -3.0]), epsilon=0.0)
        array([ 1., -1.])
    """
    x, *scales = floating(x) if scale is None else floating(x, scale)
    values = wide(x)
    y = multiply(values, rsqrt(add(reduce_mean(square(values), axis, True), d.real(epsilon))))
    for factor in scales:
        y = multiply(y, wide(factor))
    return cast(y, d.type_of(x).dtype, name)


@d.guarded("local_response_normalization")
def local_response_normalization(
    input: ArrayLike,
    depth_radius: int = 5,
    bias: ArrayLike = 1,
    alpha: ArrayLike = 1,
    beta: ArrayLike = 0.5,
    name: str | None = None,
) -> Tensor:
    """x / (bias + α Σ x²)^β, with the sum over neighbouring channels.

    Args:
        input: [..., channels], floating-point.
        depth_radius: how many channels count on either side.
        bias: a number above 0, so that nothing is divided by 0.
        alpha: α.
        beta: β.
        name: of the operation.

    Returns:
        The normalised values, of x's shape.

    Raises:
        ArgumentError, ShapeError: the radius is negative, or there is no axis.

    References:
        Krizhevsky, Sutskever and Hinton 2012, "ImageNet classification with deep convolutional networks".

    Examples:
        >>> sg.local_response_normalization(np.array([3.0, 4.0, 0.0]), 1, bias=0.0)
        array([0.6, 0.8, 0. ])
    """
    (x,) = floating(input)
    kind, radius = d.type_of(x), d.whole(depth_radius)
    if radius < 0:
        raise ArgumentError(f"depth_radius is 0 or more, not {radius}")
    if not kind.ndim:
        raise ShapeError(f"takes [..., channels], not {kind!r}")
    values, last = wide(x), kind.ndim - 1
    around = pad(square(values), [(0, 0)] * last + [(radius, radius)])
    total = part_of(around, last, 0, kind.shape[-1])
    for i in range(1, 2 * radius + 1):
        total = add(total, part_of(around, last, i, kind.shape[-1]))
    y = multiply(values, pow(add(multiply(total, alpha), bias), multiply(beta, -1.0)))
    return cast(y, kind.dtype, name)


@d.guarded("lrn")
def lrn(
    input: ArrayLike,
    depth_radius: int = 5,
    bias: ArrayLike = 1,
    alpha: ArrayLike = 1,
    beta: ArrayLike = 0.5,
    name: str | None = None,
) -> Tensor:
    """:func:`local_response_normalization`, by its short name.

    Args:
        input: [..., channels], floating-point.
        depth_radius: how many channels count on either side.
        bias: a number above 0.
        alpha: the factor of the sum of squares.
        beta: the exponent.
        name: of the operation.

    Returns:
        The normalised values, of x's shape.

    Raises:
        ArgumentError, ShapeError: the radius is negative, or there is no axis.

    Examples:
        >>> sg.lrn(np.array([3.0, 4.0, 0.0]), 1, bias=0.0)
        array([0.6, 0.8, 0. ])
    """
    return local_response_normalization(input, depth_radius, bias, alpha, beta, name)


@d.guarded("bias_add")
def bias_add(
    value: ArrayLike, bias: ArrayLike, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Add a bias to each channel.

    Args:
        value: [batch, ..., channels].
        bias: [channels].
        data_format: "NHWC" or another that ends with "C", also for None; or "NCHW" or another that begins
            with "NC" for [batch, channels, ...].
        name: of the operation.

    Returns:
        The sum, of the value's shape.

    Raises:
        ShapeError, ArgumentError: the bias has not one number for each channel; the format is unknown.

    Examples:
        >>> sg.bias_add(np.zeros((1, 2)), np.array([1.0, 2.0]))
        array([[1., 2.]])
    """
    kind, bias_type = d.type_of(value), d.type_of(bias)
    word = "C" if data_format is None else data_format
    if not isinstance(word, str) or not (word.startswith("NC") or word.endswith("C")):
        raise ArgumentError(f"data_format={data_format!r} is unknown; take 'NHWC' or 'NCHW'")
    place = 1 if word.startswith("NC") else kind.ndim - 1
    if bias_type.ndim != 1 or kind.ndim < 2 or not d.same_size(bias_type.shape[0], kind.shape[place]):
        raise ShapeError(f"takes [batch, ..., channels] and [channels], not {kind!r} and {bias_type!r}")
    return add(value, reshape(bias, (bias_type.shape[0], *(1,) * (kind.ndim - place - 1))), name)
