"""Convolution over one or more spatial axes, in TensorFlow's layout: [batch, spatial..., channels].

Convolution, its gradient with respect to the input and its gradient with respect to the filters are the three
derivatives of one trilinear form, so the gradients of each are the other two.
"""

from __future__ import annotations

from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    DTypeLike,
    Namespace,
    Op,
    Operation,
    Promotion,
    Shape,
    ShapeLike,
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
    by_group,
    columns,
    convolved,
    letters,
    matrices,
    normal_padding,
    number_of_groups,
    padded_shape,
    pads,
    per_axis,
    reach,
    trimmed,
)

__all__ = [
    "conv",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
]


def _check_floating(*types: TensorType) -> None:
    d.check_same_dtype(*types)
    d.check_dtype(types[0], d.is_floating, "floating-point numbers")


def _check_cotangent(g: TensorType, expected: Shape) -> None:
    d.check_shape(g, expected, "the cotangent", "C6", of="the result")


def _attributes(op: Operation) -> tuple[PerAxis, Padding, PerAxis, int]:
    return op.strides, op.padding, op.dilations, op.groups


@d.reads_arguments
def read_geometry(
    definition: type[Op],
    operands: tuple[ArrayLike, ...],
    rank: int,
    strides: PerAxisLike,
    padding: PaddingLike,
    dilations: PerAxisLike,
) -> Geometry:
    """The geometry that a function's arguments mean."""
    with d.about(definition, *operands):
        return (
            per_axis(strides, rank, "strides"),
            normal_padding(padding, rank),
            per_axis(dilations, rank, "dilations"),
        )


def _steps(places: d.Output, filters: d.Output) -> Any:
    """Floating-point operations: each element of *places* takes a product with a whole filter."""
    return 2 * places.size * filters.size // max(1, filters.shape[-1])


class Conv(Op):
    """Convolution: for each position and output channel, the sum of the window there times the filter.

    As is usual in machine learning, the filters are not flipped.

    Args:
        x: [batch, spatial..., channels].
        filters: [window..., channels / groups, output channels].
        strides: the step from window to window: a number, or one for each spatial axis.
        padding: "VALID" for none; "SAME" for as much as gives ⌈size / stride⌉ windows, an odd zero at the
            end; or for each spatial axis the numbers of zeros before and after.
        dilations: the step inside a window: a number, or one for each spatial axis.
        groups: the number of groups of channels, each of which is convolved by itself; by default it follows
            from the numbers of channels.

    Returns:
        The result, [batch, spatial..., output channels].

    Constraints:
        (C1) x and the filters hold floating-point numbers of one dtype.
        (C2) x and the filters have as many axes, at least three.
        (C3) strides and dilations are positive, and padding is one of the words or pairs of sizes; all have
            as many numbers as there are spatial axes.
        (C4) The window fits into each padded axis, unless the axis has no elements.
        (C5) x has as many channels as the filters take in all groups, and groups divides the output channels.

    Examples:
        >>> sg.conv(np.arange(5.0).reshape(1, 5, 1), np.ones((2, 1, 1)))[0, :, 0]
        array([1., 3., 5., 7.])
    """

    @staticmethod
    def infer(
        x: TensorType, filters: TensorType, *, strides: Sizes, padding: Sizes, dilations: Sizes, groups: int
    ) -> TensorType:
        _check_floating(x, filters)
        return d.tensor_type(x.dtype, convolved(x.shape, filters.shape, strides, padding, dilations, groups))

    promotes = Promotion(d.is_floating)
    gradient: d.Gradient = {
        "x": lambda g, op: d.apply(ConvBackpropInput, (op.filters, g), (op.x.shape, *_attributes(op))),
        "filters": lambda g, op: d.apply(ConvBackpropFilter, (op.x, g), (op.filters.shape, *_attributes(op))),
    }

    batch = d.CONV
    rounds_once = True
    flops = lambda op: _steps(op.result, op.filters)

    @staticmethod
    def lower(
        xp: Namespace,
        x: Array,
        filters: Array,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
        groups: int,
    ) -> Array:
        shape = convolved(x.shape, filters.shape, strides, padding, dilations, groups)
        rows = columns(xp, x, filters.shape[:-2], shape[1:-1], (strides, padding, dilations), groups)
        return xp.moveaxis(rows @ matrices(xp, filters, groups), 0, 1).reshape(shape)

    @staticmethod
    def xla(
        xp: Namespace,
        x: Array,
        filters: Array,
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
        groups: int,
        accumulate: DTypeLike | None,
    ) -> Array:
        shape = convolved(x.shape, filters.shape, strides, padding, dilations, groups)
        if 0 in (*shape, *filters.shape):
            return xp.zeros(shape, x.dtype)
        s = letters(x.ndim - 2)
        around = pads(x.shape[1:-1], filters.shape[:-2], (strides, padding, dilations))
        return xp.lax.conv_general_dilated(
            x,
            filters,
            strides,
            around,
            rhs_dilation=dilations,
            dimension_numbers=(f"N{s}C", f"{s}IO", f"N{s}C"),
            feature_group_count=groups,
            preferred_element_type=accumulate,
        )

    samples: d.Samples = [
        d.sample(
            d.floats(2, 5, 3), d.floats(2, 3, 4), strides=(1,), padding="VALID", dilations=(1,), groups=1
        ),
        d.sample(
            d.floats("n", 6, 5, 2),
            d.floats(3, 2, 2, 3),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
            groups=1,
        ),
        d.sample(
            d.floats(1, 7, 6, 4),
            d.floats(2, 3, 2, 6),
            strides=(3, 2),
            padding=((0, 2), (1, 1)),
            dilations=(2, 1),
            groups=2,
        ),
        d.sample(
            d.floats(1, "n", 2), d.floats(2, 1, 4), strides=(2,), padding="SAME", dilations=(1,), groups=2
        ),
        d.sample(
            d.floats(0, 4, 2), d.floats(2, 2, 1), strides=(1,), padding="VALID", dilations=(1,), groups=1
        ),
    ]


