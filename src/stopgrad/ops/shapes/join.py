"""Operations that join or split tensors: concat, stack, split, pad, tile, reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    Array,
    ArrayLike,
    Axes,
    Axis,
    Namespace,
    NumpyArray,
    Op,
    Operation,
    Output,
    Promotion,
    ShapeError,
    Size,
    Sizes,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.compare import equal
from stopgrad.ops.elementwise.convert import where
from stopgrad.ops.indexing.slices import StridedSlice, part_of
from stopgrad.ops.shapes.reshape import reduce_sum, reshape, squeeze, sum_axes
from stopgrad.ops.structural.sources import zeros_like

__all__ = [
    "concat",
    "pad",
    "reverse",
    "split",
    "stack",
    "tile",
    "unstack",
]


class ConcatV2(Op):
    """Tensors joined one after the other along an existing axis.

    Args:
        xs: the tensors.
        axis: the axis along which to join.

    Returns:
        The tensors joined.

    Constraints:
        (C1) There is at least one tensor, and all have one dtype.
        (C2) The axis exists.
        (C3) The tensors have the same sizes except along the axis.
    """

    @staticmethod
    def infer(*xs: TensorType, axis: Axis) -> TensorType:
        dtype, first = d.check_same_dtype(*xs), xs[0]
        d.normal_axis(axis, first.ndim)
        for x in xs[1:]:
            if not d.same_shape(x.shape, first.shape, besides=axis):
                raise ShapeError(f"(C3) {first!r} and {x!r} differ in more than axis {axis}")
        length = d.total([x.shape[axis] for x in xs])
        return d.tensor_type(dtype, (*first.shape[:axis], length, *first.shape[axis + 1 :]))

    promotes = Promotion(d.is_any)
    gradient: d.Gradient = {
        "xs": lambda g, op, i: part_of(
            g, op.axis, sum((x.shape[op.axis] for x in op.inputs[:i]), 0), op.inputs[i].shape[op.axis]
        )
    }
    batch = d.ALONG
    moves = ("xs",)
    lower: d.Lowering = lambda xp, *xs, axis: xp.concatenate(xs, axis)
    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.floats(1, 3), axis=0),
        d.sample(d.floats("n"), d.floats(2), d.floats("n"), axis=0),
        d.sample(d.floats(0, 3), d.floats(2, 3), axis=0),
    ]


@d.builds(ConcatV2, by_type=True)
def concat(values: Sequence[ArrayLike], axis: int, name: str | None = None) -> Tensor:
    """Tensors joined one after the other along an existing axis.

    Args:
        values: a list of tensors; they are converted to one dtype.
        axis: the axis along which to join; counted from the end if negative.

    Returns:
        The tensors joined.

    Constraints:
        (C1) There is at least one tensor.
        (C2) The axis exists.
        (C3) The tensors have the same sizes except along the axis.

    Examples:
        >>> sg.concat([np.array([1.0]), np.array([2.0, 3.0])], axis=0)
        array([1., 2., 3.])
    """
    values = d.as_list(values)
    if not values:
        raise ShapeError("ConcatV2: (C1) needs at least one tensor")
    ndim = d.type_of(values[0]).ndim
    axis = d.whole(axis)
    if -ndim <= axis < 0:
        axis += ndim
    return d.apply(ConcatV2, values, (axis,), name)


class Pack(Op):
    """Tensors joined along a new axis.

    Args:
        xs: the tensors.
        axis: the position of the new axis.

    Returns:
        The tensors stacked.

    Constraints:
        (C1) There is at least one tensor, and all have one dtype.
        (C2) The axis exists in the result.
        (C3) All tensors have one shape.
    """

    @staticmethod
    def infer(*xs: TensorType, axis: Axis) -> TensorType:
        dtype, first = d.check_same_dtype(*xs), xs[0]
        d.normal_axis(axis, first.ndim + 1)
        for x in xs[1:]:
            d.check_shape(x, first.shape, "each tensor", "C3", of="the first")
        return d.tensor_type(dtype, (*first.shape[:axis], len(xs), *first.shape[axis:]))

    promotes = Promotion(d.is_any)
    gradient: d.Gradient = {"xs": lambda g, op, i: squeeze(part_of(g, op.axis, i, 1), op.axis)}
    batch = d.ALONG
    moves = ("xs",)
    lower: d.Lowering = lambda xp, *xs, axis: xp.stack(xs, axis)
    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.floats(2, 3), axis=1),
        d.sample(d.floats("n"), d.floats("n"), axis=0),
        d.sample(d.floats(), d.floats(), axis=0),
    ]


@d.builds(Pack, by_type=True)
def stack(values: Sequence[ArrayLike], axis: int = 0, name: str | None = None) -> Tensor:
    """Tensors joined along a new axis.

    Args:
        values: a list of tensors; they are converted to one dtype.
        axis: the position of the new axis in the result; counted from its end if negative.

    Returns:
        The tensors stacked.

    Constraints:
        (C1) There is at least one tensor.
        (C2) The axis exists in the result.
        (C3) All tensors have one shape.

    Examples:
        >>> sg.stack([np.array([1.0, 2.0]), np.array([3.0, 4.0])], axis=1)
        array([[1., 3.],
               [2., 4.]])
    """
    values = d.as_list(values)
    if not values:
        raise ShapeError("Pack: (C1) needs at least one tensor")
    ndim = d.type_of(values[0]).ndim + 1
    axis = d.whole(axis)
    if -ndim <= axis < 0:
        axis += ndim
    return d.apply(Pack, values, (axis,), name)


@d.guarded("unstack")
def unstack(value: ArrayLike, num: int | None = None, axis: int = 0, name: str | None = None) -> list[Tensor]:
    """The parts of a tensor along an axis, without that axis.

    Args:
        value: any tensor.
        num: the number of parts; by default the size of the axis, which must then be known.
        axis: the axis along which to take parts.

    Returns:
        A list of tensors.

    Constraints:
        (C1) The axis exists in value.
        (C2) It has num elements.

    Examples:
        >>> sg.unstack(np.array([[1.0, 2.0], [3.0, 4.0]]))
        [array([1., 2.]), array([3., 4.])]
    """
    kind = d.type_of(value)
    axis = d.normal_axis(axis, kind.ndim, "C1")
    actual = kind.shape[axis]
    count = actual if num is None else d.whole(num)
    if not isinstance(count, int):
        raise ShapeError(
            f"(C2) how many parts there are along axis {axis} of {kind!r} is not known; give num="
        )
    if not d.same_size(count, actual):
        raise ShapeError(f"(C2) axis {axis} of {kind!r} does not have {count} elements")
    return [squeeze(part_of(value, axis, i, 1), axis, name) for i in range(count)]


class Split(Op):
    """A tensor cut into parts along an axis.

    Args:
        x: any tensor.
        sizes: the sizes of the parts along the axis.
        axis: the axis along which to cut.

    Returns:
        A tensor for each size.

    Constraints:
        (C1) The axis exists in x.
        (C2) The sizes add up to x's size.
    """

    @staticmethod
    def infer(x: TensorType, *, sizes: Sizes, axis: Axis) -> tuple[TensorType, ...]:
        d.normal_axis(axis, x.ndim, "C1")
        total = sum(sizes)
        if not d.same_size(total, x.shape[axis]):
            raise ShapeError(
                f"(C2) the sizes {d.show_shape(sizes)} add up to {total}, not to {x.shape[axis]}, "
                f"the size of axis {axis}"
            )
        return tuple(d.tensor_type(x.dtype, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in sizes)

    gradient: d.Gradient = {"x": lambda g, op: concat(g, op.axis) if isinstance(g, tuple) else g}

    batch = d.ALONG
    moves = ("x",)

    @staticmethod
    def lower(xp: Namespace, x: Array, sizes: tuple[int, ...], axis: int) -> Array | tuple[Array, ...]:
        parts = tuple(xp.split(x, np.cumsum(sizes)[:-1].tolist(), axis))
        return parts if len(parts) > 1 else parts[0]

    samples: d.Samples = [
        d.sample(d.floats(5, 2), sizes=(2, 3), axis=0),
        d.sample(d.floats("n", 4), sizes=(1, 0, 3), axis=1),
    ]


@d.builds(Split)
def split(
    value: ArrayLike,
    num_or_size_splits: int | Sequence[Size | str] | NumpyArray,
    axis: int = 0,
    num: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """A tensor cut into parts along an axis.

    Args:
        value: any tensor.
        num_or_size_splits: the number of equal parts, or a list of their sizes along the axis; one of these
            may be -1, which stands for the rest.
        axis: the axis along which to cut.
        num: the number of parts if sizes are given; not needed, and only checked.

    Returns:
        A tuple of tensors, one for each part.

    Constraints:
        (C1) The axis exists in value.
        (C2) The size of the axis is a multiple of the number of parts, or the sum of the sizes; there are num
            of these.

    Examples:
        >>> sg.split(np.array([1.0, 2.0, 3.0]), [1, 2], axis=0)
        (array([1.]), array([2., 3.]))
    """
    kind = d.type_of(value)
    with d.about(Split, value):
        axis = d.normal_axis(axis, kind.ndim, "C1")
        sizes = _part_sizes(num_or_size_splits, kind.shape[axis], axis)
        if num is not None and d.whole(num) != len(sizes):
            raise ShapeError(f"(C2) num={num}, and there are {len(sizes)} parts; leave num out")
    parts = d.apply(Split, (value,), (sizes, axis), name)
    return parts if isinstance(parts, tuple) else (parts,)


@d.reads_arguments
def _part_sizes(sections: Any, size: Size, axis: int) -> tuple[Any, ...]:
    """The sizes of the parts of an axis, given their number or sizes, one of which may be -1."""
    if d.is_whole(sections):
        count = d.whole(sections)
        part_size = d.exact_quotient(size, count) if count > 0 else None
        if part_size is None:
            raise ShapeError(f"(C2) axis {axis}, of size {size}, does not split into {count} equal parts")
        return (part_size,) * count
    sizes = [*sections]
    unknown = [i for i, n in enumerate(sizes) if d.is_whole(n) and d.whole(n) == -1]
    if len(unknown) == 1:
        sizes[unknown[0]] = 0
        rest = size - d.total(d.shape_of(sizes))
        if isinstance(rest, int) and rest < 0:
            raise ShapeError(
                f"(C2) axis {axis}, of size {size}, is smaller than the sizes {d.show_shape(sections)}"
            )
        sizes[unknown[0]] = rest
    return d.shape_of(sizes)


class PadV2(Op):
    """A tensor surrounded by one value.

    Args:
        x: any tensor.
        value: the value around it.
        paddings: for each axis, the numbers of elements before and after.

    Returns:
        The padded tensor.

    Constraints:
        (C1) The value is a scalar of x's dtype.
        (C2) There are two sizes for each axis of x, none negative.
    """

    @staticmethod
    def infer(x: TensorType, value: TensorType, *, paddings: Sizes) -> TensorType:
        d.check_same_dtype(x, value)
        if value.ndim:
            raise ShapeError(f"(C1) the value must be a scalar, not {value!r}")
        if len(paddings) != x.ndim or any(isinstance(n, int) and n < 0 for pair in paddings for n in pair):
            raise ShapeError(f"(C2) paddings {paddings} for {x!r}: give two sizes, none negative, per axis")
        return d.tensor_type(
            x.dtype, tuple(low + size + high for size, (low, high) in zip(x.shape, paddings, strict=True))
        )

    gradient: d.Gradient = {
        "x": lambda g, op: _unpadded(g, op),
        "value": lambda g, op: reduce_sum(where(_is_padding(op), g, 0)),
    }
    batch = d.PAD
    pads = True
    moves = ("x", "value")
    lower: d.Lowering = lambda xp, x, value, paddings: (
        xp.pad(x, paddings, constant_values=value) if paddings else x
    )
    samples: d.Samples = [
        d.sample(d.floats(2, 3), d.floats(), paddings=((1, 0), (2, 1))),
        d.sample(d.floats(0), d.floats(), paddings=((1, 1),)),
    ]


def _is_padding(op: Operation) -> Tensor:
    """A mask of the elements of the padded tensor that are padding."""
    return equal(d.apply(PadV2, (zeros_like(op.x), 1), (op.paddings,)), 1)


def _unpadded(g: Output, op: Operation) -> Tensor:
    """The part of a padded tensor that came from the operand."""
    return d.apply(
        StridedSlice,
        (g,),
        (tuple((low, size, 1) for size, (low, _) in zip(op.x.shape, op.paddings, strict=True)),),
    )


@d.builds(PadV2, by_type=True)
def pad(
    tensor: ArrayLike,
    paddings: Sequence[Sequence[Size]] | NumpyArray,
    mode: str = "CONSTANT",
    constant_values: ArrayLike = 0,
    name: str | None = None,
) -> Tensor:
    """A tensor with elements put around it.

    Args:
        tensor: any tensor.
        paddings: for each axis, the numbers of elements before and after.
        mode: "CONSTANT" for one value; "REFLECT" for the tensor mirrored at its first and last elements;
            "SYMMETRIC" for the tensor mirrored at its edges, so that those elements are repeated.
        constant_values: the value around it in the mode "CONSTANT"; 0 by default.

    Returns:
        The padded tensor.

    Constraints:
        (C1) The value is a scalar, of a dtype that converts to the tensor's without loss.
        (C2) There are two sizes for each axis of the tensor, none negative, and none larger than the number
            of elements that can be mirrored.

    Examples:
        >>> sg.pad(np.array([1.0, 2.0]), [[1, 2]])
        array([0., 1., 2., 0., 0.])
        >>> sg.pad(np.array([1.0, 2.0, 3.0]), [[2, 0]], mode="REFLECT")
        array([3., 2., 1., 2., 3.])
    """
    x = tensor
    with d.about(PadV2, x):
        pairs = _pairs(paddings)
    if not isinstance(mode, str):
        raise ArgumentError(f"PadV2: {mode!r} is no mode; take 'CONSTANT', 'REFLECT' or 'SYMMETRIC'")
    if mode.upper() == "CONSTANT":
        if type(constant_values) is int and constant_values == 0 and d.type_of(x).dtype is d.bool_:
            constant_values = False
        return d.apply(PadV2, (x, constant_values), (pairs,), name)
    skip = {"REFLECT": 1, "SYMMETRIC": 0}.get(mode.upper())
    if skip is None:
        raise ArgumentError(f"PadV2: {mode!r} is no mode; take 'CONSTANT', 'REFLECT' or 'SYMMETRIC'")
    with d.about(PadV2, x):
        _check_mirrored(d.type_of(x), pairs, mode, skip)
    for axis, (low, high) in enumerate(pairs):
        size = d.type_of(x).shape[axis]
        before = [reverse(part_of(x, axis, skip, low), [axis])] if low else []
        after = [reverse(part_of(x, axis, size - skip - high, high), [axis])] if high else []
        x = concat([*before, x, *after], axis) if before or after else x
    return x


@d.reads_arguments
def _pairs(paddings: Sequence[Sequence[Size]] | NumpyArray) -> tuple[Any, ...]:
    pairs = []
    for pair in paddings:
        low, high = pair
        if any(isinstance(n, (int, np.integer)) and n < 0 for n in (low, high)):
            raise ShapeError(
                f"(C2) the padding {d.show_shape((low, high))} is negative; to cut elements off, slice"
            )
        pairs.append((d.shape_of([low])[0], d.shape_of([high])[0]))
    return tuple(pairs)


def _check_mirrored(x: TensorType, pairs: tuple[Any, ...], mode: str, skip: int) -> None:
    if len(pairs) != x.ndim:
        raise ShapeError(f"(C2) paddings {pairs}: give two sizes per axis")
    for axis, (size, pair) in enumerate(zip(x.shape, pairs, strict=True)):
        if any(isinstance(n, int) and isinstance(size, int) and n > size - skip for n in pair):
            raise ShapeError(
                f"(C2) {mode} padding {pair} is larger than axis {axis}, of size {size}, can mirror"
            )


class Tile(Op):
    """A tensor repeated along its axes.

    Args:
        x: any tensor.
        multiples: for each axis, the number of repetitions.

    Returns:
        The repeated tensor.

    Constraints:
        (C1) There is one multiple for each axis of x.
    """

    @staticmethod
    def infer(x: TensorType, *, multiples: Sizes) -> TensorType:
        if len(multiples) != x.ndim:
            raise ShapeError(f"(C1) {len(multiples)} multiples for {x.ndim} axes")
        return d.tensor_type(x.dtype, tuple(m * s for m, s in zip(multiples, x.shape, strict=True)))

    gradient: d.Gradient = {"x": lambda g, op: _untile(g, op)}
    batch = d.along(multiples=lambda size: 1)
    moves = ("x",)
    lower: d.Lowering = lambda xp, x, multiples: xp.tile(x, multiples)
    samples: d.Samples = [
        d.sample(d.floats(2, 3), multiples=(2, 1)),
        d.sample(d.floats("n"), multiples=(3,)),
        d.sample(d.floats(2), multiples=(0,)),
    ]


@d.builds(Tile, by_type=True)
def tile(input: ArrayLike, multiples: Sequence[Any], name: str | None = None) -> Tensor:
    """A tensor repeated along its axes.

    Args:
        input: any tensor.
        multiples: for each axis, the number of repetitions.

    Returns:
        The repeated tensor.

    Constraints:
        (C1) There is one multiple for each axis of the input.

    Examples:
        >>> sg.tile(np.array([1.0, 2.0]), [2])
        array([1., 2., 1., 2.])
    """
    return d.apply(Tile, (input,), (d.shape_of(multiples),), name)


def _untile(g: Output, op: Operation) -> Tensor:
    interleaved = tuple(n for pair in zip(op.multiples, op.x.shape, strict=True) for n in pair)
    return sum_axes(reshape(g, interleaved), tuple(range(0, 2 * op.x.ndim, 2)))


class ReverseV2(Op):
    """A tensor with the order of its elements reversed along some axes.

    Args:
        tensor: any tensor.
        axis: the axis or axes to reverse.

    Returns:
        The reversed tensor.

    Constraints:
        (C1) The axes exist in the tensor, and none is named twice.

    Examples:
        >>> sg.reverse(np.array([1.0, 2.0]), [0])
        array([2., 1.])
    """

    @staticmethod
    def infer(tensor: TensorType, *, axis: Axes) -> TensorType:
        return tensor

    gradient: d.Gradient = {"tensor": lambda g, op: reverse(g, op.axis)}
    batch = d.ALONG
    moves = ("tensor",)
    lower: d.Lowering = lambda xp, tensor, axis: xp.flip(tensor, axis)
    samples: d.Samples = [d.sample(d.floats(2, 3), axis=(1,)), d.sample(d.floats("n"), axis=(0,))]


@d.builds(ReverseV2, by_type=True)
def reverse(tensor: ArrayLike, axis: int | Sequence[int] | None, name: str | None = None) -> Tensor:
    return d.apply(ReverseV2, (tensor,), (d.normal_axes(axis, d.type_of(tensor).ndim, "C1"),), name)
