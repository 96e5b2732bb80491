"""The geometry of windows that slide over the spatial axes of a tensor [batch, spatial..., channels]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, Array, Dim, Namespace, NumpyArray, Shape, ShapeError, Size

PerAxis = tuple[int, ...]
"""A number for each spatial axis."""

PerAxisLike = int | Sequence[int]
"""One number for all spatial axes, or one for each."""

Padding = Literal["SAME", "VALID"] | tuple[tuple[int, int], ...]
"""``"SAME"``, ``"VALID"``, or for each spatial axis how many elements are added before and after."""

PaddingLike = str | Sequence[Sequence[int]]
"""A padding as public functions accept it."""

_WORDS: dict[str, Literal["SAME", "VALID"]] = {"SAME": "SAME", "VALID": "VALID"}

Geometry = tuple[PerAxis, Padding, PerAxis]
"""Strides, padding, dilations."""


@d.reads_arguments
def has_channels_first(data_format: str | None, rank: int) -> bool:
    """Whether a data format such as "NCHW" has the channels before the spatial axes."""
    spatial = "DHW"[-rank:] if 1 <= rank <= 3 else ""
    if data_format is None or (spatial and data_format == f"N{spatial}C"):
        return False
    if spatial and data_format == f"NC{spatial}":
        return True
    hint = f"takes 'N{spatial}C' or 'NC{spatial}'" if spatial else "leave it out"
    raise ArgumentError(f"data_format={data_format!r} is unknown for {rank} spatial axes; {hint}")


def channels_last(value: object, rank: int, first: bool) -> Any:
    """A list with a part for each axis, reordered to channels last; anything else unchanged."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if first and isinstance(value, Sequence) and not isinstance(value, str) and len(value) == rank + 2:
        return [value[0], *value[2:], value[1]]
    return value


@d.reads_arguments
def per_axis(value: PerAxisLike | NumpyArray, rank: int, what: str) -> PerAxis:
    """One number for each spatial axis, from a number, a list of them, or TensorFlow's list for all axes."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Sequence):
        numbers = [d.whole(n) for n in value]
        if len(numbers) == rank + 2 and numbers[0] == numbers[-1] == 1:
            numbers = numbers[1:-1]
        elif len(numbers) == 1:
            numbers *= rank
    else:
        numbers = [d.whole(value)] * rank
    if len(numbers) != rank or any(n < 1 for n in numbers):
        raise ShapeError(
            f"(C3) {what}={value!r} must be positive, one number or one for each of {rank} spatial axes"
        )
    return tuple(numbers)


@d.reads_arguments
def normal_padding(padding: PaddingLike, rank: int) -> Padding:
    """``"SAME"``, ``"VALID"`` or a pair of sizes for each spatial axis."""
    if isinstance(padding, str):
        word = _WORDS.get(padding.upper())
        if word is None:
            raise ShapeError(f"(C3) padding={padding!r} is unknown; take 'SAME', 'VALID' or pairs of sizes")
        return word
    if any(isinstance(n, int) and n < 0 for pair in padding if isinstance(pair, Sequence) for n in pair):
        raise ShapeError(f"(C3) padding={padding!r} has a negative size; to cut elements off, slice")
    pairs = [d.shape_of(pair) for pair in padding]
    if len(pairs) == rank + 2 and pairs[0] == pairs[-1] == (0, 0):
        pairs = pairs[1:-1]
    if len(pairs) != rank or any(len(pair) != 2 or any(isinstance(n, Dim) for n in pair) for pair in pairs):
        raise ShapeError(
            f"(C3) padding={padding!r} must have a pair of numbers for each of {rank} spatial axes"
        )
    return tuple((int(low), int(high)) for low, high in pairs)


def reach(size: Size, dilation: int) -> Size:
    """How many elements a window of *size* elements covers, gaps included."""
    return (size - 1) * dilation + 1


def _check_geometry(ksize: Sequence[Any], geometry: Geometry) -> None:
    """Raise ShapeError for a geometry that leaves the array, which only a graph's text can contain."""
    strides, padding, dilations = geometry
    numbers = [*(n for n in ksize if not isinstance(n, Dim)), *strides, *dilations]
    if any(type(n) is not int or n < 0 for n in numbers) or 0 in strides or 0 in dilations:
        raise ShapeError(
            f"(C3) {ksize}, strides {strides} and dilations {dilations} are no geometry of windows"
        )
    if padding in ("SAME", "VALID"):
        return
    if not all(
        type(pair) is tuple and [type(n) for n in pair] == [int, int] and min(pair) >= 0 for pair in padding
    ):
        raise ShapeError(f"(C3) padding={padding!r} is no pair of numbers, 0 or more, for each spatial axis")