@d.builds(Conv)
def conv(
    x: ArrayLike,
    filters: ArrayLike,
    strides: PerAxisLike = 1,
    padding: PaddingLike = "VALID",
    dilations: PerAxisLike = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    kind = d.type_of(x)
    read = read_geometry(Conv, (x, filters), max(kind.ndim - 2, 0), strides, padding, dilations)
    return d.apply(
        Conv,
        (x, filters),
        (*read, number_of_groups(groups, kind.shape[-1] if kind.ndim else 1, d.type_of(filters).shape)),
        name,
    )


class ConvBackpropInput(Op):
    """The gradient of :func:`conv` with respect to its input; a transposed convolution.

    Args:
        filters: as in the convolution.
        g: the cotangent of its result.
        shape: of the input.
        strides: as in the convolution.
        padding: as in the convolution.
        dilations: as in the convolution.
        groups: as in the convolution.

    Returns:
        A tensor of that shape.

    Constraints:
        (C1) g and the filters hold floating-point numbers of one dtype.
        (C2) The shape and the filters have as many axes, at least three.
        (C3) strides, padding and dilations are as in the convolution.
        (C4) The window fits into each padded axis, unless the axis has no elements.
        (C5) The shape has as many channels as the filters take in all groups, and groups divides the output
            channels.
        (C6) g has the shape of the convolution's result.

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
        _check_cotangent(g, convolved(shape, filters.shape, strides, padding, dilations, groups))
        return d.tensor_type(g.dtype, shape)

    gradient: d.Gradient = {
        "filters": lambda g, op: d.apply(ConvBackpropFilter, (g, op.g), (op.filters.shape, *_attributes(op))),
        "g": lambda g, op: d.apply(Conv, (g, op.filters), _attributes(op)),
    }

    batch = d.CONV_BACK_INPUT
    rounds_once = True
    flops = lambda op: _steps(op.g, op.filters)

    @staticmethod
    def lower(
        xp: Namespace,
        filters: Array,
        g: Array,
        shape: tuple[int, ...],
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
        groups: int,
    ) -> Array:
        geometry, ksize, counts = (strides, padding, dilations), filters.shape[:-2], g.shape[1:-1]
        rows = by_group(xp, g, groups) @ xp.swapaxes(matrices(xp, filters, groups), 1, 2)
        rows = xp.moveaxis(rows.reshape(groups, shape[0], *counts, *ksize, shape[-1] // groups), 0, -2)
        rows = rows.reshape(shape[0], *counts, *ksize, shape[-1])
        total = xp.zeros(padded_shape(shape, ksize, geometry), g.dtype)
        for position in xp.ndindex(*ksize):
            total[at(position, counts, geometry)] += rows[(slice(None),) * (1 + len(counts)) + position]
        return trimmed(total, shape[1:-1], ksize, geometry)

    @staticmethod
    def xla(
        xp: Namespace,
        filters: Array,
        g: Array,
        shape: tuple[int, ...],
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
        groups: int,
        accumulate: DTypeLike | None,
    ) -> Array:
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
        s = letters(rank)
        return xp.lax.conv_general_dilated(
            g,
            turned,
            (1,) * rank,
            around,
            strides,
            dilations,
            dimension_numbers=(f"N{s}C", f"{s}IO", f"N{s}C"),
            feature_group_count=groups,
            preferred_element_type=accumulate,
        )

    samples: d.Samples = [
        d.sample(
            d.floats(2, 3, 4),
            d.floats(2, 4, 4),
            shape=(2, 5, 3),
            strides=(1,),
            padding="VALID",
            dilations=(1,),
            groups=1,
        ),
        d.sample(
            d.floats(3, 2, 2, 3),
            d.floats(2, 3, 5, 3),
            shape=(2, 6, 5, 2),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
            groups=1,
        ),
        d.sample(
            d.floats(2, 3, 2, 6),
            d.floats(1, 3, 3, 6),
            shape=(1, 7, 6, 4),
            strides=(3, 2),
            padding=((0, 2), (1, 1)),
            dilations=(2, 1),
            groups=2,
        ),
    ]


@d.builds(ConvBackpropInput)
def conv2d_backprop_input(
    shape: ShapeLike,
    filters: ArrayLike,
    g: ArrayLike,
    strides: PerAxisLike = 1,
    padding: PaddingLike = "VALID",
    dilations: PerAxisLike = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    sizes = d.shape_of(shape)
    read = read_geometry(ConvBackpropInput, (filters, g), max(len(sizes) - 2, 0), strides, padding, dilations)
    return d.apply(
        ConvBackpropInput,
        (filters, g),
        (sizes, *read, number_of_groups(groups, sizes[-1] if sizes else 1, d.type_of(filters).shape)),
        name,
    )


class ConvBackpropFilter(Op):
    """The gradient of :func:`conv` with respect to its filters.

    Args:
        x: as in the convolution.
        g: the cotangent of its result.
        shape: of the filters.
        strides: as in the convolution.
        padding: as in the convolution.
        dilations: as in the convolution.
        groups: as in the convolution.

    Returns:
        A tensor of that shape.

    Constraints:
        (C1) x and g hold floating-point numbers of one dtype.
        (C2) x and the shape have as many axes, at least three.
        (C3) strides, padding and dilations are as in the convolution.
        (C4) The window fits into each padded axis, unless the axis has no elements.
        (C5) x has as many channels as filters of this shape take in all groups, and groups divides the output
            channels.
        (C6) g has the shape of the convolution's result.

    Examples:
        >>> x, g = np.arange(3.0).reshape(1, 1, 3, 1), np.ones((1, 1, 2, 1))
        >>> sg.conv2d_backprop_filter(x, (1, 2, 1, 1), g)[0, :, 0, 0]
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
        _check_cotangent(g, convolved(x.shape, shape, strides, padding, dilations, groups))
        return d.tensor_type(g.dtype, shape)

    gradient: d.Gradient = {
        "x": lambda g, op: d.apply(ConvBackpropInput, (g, op.g), (op.x.shape, *_attributes(op))),
        "g": lambda g, op: d.apply(Conv, (op.x, g), _attributes(op)),
    }

    batch = d.CONV_BACK_FILTER
    rounds_once = True
    flops = lambda op: _steps(op.g, op.result)

    @staticmethod
    def lower(
        xp: Namespace,
        x: Array,
        g: Array,
        shape: tuple[int, ...],
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
        groups: int,
    ) -> Array:
        rows = columns(xp, x, shape[:-2], g.shape[1:-1], (strides, padding, dilations), groups)
        return xp.moveaxis(xp.swapaxes(rows, 1, 2) @ by_group(xp, g, groups), 0, 1).reshape(shape)

    @staticmethod
    def xla(
        xp: Namespace,
        x: Array,
        g: Array,
        shape: tuple[int, ...],
        strides: PerAxis,
        padding: Padding,
        dilations: PerAxis,
        groups: int,
        accumulate: DTypeLike | None,
    ) -> Array:
        if 0 in (*shape, *g.shape, *x.shape):
            return xp.zeros(shape, g.dtype)
        s, spatial = letters(len(strides)), x.shape[1:-1]
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
        # The sum is over the batch, so the batch takes the role of the channels, and the channels its role.
        return xp.lax.conv_general_dilated(
            x,
            g,
            dilations,
            around,
            rhs_dilation=strides,
            dimension_numbers=(f"C{s}N", f"I{s}O", f"{s}NC"),
            batch_group_count=groups,
            preferred_element_type=accumulate,
        )

    samples: d.Samples = [
        d.sample(
            d.floats(2, 5, 3),
            d.floats(2, 4, 4),
            shape=(2, 3, 4),
            strides=(1,),
            padding="VALID",
            dilations=(1,),
            groups=1,
        ),
        d.sample(
            d.floats("n", 6, 5, 2),
            d.floats("n", 3, 5, 3),
            shape=(3, 2, 2, 3),
            strides=(2, 1),
            padding="SAME",
            dilations=(1, 2),
            groups=1,
        ),
        d.sample(
            d.floats(1, 7, 6, 4),
            d.floats(1, 3, 3, 6),
            shape=(2, 3, 2, 6),
            strides=(3, 2),
            padding=((0, 2), (1, 1)),
            dilations=(2, 1),
            groups=2,
        ),
    ]


@d.builds(ConvBackpropFilter)
def conv2d_backprop_filter(
    x: ArrayLike,
    shape: ShapeLike,
    g: ArrayLike,
    strides: PerAxisLike = 1,
    padding: PaddingLike = "VALID",
    dilations: PerAxisLike = 1,
    groups: int | None = None,
    name: str | None = None,
) -> Tensor:
    sizes, kind = d.shape_of(shape), d.type_of(x)
    read = read_geometry(ConvBackpropFilter, (x, g), max(len(sizes) - 2, 0), strides, padding, dilations)
    return d.apply(
        ConvBackpropFilter,
        (x, g),
        (sizes, *read, number_of_groups(groups, kind.shape[-1] if kind.ndim else 1, sizes)),
        name,
    )
