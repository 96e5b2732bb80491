"""Convolution over one or more spatial axes, in TensorFlow's layout: [batch, spatial..., channels].

Convolution, its gradient towards the input and its gradient towards the filters are the three derivatives of one
trilinear form, so that each one's gradients are the two others.
"""

from __future__ import annotations

import math
from typing import Any

from stopgrad.batch_rules import CONV, CONV_BACK_FILTER, CONV_BACK_INPUT
from stopgrad.build import apply, raise_for
from stopgrad.errors import ShapeError
from stopgrad.op import Op, Sizes
from stopgrad.operands import Tensor, show_shape, type_of
from stopgrad.ops.inference import check_dtype, check_same_dtype, is_floating
from stopgrad.ops.windows import (
    Padding,
    at,
    back_pads,
    normal_padding,
    output_shape,
    padded,
    padded_shape,
    pads,
    per_axis,
    reach,
    trimmed,
    view,
)
from stopgrad.public import builds, guarded
from stopgrad.samples import floats, sample
from stopgrad.types import Shape, ShapeLike, TensorType, same_size, shape_of, tensor_type

__all__ = [
    "conv",
    "conv1d",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
]


def _convolved(x: Shape, filters: Shape, strides: Any, padding: Any, dilations: Any, groups: int) -> Shape:
    """The shape of a convolution."""
    if len(x) != len(filters) or len(x) < 3:
        raise ShapeError(
            f"(C2) the input {show_shape(x)} and the filters {show_shape(filters)} must have as many axes, at least three"
        )
    if not same_size(x[-1], filters[-2] * groups):
        raise ShapeError(
            f"(C3) the input has {x[-1]} channels; filters {show_shape(filters)} in {groups} groups take {filters[-2] * groups}"
        )
    if isinstance(filters[-1], int) and filters[-1] % groups:
        raise ShapeError(f"(C3) {filters[-1]} output channels do not fall into {groups} groups")
    return (x[0], *output_shape(x[1:-1], filters[:-2], (strides, padding, dilations)), filters[-1])


def _check_floating(*types: TensorType) -> None:
    check_same_dtype(*types)
    check_dtype(types[0], is_floating, "floating-point numbers")


def _check_cotangent(g: TensorType, expected: Shape) -> None:
    if g.ndim != len(expected) or not all(map(same_size, g.shape, expected)):
        raise ShapeError(f"(C6) the cotangent must have the shape {show_shape(expected)}, not {g!r}")


# ------------------------------------------------------------------------ as products of matrices (NumPy)


