"""Images of other sizes: interpolation, and blocks of pixels moved into channels and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, NumpyArray, ShapeError, Size, Tensor
from stopgrad.ops.composing import chosen, floating
from stopgrad.ops.elementwise.convert import cast, wide
from stopgrad.ops.indexing.gather import gather
from stopgrad.ops.linalg.contractions import einsum
from stopgrad.ops.neural.filters import from_channels_last, to_channels_last
from stopgrad.ops.neural.windows import has_channels_first
from stopgrad.ops.shapes.reshape import expand_dims, reshape, squeeze, transpose

__all__ = ["depth_to_space", "resize", "space_to_depth"]

Kernel = Callable[[NumpyArray], NumpyArray]


def triangle(x: NumpyArray) -> NumpyArray:
    return np.maximum(1 - x, 0)


def cubic(x: NumpyArray, b: float, c: float) -> NumpyArray:
    """The cubic of Mitchell and Netravali; with b = 0 and c = 1/2 it is that of Keys."""
    near = (12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + (6 - 2 * b)
    far = (-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + (8 * b + 24 * c)
    return np.where(x < 1, near, np.where(x < 2, far, 0)) / 6


def lanczos(x: NumpyArray, radius: int) -> NumpyArray:
    return np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0)


def gaussian(x: NumpyArray) -> NumpyArray:
    return np.where(x < 1.5, np.exp(-2 * x**2), 0)


_KERNELS: dict[str, Kernel | None] = {
    "nearest": None,
    "bilinear": triangle,
    "bicubic": lambda x: cubic(x, 0, 0.5),
    "mitchellcubic": lambda x: cubic(x, 1 / 3, 1 / 3),
    "lanczos3": lambda x: lanczos(x, 3),
    "lanczos5": lambda x: lanczos(x, 5),
    "gaussian": gaussian,
    "area": None,
}


def _weights(method: str, before: int, after: int, antialias: bool) -> NumpyArray:
    """The weight of each pixel along an axis in each of the new pixels, [after, before]."""
    step = before / after
    if method == "area":
        starts, ends = np.arange(after)[:, None] * step, np.arange(1, after + 1)[:, None] * step
        pixels = np.arange(before)
        return np.maximum(np.minimum(ends, pixels + 1) - np.maximum(starts, pixels), 0) / step
    kernel = _KERNELS[method]
    assert kernel is not None
    centres = (np.arange(after)[:, None] + 0.5) * step
    weights = kernel(np.abs(np.arange(before) + 0.5 - centres) / (max(step, 1) if antialias else 1))
    return weights / weights.sum(1, keepdims=True)


def _nearest(before: int, after: int) -> NumpyArray:
    """The pixel along an axis that is nearest to the centre of each new pixel."""
    return ((2 * np.arange(after) + 1) * before // (2 * after)).astype(np.int32)


@d.reads_arguments
def _new_size(size: Sequence[int], height: int, width: int, keep: bool) -> tuple[int, int]:
    sizes = [d.whole(n) for n in size]
    if len(sizes) != 2 or min(sizes) < 1:
        raise ArgumentError(f"size={size!r} must be two numbers above 0, the new height and width")
    if keep:
        scale = min(sizes[0] / height, sizes[1] / width)
        sizes = [max(round(scale * n), 1) for n in (height, width)]
    return sizes[0], sizes[1]


@d.guarded("resize")
def resize(
    images: ArrayLike,
    size: Sequence[int],
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Tensor:
    """Images of another height and width, by interpolation.

    The centres of pixels lie at halves, so images do not shift. At the edges, the weights of pixels outside
    the image are left out.

    Args:
        images: [batch, height, width, channels], or without the batch; height and width are numbers.
        size: the new height and width.
        method: "nearest", "bilinear", "bicubic" (of Keys, a = -1/2), "area", "lanczos3", "lanczos5",
            "gaussian" or "mitchellcubic".
        preserve_aspect_ratio: whether the images keep their proportions; they then have the greatest size
            that fits into the given one.
        antialias: whether the kernel is widened where images become smaller, so that every pixel counts. Not
            for "nearest" and "area".
        name: of the operation.

    Returns:
        The images. Floating-point images keep their dtype, where TensorFlow returns float32; integers become
        floating-point, except with "nearest".

    Raises:
        ShapeError, ArgumentError: the images have other axes or unknown sizes; the method is unknown.

    References:
        Keys 1981, "Cubic convolution interpolation for digital image processing"; ``tf.image.resize``.

    Examples:
        >>> sg.resize(np.array([0.0, 1.0]).reshape(1, 2, 1), (1, 4))[0, :, 0]
        array([0.  , 0.25, 0.75, 1.  ])
    """
    kind = d.type_of(images)
    chosen(method, {word: word for word in _KERNELS}, "method")
    if kind.ndim not in (3, 4):
        raise ShapeError(f"takes [batch, height, width, channels] or [height, width, channels], not {kind!r}")
    height, width = kind.shape[-3:-1]
    if not isinstance(height, int) or not isinstance(width, int) or not height or not width:
        raise ShapeError(f"height and width of {kind!r} must be numbers above 0")
    after = _new_size(size, height, width, d.flag(preserve_aspect_ratio))
    axis = kind.ndim - 3
    if method == "nearest":
        rows, columns = (_nearest(n, m) for n, m in zip((height, width), after, strict=True))
        return gather(gather(images, rows, axis=axis), columns, axis=axis + 1, name=name)
    (x,) = floating(images)
    dtype, values = d.type_of(x).dtype, wide(x)
    down, across = (
        _weights(method, n, m, d.flag(antialias)).astype(d.type_of(values).dtype.numpy)
        for n, m in zip((height, width), after, strict=True)
    )
    values = values if kind.ndim == 4 else expand_dims(values, 0)
    y = einsum("pw,bhwc->bhpc", across, einsum("oh,bhwc->bowc", down, values))
    return cast(y if kind.ndim == 4 else squeeze(y, 0), dtype, name)


# ---------------------------------------------------------------------------------------------- blocks


@d.reads_arguments
def _image(what: str, input: ArrayLike, block_size: int, data_format: str | None) -> tuple[bool, int]:
    """Whether channels come first, and the size of blocks."""
    kind, block = d.type_of(input), d.whole(block_size)
    if kind.ndim != 4:
        raise ShapeError(f"{what} takes images of four axes, not {kind!r}")
    if block < 1:
        raise ArgumentError(f"{what}: block_size={block} must be above 0")
    return has_channels_first(data_format, 2), block


def _divides(what: str, number: int, size: Size, name: str) -> None:
    if isinstance(size, int) and size % number:
        raise ShapeError(f"{what}: {number} does not divide {size}, the {name}")


@d.guarded("space_to_depth")
def space_to_depth(
    input: ArrayLike, block_size: int, data_format: str | None = "NHWC", name: str | None = None
) -> Tensor:
    """Blocks of pixels moved into channels.

    Args:
        input: [batch, height, width, channels].
        block_size: b, which divides height and width.
        data_format: "NHWC", or "NCHW" for [batch, channels, height, width].
        name: of the operation.

    Returns:
        [batch, height / b, width / b, b · b · channels].

    Raises:
        ShapeError, ArgumentError: b does not divide height and width; the data format is unknown.

    Examples:
        >>> sg.space_to_depth(np.arange(4.0).reshape(1, 2, 2, 1), 2)[0, 0, 0]
        array([0., 1., 2., 3.])
    """
    first, b = _image("space_to_depth", input, block_size, data_format)
    x = to_channels_last(input, 2, first)
    n, h, w, c = d.type_of(x).shape
    _divides("space_to_depth", b, h, "height")
    _divides("space_to_depth", b, w, "width")
    y = transpose(reshape(x, (n, h // b, b, w // b, b, c)), (0, 1, 3, 2, 4, 5))
    return from_channels_last(reshape(y, (n, h // b, w // b, b * b * c)), 2, first, name)


@d.guarded("depth_to_space")
def depth_to_space(
    input: ArrayLike, block_size: int, data_format: str | None = "NHWC", name: str | None = None
) -> Tensor:
    """Channels moved into blocks of pixels, the inverse of :func:`space_to_depth`.

    Args:
        input: [batch, height, width, b · b · channels].
        block_size: b.
        data_format: "NHWC", or "NCHW" for [batch, channels, height, width].
        name: of the operation.

    Returns:
        [batch, height · b, width · b, channels].

    Raises:
        ShapeError, ArgumentError: b · b does not divide the channels; the data format is unknown.

    References:
        Shi et al. 2016, arXiv:1609.05158 (PyTorch's ``pixel_shuffle`` orders the channels differently).

    Examples:
        >>> sg.depth_to_space(np.arange(4.0).reshape(1, 1, 1, 4), 2)[0, :, :, 0]
        array([[0., 1.],
               [2., 3.]])
    """
    first, b = _image("depth_to_space", input, block_size, data_format)
    x = to_channels_last(input, 2, first)
    n, h, w, c = d.type_of(x).shape
    _divides("depth_to_space", b * b, c, "number of channels")
    y = transpose(reshape(x, (n, h, w, b, b, c // (b * b))), (0, 1, 3, 2, 4, 5))
    return from_channels_last(reshape(y, (n, h * b, w * b, c // (b * b))), 2, first, name)