def output_shape(spatial: Shape, ksize: Shape, geometry: Geometry) -> Shape:
    """How many windows there are along each spatial axis."""
    strides, padding, dilations = geometry
    _check_geometry(ksize, geometry)
    counts: list[Any] = []
    for i, (size, k, stride, dilation) in enumerate(zip(spatial, ksize, strides, dilations, strict=True)):
        if padding == "SAME":
            counts.append((size + (stride - 1)) // stride)
            continue
        low, high = (0, 0) if padding == "VALID" else padding[i]
        count = (size + low + high - reach(k, dilation)) // stride + 1
        # An axis without elements has no windows; one whose windows do not fit would silently have none.
        if isinstance(count, int) and (count < 0 or (count == 0 and size != 0)):
            raise ShapeError(
                f"(C4) a window that spans {reach(k, dilation)} elements is larger than axis {i + 1} of size "
                f"{size}, padded by {low} and {high}"
            )
        counts.append(count)
    return tuple(counts)


def pads(spatial: Sequence[int], ksize: Sequence[int], geometry: Geometry) -> list[tuple[int, int]]:
    """How many elements are added before and after each spatial axis, whose sizes are known."""
    strides, padding, dilations = geometry
    if padding == "VALID":
        return [(0, 0)] * len(spatial)
    if padding != "SAME":
        return list(padding)
    counts = output_shape(tuple(spatial), tuple(ksize), geometry)
    totals = [
        max((o - 1) * s + reach(k, gap) - n, 0)
        for n, k, s, gap, o in zip(spatial, ksize, strides, dilations, counts, strict=True)
    ]
    return [(total // 2, total - total // 2) for total in totals]


def back_pads(
    spatial: Sequence[int], ksize: Sequence[int], geometry: Geometry, counts: Sequence[Any]
) -> list[tuple[int, int]]:
    """The padding with which windows that slide over a cotangent give a result of the spatial shape.

    The cotangent's elements are placed *strides* apart.
    """
    strides, _, dilations = geometry
    paddings = []
    for n, k, s, gap, o, (low, _) in zip(
        spatial, ksize, strides, dilations, counts, pads(spatial, ksize, geometry), strict=True
    ):
        before = reach(k, gap) - 1 - low
        paddings.append((before, n + reach(k, gap) - 1 - reach(o, s) - before))
    return paddings


def padded(xp: Namespace, x: Array, ksize: Sequence[int], geometry: Geometry, value: float = 0) -> Any:
    """*x* with padding added, so that the first window begins at 0."""
    around = [(0, 0), *pads(x.shape[1:-1], ksize, geometry), (0, 0)]
    return xp.pad(x, around, constant_values=value) if any(n for pair in around for n in pair) else x


def view(
    xp: Namespace, x: NumpyArray, ksize: Sequence[int], counts: Sequence[Any], geometry: Geometry
) -> Any:
    """All windows of a padded NumPy array, [batch, counts..., ksize..., channels], without a copy."""
    strides, _, dilations = geometry
    # Checked here as well, since a strided view beyond the array would read foreign memory.
    for size, o, k, s, gap in zip(x.shape[1:-1], counts, ksize, strides, dilations, strict=True):
        if min(s, gap) < 1 or (o > 0 and k > 0 and (o - 1) * s + reach(k, gap) > size):
            raise ShapeError(
                f"{o} windows of {k} elements, {s} and {gap} apart, exceed an axis of size {size}"
            )
    steps = x.strides[1:-1]
    shape = (x.shape[0], *counts, *ksize, x.shape[-1])
    jumps = (
        x.strides[0],
        *(t * s for t, s in zip(steps, strides, strict=True)),
        *(t * gap for t, gap in zip(steps, dilations, strict=True)),
        x.strides[-1],
    )
    return xp.lib.stride_tricks.as_strided(x, shape, jumps, writeable=False)


def at(position: Sequence[int], counts: Sequence[Any], geometry: Geometry) -> tuple[slice, ...]:
    """The slices of the padded array that hold the element at *position* of every window."""
    strides, _, dilations = geometry
    starts = [p * gap for p, gap in zip(position, dilations, strict=True)]
    spans = (
        slice(b, b + reach(o, s), s) if o else slice(0, 0)
        for b, o, s in zip(starts, counts, strides, strict=True)
    )
    return (slice(None), *spans, slice(None))


def trimmed(x: Array, spatial: Sequence[Any], ksize: Sequence[Any], geometry: Geometry) -> Array:
    """A padded array without its padding."""
    return x[
        (
            slice(None),
            *(
                slice(low, low + n)
                for n, (low, _) in zip(spatial, pads(spatial, ksize, geometry), strict=True)
            ),
            slice(None),
        )
    ]


def padded_shape(shape: Sequence[int], ksize: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    around = pads(shape[1:-1], ksize, geometry)
    return (
        shape[0],
        *(low + n + high for n, (low, high) in zip(shape[1:-1], around, strict=True)),
        shape[-1],
    )


# -------------------------------------------------------------------------------------------- convolution


def convolved(
    x: Shape, filters: Shape, strides: PerAxis, padding: Padding, dilations: PerAxis, groups: int
) -> Shape:
    """The shape of a convolution's result."""
    if len(x) != len(filters) or len(x) < 3:
        raise ShapeError(
            f"(C2) the input {d.show_shape(x)} and the filters {d.show_shape(filters)} must have as many "
            "axes, at least three"
        )
    if groups < 1:
        raise ShapeError(f"(C5) {groups} groups; there is at least one")
    if not d.same_size(x[-1], filters[-2] * groups):
        raise ShapeError(
            f"(C5) the input has {x[-1]} channels; filters {d.show_shape(filters)} in {groups} groups take "
            f"{filters[-2] * groups}"
        )
    if isinstance(filters[-1], int) and filters[-1] % groups:
        raise ShapeError(f"(C5) {filters[-1]} output channels do not fall into {groups} groups")
    return (x[0], *output_shape(x[1:-1], filters[:-2], (strides, padding, dilations)), filters[-1])


@d.reads_arguments
def number_of_groups(groups: int | None, channels: Size, filters: Shape) -> int:
    """The number of groups: the user's, or else that which the numbers of channels imply."""
    if groups is not None:
        return d.whole(groups)
    size = filters[-2] if len(filters) >= 2 else 1
    return (
        channels // size
        if isinstance(channels, int) and isinstance(size, int) and size and channels % size == 0 and channels
        else 1
    )


def letters(rank: int) -> str:
    """Names of the spatial axes for XLA's dimension numbers."""
    return "XYZUVW"[:rank]


# ------------------------------------------------------------------------ as products of matrices (NumPy)


def columns(
    xp: Namespace, x: Array, ksize: PerAxis, counts: Sequence[Any], geometry: Geometry, groups: int
) -> Any:
    """All windows as rows, by group: [groups, batch · counts, ksize · channels / groups]."""
    windows = view(xp, padded(xp, x, ksize, geometry), ksize, counts, geometry)
    split = windows.reshape(*windows.shape[:-1], groups, x.shape[-1] // groups)
    return xp.moveaxis(split, -2, 0).reshape(
        groups, x.shape[0] * math.prod(counts), math.prod(ksize) * (x.shape[-1] // groups)
    )


def matrices(xp: Namespace, filters: Array, groups: int) -> Array:
    """Filters as a matrix for each group: [groups, ksize · channels in, channels out]."""
    rows, per_group = math.prod(filters.shape[:-1]), filters.shape[-1] // groups
    return xp.moveaxis(filters.reshape(rows, groups, per_group), 1, 0)


def by_group(xp: Namespace, g: Array, groups: int) -> Array:
    """A cotangent as a matrix for each group: [groups, batch · counts, channels / groups]."""
    return xp.moveaxis(g.reshape(math.prod(g.shape[:-1]), groups, g.shape[-1] // groups), 1, 0)


def reduced(
    xp: Namespace,
    x: Array,
    start: float,
    function: Callable[..., Array],
    ksize: PerAxis,
    strides: PerAxis,
    around: Sequence[tuple[int, int]],
    dilations: PerAxis,
    base: PerAxis | None = None,
) -> Array:
    """A reduction over windows, with JAX; *base* are the dilations of *x* itself."""
    pairs = [(0, 0), *around, (0, 0)]
    between = None if base is None else (1, *base, 1)
    return xp.lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        function,
        (1, *ksize, 1),
        (1, *strides, 1),
        pairs,
        between,
        (1, *dilations, 1),
    )


def put_back(
    xp: Namespace, g: Array, chosen: Array, ksize: PerAxis, shape: tuple[int, ...], geometry: Geometry
) -> Array:
    """An array of a padded shape to which each window adds its *g* at the position that it chose, with JAX.

    Elements with the same index modulo the strides see the same positions of windows. The sum for each such
    phase is a sum of slices of one array, and the phases are interleaved at the end. XLA makes vectorised
    loops of that, which it does not of a sum of arrays with gaps: for windows of 3 × 3 and strides of 2 at
    16 × 56 × 56 × 64, 8 ms instead of 45.

    Args:
        g: what to add for each window, [batch, counts..., channels].
        chosen: the number of the position that each window chose; -1 for none.
        ksize: the size of the windows.
        shape: the padded shape.
        geometry: of the windows.
    """
    strides, _, dilations = geometry
    cells = [-(-n // s) for n, s in zip(shape[1:-1], strides, strict=True)]
    most = [(reach(k, gap) - 1) // s for k, gap, s in zip(ksize, dilations, strides, strict=True)]
    around = [(0, 0), *((m, n - o) for m, n, o in zip(most, cells, g.shape[1:-1], strict=True)), (0, 0)]
    wide, which = xp.lax.optimization_barrier((xp.pad(g, around), xp.pad(chosen, around, constant_values=-1)))
    classes: dict[tuple[int, ...], Any] = {}
    for number, position in enumerate(np.ndindex(*ksize)):
        offsets = [p * gap for p, gap in zip(position, dilations, strict=True)]
        phase = tuple(o % s for o, s in zip(offsets, strides, strict=True))
        starts = [m - o // s for m, o, s in zip(most, offsets, strides, strict=True)]
        place = (slice(None), *(slice(b, b + n) for b, n in zip(starts, cells, strict=True)))
        part = xp.where(which[place] == number, wide[place], xp.zeros((), g.dtype))
        classes[phase] = classes[phase] + part if phase in classes else part
    nothing = xp.zeros((shape[0], *cells, shape[-1]), g.dtype)
    by_phase = {phase: classes.get(phase, nothing) for phase in np.ndindex(*strides)}
    for axis in reversed(range(len(strides))):
        by_phase = {
            before: _alternating(xp, [by_phase[(*before, i)] for i in range(strides[axis])], 1 + axis)
            for before in np.ndindex(*strides[:axis])
        }
    return by_phase[()][tuple(slice(0, n) for n in shape)]


def _alternating(xp: Namespace, arrays: Sequence[Any], axis: int) -> Array:
    """Arrays of one shape, interleaved along an axis."""
    shape = arrays[0].shape
    turns = xp.stack(arrays, axis + 1)
    return turns.reshape(*shape[:axis], shape[axis] * len(arrays), *shape[axis + 1 :])


def spread(xp: Namespace, g: Array, ksize: PerAxis, shape: tuple[int, ...], geometry: Geometry) -> Array:
    """An array of a padded shape to which each window adds its *g* at all of its positions, with JAX.

    Axis by axis, which takes 2 ms instead of 14 for windows of 3 × 3, strides of 2, 16 × 56 × 56 × 64.
    """
    strides, _, dilations = geometry
    for axis, (k, s, gap) in enumerate(zip(ksize, strides, dilations, strict=True), 1):
        taken, total = reach(g.shape[axis], s), 0
        for start in range(0, k * gap, gap):
            gaps = [(0, 0, 0)] * g.ndim
            gaps[axis] = (start, shape[axis] - start - taken, s - 1)
            total = total + xp.lax.pad(g, xp.zeros((), g.dtype), gaps)
        g = xp.lax.optimization_barrier(total)
    return g