def _columns(xp: Any, x: Any, ksize: Any, counts: Any, geometry: Any, groups: int) -> Any:
    """All windows as rows, by group: [groups, batch · counts, ksize · channels / groups]."""
    windows = view(xp, padded(xp, x, ksize, geometry), ksize, counts, geometry)
    split = windows.reshape(*windows.shape[:-1], groups, x.shape[-1] // groups)
    return xp.moveaxis(split, -2, 0).reshape(
        groups, x.shape[0] * math.prod(counts), math.prod(ksize) * (x.shape[-1] // groups)
    )


def _matrix(xp: Any, filters: Any, groups: int) -> Any:
    """Filters as a matrix for each group: [groups, ksize · channels in, channels out]."""
    rows, each = math.prod(filters.shape[:-1]), filters.shape[-1] // groups
    return xp.moveaxis(filters.reshape(rows, groups, each), 1, 0)


def _by_group(xp: Any, g: Any, groups: int) -> Any:
    """[groups, batch · counts, channels / groups]."""
    return xp.moveaxis(g.reshape(math.prod(g.shape[:-1]), groups, g.shape[-1] // groups), 1, 0)


def _letters(rank: int) -> str:
    return "XYZUVW"[:rank]


# ----------------------------------------------------------------------------------------- operations


class Conv(Op):
    """Convolution: for each position and output channel the product of the filters with the window there, summed.

    As everywhere in machine learning, the filters are not flipped.

    Args:
        x: [batch, spatial..., channels], and
        filters: [window..., channels / groups, output channels]: floating-point, of one dtype (C1) and with as many
            axes (C2); groups divides both numbers of channels (C3), and is found from them unless given.
        strides, dilations: a positive number, or one for each spatial axis (C4).
        padding: "VALID" for none; "SAME" for as much as gives ⌈size / stride⌉ windows, what is odd of it at the end;
            or for each spatial axis the numbers of zeros before and after (C4). The window fits into what is padded (C5).

    Returns:
        [batch, spatial..., output channels].

    Examples:
        >>> sg.conv1d(np.arange(5.0).reshape(1, 5, 1), np.ones((2, 1, 1)))[0, :, 0]
        array([1., 3., 5., 7.])
    """

    @staticmethod
    def infer(
        x: TensorType, filters: TensorType, *, strides: Sizes, padding: Sizes, dilations: Sizes, groups: int
    ) -> TensorType:
        _check_floating(x, filters)
        return tensor_type(x.dtype, _convolved(x.shape, filters.shape, strides, padding, dilations, groups))

    gradient = {
        "x": lambda g, op: apply(ConvBackpropInput, (op.filters, g), (op.x.shape, *_attributes(op))),
        "filters": lambda g, op: apply(ConvBackpropFilter, (op.x, g), (op.filters.shape, *_attributes(op))),
    }

    batch = CONV

    @staticmethod
    def lower(
        xp: Any, x: Any, filters: Any, strides: Any, padding: Padding, dilations: Any, groups: int
    ) -> Any:
        shape = _convolved(x.shape, filters.shape, strides, padding, dilations, groups)
        columns = _columns(xp, x, filters.shape[:-2], shape[1:-1], (strides, padding, dilations), groups)
        return xp.moveaxis(columns @ _matrix(xp, filters, groups), 0, 1).reshape(shape)

    @staticmethod
    def xla(
        xp: Any, x: Any, filters: Any, strides: Any, padding: Padding, dilations: Any, groups: int
    ) -> Any:
        shape = _convolved(x.shape, filters.shape, strides, padding, dilations, groups)
        if 0 in (*shape, *filters.shape):
            return xp.zeros(shape, x.dtype)
        s = _letters(x.ndim - 2)
        around = pads(x.shape[1:-1], filters.shape[:-2], (strides, padding, dilations))
        return xp.lax.conv_general_dilated(
            x,
            filters,
            strides,
            around,
            rhs_dilation=dilations,
            dimension_numbers=(f"N{s}C", f"{s}IO", f"N{s}C"),
            feature_group_count=groups,
        )

    samples = [
        sample(floats(2, 5, 3), floats(2, 3, 4), strides=(1,), padding="VALID", dilations=(1,), groups=1),
        sample(
            floats("n", 6, 5, 2),
            floats(3, 2, 2, 3),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
            groups=1,
        ),
        sample(
            floats(1, 7, 6, 4),
            floats(2, 3, 2, 6),
            strides=(3, 2),
            padding=((0, 2), (1, 1)),
            dilations=(2, 1),
            groups=2,
        ),
        sample(floats(1, "n", 2), floats(2, 1, 4), strides=(2,), padding="SAME", dilations=(1,), groups=2),
        sample(floats(0, 4, 2), floats(2, 2, 1), strides=(1,), padding="VALID", dilations=(1,), groups=1),
    ]


class ConvBackpropInput(Op):
    """The gradient of :func:`conv` towards its input; a transposed convolution.

    Args:
        filters: as in the convolution; g: the cotangent, of its result's shape (C6).
        shape: of the input; and the convolution's other attributes.

    Returns:
        a tensor of that shape.

    Examples:
        >>> sg.conv2d_backprop_input((1, 1, 3, 1), np.ones((1, 2, 1, 1)), np.ones((1, 1, 2, 1)))[0, 0, :, 0]
        array([1., 2., 1.])
    """

    @staticmethod
    def infer(
        filters: TensorType,
        g: TensorType,
        *,
        shape: Shape,
        strides: Sizes,
        padding: Sizes,
        dilations: Sizes,
        groups: int,
    ) -> TensorType:
        _check_floating(filters, g)
        _check_cotangent(g, _convolved(shape, filters.shape, strides, padding, dilations, groups))
        return tensor_type(g.dtype, shape)

    gradient = {
        "filters": lambda g, op: apply(ConvBackpropFilter, (g, op.g), (op.filters.shape, *_attributes(op))),
        "g": lambda g, op: apply(Conv, (g, op.filters), _attributes(op)),
    }

    batch = CONV_BACK_INPUT

    @staticmethod
    def lower(
        xp: Any, filters: Any, g: Any, shape: Any, strides: Any, padding: Padding, dilations: Any, groups: int
    ) -> Any:
        geometry, ksize, counts = (strides, padding, dilations), filters.shape[:-2], g.shape[1:-1]
        columns = _by_group(xp, g, groups) @ xp.swapaxes(_matrix(xp, filters, groups), 1, 2)
        columns = xp.moveaxis(columns.reshape(groups, shape[0], *counts, *ksize, shape[-1] // groups), 0, -2)
        columns = columns.reshape(shape[0], *counts, *ksize, shape[-1])
        total = xp.zeros(padded_shape(shape, ksize, geometry), g.dtype)
        for position in xp.ndindex(*ksize):
            total[at(position, counts, geometry)] += columns[(slice(None),) * (1 + len(counts)) + position]
        return trimmed(total, shape[1:-1], ksize, geometry)

    @staticmethod
    def xla(
        xp: Any, filters: Any, g: Any, shape: Any, strides: Any, padding: Padding, dilations: Any, groups: int
    ) -> Any:
        if 0 in (*shape, *g.shape, *filters.shape):
            return xp.zeros(shape, g.dtype)
        ksize, rank = filters.shape[:-2], len(strides)
        split = filters.reshape(*ksize, filters.shape[-2], groups, filters.shape[-1] // groups)
        turned = (
            xp.flip(xp.moveaxis(split, -1, rank), range(rank))
            .swapaxes(-1, -2)
            .reshape(*ksize, filters.shape[-1] // groups, shape[-1])
        )
        around = back_pads(shape[1:-1], ksize, (strides, padding, dilations), g.shape[1:-1])
        s = _letters(rank)
        return xp.lax.conv_general_dilated(
            g,
            turned,
            (1,) * rank,
            around,
            strides,
            dilations,
            dimension_numbers=(f"N{s}C", f"{s}IO", f"N{s}C"),
            feature_group_count=groups,
        )

    samples = [
        sample(
            floats(2, 3, 4),
            floats(2, 4, 4),
            shape=(2, 5, 3),
            strides=(1,),
            padding="VALID",
            dilations=(1,),
            groups=1,
        ),
        sample(
            floats(3, 2, 2, 3),
            floats(2, 3, 5, 3),
            shape=(2, 6, 5, 2),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
            groups=1,
        ),
        sample(
            floats(2, 3, 2, 6),
            floats(1, 3, 3, 6),
            shape=(1, 7, 6, 4),
            strides=(3, 2),
            padding=((0, 2), (1, 1)),
            dilations=(2, 1),
            groups=2,
        ),
    ]


class ConvBackpropFilter(Op):
    """The gradient of :func:`conv` towards its filters.

    Args:
        x: as in the convolution; g: the cotangent, of its result's shape (C6).
        shape: of the filters; and the convolution's other attributes.

    Returns:
        a tensor of that shape.

    Examples:
        >>> sg.conv2d_backprop_filter(np.arange(3.0).reshape(1, 1, 3, 1), (1, 2, 1, 1), np.ones((1, 1, 2, 1)))[0, :, 0, 0]
        array([1., 3.])
    """

    @staticmethod
    def infer(
        x: TensorType,
        g: TensorType,
        *,
        shape: Shape,
        strides: Sizes,
        padding: Sizes,
        dilations: Sizes,
        groups: int,
    ) -> TensorType:
        _check_floating(x, g)
        _check_cotangent(g, _convolved(x.shape, shape, strides, padding, dilations, groups))
        return tensor_type(g.dtype, shape)

    gradient = {
        "x": lambda g, op: apply(ConvBackpropInput, (g, op.g), (op.x.shape, *_attributes(op))),
        "g": lambda g, op: apply(Conv, (op.x, g), _attributes(op)),
    }

    batch = CONV_BACK_FILTER

    @staticmethod
    def lower(
        xp: Any, x: Any, g: Any, shape: Any, strides: Any, padding: Padding, dilations: Any, groups: int
    ) -> Any:
        columns = _columns(xp, x, shape[:-2], g.shape[1:-1], (strides, padding, dilations), groups)
        return xp.moveaxis(xp.swapaxes(columns, 1, 2) @ _by_group(xp, g, groups), 0, 1).reshape(shape)

    @staticmethod
    def xla(
        xp: Any, x: Any, g: Any, shape: Any, strides: Any, padding: Padding, dilations: Any, groups: int
    ) -> Any:
        if 0 in (*shape, *g.shape, *x.shape):
            return xp.zeros(shape, g.dtype)
        s, spatial = _letters(len(strides)), x.shape[1:-1]
        around = [
            (low, reach(o, stride) + reach(k, d) - 1 - n - low)
            for n, k, o, stride, d, (low, _) in zip(
                spatial,
                shape[:-2],
                g.shape[1:-1],
                strides,
                dilations,
                pads(spatial, shape[:-2], (strides, padding, dilations)),
                strict=True,
            )
        ]
        # The batch is what is summed over: it takes the channels' part, and the channels the batch's.
        return xp.lax.conv_general_dilated(
            x,
            g,
            dilations,
            around,
            rhs_dilation=strides,
            dimension_numbers=(f"C{s}N", f"I{s}O", f"{s}NC"),
            batch_group_count=groups,
        )

    samples = [
        sample(
            floats(2, 5, 3),
            floats(2, 4, 4),
            shape=(2, 3, 4),
            strides=(1,),
            padding="VALID",
            dilations=(1,),
            groups=1,
        ),
        sample(
            floats("n", 6, 5, 2),
            floats("n", 3, 5, 3),
            shape=(3, 2, 2, 3),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
            groups=1,
        ),
        sample(
            floats(1, 7, 6, 4),
            floats(1, 3, 3, 6),
            shape=(2, 3, 2, 6),
            strides=(3, 2),
            padding=((0, 2), (1, 1)),
            dilations=(2, 1),
            groups=2,
        ),
    ]


def _attributes(op: Any) -> tuple[Any, ...]:
    return op.strides, op.padding, op.dilations, op.groups


# ------------------------------------------------------------------------------------ public functions


def _read(
    definition: type[Op], operands: Any, rank: int, strides: Any, padding: Any, dilations: Any
) -> tuple[Any, ...]:
    try:
        return (
            per_axis(strides, rank, "strides"),
            normal_padding(padding, rank),
            per_axis(dilations, rank, "dilations"),
        )
    except ShapeError as error:
        raise_for(definition, error, operands)


def _groups(groups: int | None, channels: Any, filters: Shape) -> int:
    """How many groups there are, as the numbers of channels say unless the user does."""
    if groups is not None:
        return int(groups)
    each = filters[-2] if len(filters) >= 2 else 1
    return (
        channels // each
        if isinstance(channels, int) and isinstance(each, int) and each and channels % each == 0 and channels
        else 1
    )


@builds(Conv)
def conv(
    x: Any,
    filters: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilations: Any = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    kind = type_of(x)
    read = _read(Conv, (x, filters), max(kind.ndim - 2, 0), strides, padding, dilations)
    return apply(
        Conv,
        (x, filters),
        (*read, _groups(groups, kind.shape[-1] if kind.ndim else 1, type_of(filters).shape)),
        name,
    )


@guarded("conv1d")
def conv1d(
    x: Any,
    filters: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilations: Any = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    """:func:`conv` of [batch, width, channels] with filters [width, channels / groups, output channels].

    Examples:
        >>> sg.conv1d(np.ones((1, 5, 2)), np.ones((3, 2, 4)), padding="SAME").shape
        (1, 5, 4)
    """
    return _of_rank(1, x, filters, strides, padding, dilations, groups, name)


@guarded("conv2d")
def conv2d(
    x: Any,
    filters: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilations: Any = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    """:func:`conv` of [batch, height, width, channels] with filters [height, width, channels / groups, output channels].

    Examples:
        >>> sg.conv2d(np.ones((1, 5, 5, 2)), np.ones((3, 3, 2, 4)), strides=2, padding="SAME").shape
        (1, 3, 3, 4)
    """
    return _of_rank(2, x, filters, strides, padding, dilations, groups, name)


def _of_rank(rank: int, x: Any, filters: Any, *rest: Any) -> Tensor:
    if type_of(x).ndim != rank + 2:
        raise_for(
            Conv,
            ShapeError(f"(C2) conv{rank}d takes an input of {rank + 2} axes, not {type_of(x)!r}"),
            (x, filters),
        )
    return conv(x, filters, *rest)


@builds(ConvBackpropInput)
def conv2d_backprop_input(
    shape: ShapeLike,
    filters: Any,
    g: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilations: Any = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    wanted = shape_of(shape)
    read = _read(ConvBackpropInput, (filters, g), max(len(wanted) - 2, 0), strides, padding, dilations)
    return apply(
        ConvBackpropInput,
        (filters, g),
        (wanted, *read, _groups(groups, wanted[-1] if wanted else 1, type_of(filters).shape)),
        name,
    )


@builds(ConvBackpropFilter)
def conv2d_backprop_filter(
    x: Any,
    shape: ShapeLike,
    g: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilations: Any = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    wanted, kind = shape_of(shape), type_of(x)
    read = _read(ConvBackpropFilter, (x, g), max(len(wanted) - 2, 0), strides, padding, dilations)
    return apply(
        ConvBackpropFilter,
        (x, g),
        (wanted, *read, _groups(groups, kind.shape[-1] if kind.ndim else 1, wanted)),
        name,
    )


@guarded("conv2d_transpose")
def conv2d_transpose(
    x: Any,
    filters: Any,
    output_shape: ShapeLike,
    strides: Any = 1,
    padding: Any = "SAME",
    name: str | None = None,
) -> Tensor:
    """The transpose of :func:`conv2d`: what maps its result's space to its input's.

    Args:
        x: [batch, height, width, channels]; filters: [height, width, output channels, channels].
        output_shape: of the result; strides and padding: of the convolution that this transposes.

    Returns:
        a tensor of that shape.

    Examples:
        >>> sg.conv2d_transpose(np.ones((1, 2, 2, 1)), np.ones((2, 2, 1, 1)), (1, 4, 4, 1), strides=2).shape
        (1, 4, 4, 1)
    """
    return conv2d_backprop_input(output_shape, filters, x, strides, padding, name=name)
