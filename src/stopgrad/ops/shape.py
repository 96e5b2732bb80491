"""Operations that move elements without changing them: reshape, transpose, concat, slice, pad and their kin."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from stopgrad.errors import DTypeError, ShapeError
from stopgrad.graph import Output
from stopgrad.op import Op, Tensor, apply, builds, refuse, show_shape, type_of
from stopgrad.ops.inference import check_same_dtype, normal_axes, normal_axis
from stopgrad.samples import floats, ints, sample
from stopgrad.types import Dim, Shape, ShapeLike, TensorType, at_least, exact_quotient, product, same_size, shape_of, tensor_type

__all__ = [
    "broadcast_to",
    "concat",
    "expand_dims",
    "pad",
    "reduce_sum",
    "reshape",
    "reverse",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "tile",
    "transpose",
    "unstack",
]


class Reshape(Op):
    """The same elements, in row-major order, in another shape.

    Inputs
        x: any tensor.
        shape: sizes whose product is x's number of elements (C1); one may be -1 and is worked out.
    Returns
        x in that shape.
    >>> sg.reshape(np.arange(4.0), [2, -1])
    array([[0., 1.],
           [2., 3.]])
    """

    @staticmethod
    def infer(x: TensorType, *, shape: Shape) -> TensorType:
        if not same_size(product(x.shape), product(shape)):
            raise ShapeError(f"(C1) {x!r} has {x.size} elements, the shape {show_shape(shape)} has {product(shape)}")
        return tensor_type(x.dtype, shape)

    gradient = {"x": lambda g, op: reshape(g, op.x.shape)}
    numpy = xla = lambda xp, x, shape: xp.reshape(x, shape)
    samples = [sample(floats(2, 3), shape=(3, 2)), sample(floats(1, 1), shape=()), sample(floats(0, 2), shape=(4, 0))]


@builds(Reshape)
def reshape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    wanted = [shape] if isinstance(shape, (int, str, Dim)) else list(shape)
    if any(isinstance(s, (int, np.integer)) and s < -1 for s in wanted) or wanted.count(-1) > 1:
        refuse(Reshape, ShapeError(f"(C1) the shape {show_shape(wanted)} may hold -1 once and no other negative size"), (x,))
    if -1 in wanted:
        at = wanted.index(-1)
        total, rest = product(type_of(x).shape), product(shape_of([s for s in wanted if s != -1]))
        missing = exact_quotient(total, rest)
        if missing is None and isinstance(total, int) and isinstance(rest, int):
            refuse(Reshape, ShapeError(f"(C1) {total} elements do not fit the shape {show_shape(wanted)}"), (x,))
        wanted[at] = missing if missing is not None else total // rest
    return apply(Reshape, (x,), (shape_of(wanted),), name)


class Transpose(Op):
    """The axes in another order.

    Inputs
        x: any tensor.
        perm: which axis of x comes at each position (C1); None reverses their order.
    Returns
        x with its axes permuted.
    >>> sg.transpose(np.array([[1.0, 2.0, 3.0]])).shape
    (3, 1)
    """

    @staticmethod
    def infer(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
        if sorted(perm) != list(range(x.ndim)):
            raise ShapeError(f"(C1) {perm} is no order of the {x.ndim} axes of {x!r}")
        return tensor_type(x.dtype, tuple(x.shape[p] for p in perm))

    gradient = {"x": lambda g, op: transpose(g, tuple(np.argsort(op.perm).tolist()))}
    numpy = xla = lambda xp, x, perm: xp.transpose(x, perm)
    samples = [sample(floats(2, 3, 4), perm=(2, 0, 1)), sample(floats("n", 2), perm=(1, 0))]


@builds(Transpose)
def transpose(x: Any, perm: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    ndim = type_of(x).ndim
    order = tuple(range(ndim))[::-1] if perm is None else tuple(p + ndim if -ndim <= p < 0 else p for p in map(operator.index, perm))
    return apply(Transpose, (x,), (order,), name)


def swap_last(x: Any) -> Tensor:
    """*x* with its last two axes exchanged."""
    ndim = type_of(x).ndim
    return transpose(x, (*range(ndim - 2), ndim - 1, ndim - 2))


class BroadcastTo(Op):
    """The operand repeated along new axes and along axes of size 1.

    Inputs
        x: any tensor.
        shape: a shape to which x's shape broadcasts (C1).
    Returns
        x in that shape.
    >>> sg.broadcast_to(np.array([1.0, 2.0]), [2, 2])
    array([[1., 2.],
           [1., 2.]])
    """

    @staticmethod
    def infer(x: TensorType, *, shape: Shape) -> TensorType:
        if x.ndim > len(shape) or not all((isinstance(a, int) and a == 1) or same_size(a, b) for a, b in zip(x.shape[::-1], shape[::-1], strict=False)):
            raise ShapeError(f"(C1) {x!r} does not broadcast to {show_shape(shape)}")
        return tensor_type(x.dtype, shape)

    gradient = {"x": lambda g, op: g}
    numpy = xla = lambda xp, x, shape: xp.broadcast_to(x, shape)
    samples = [sample(floats(3), shape=(2, 3)), sample(floats(2, 1), shape=(2, 3)), sample(floats(), shape=(2,)), sample(floats(1), shape=(0,))]


@builds(BroadcastTo)
def broadcast_to(x: Any, shape: ShapeLike, name: str | None = None) -> Tensor:
    return apply(BroadcastTo, (x,), (shape_of(shape),), name)


def expand_dims(x: Any, axis: int | Sequence[int], name: str | None = None) -> Tensor:
    """*x* with axes of size 1 inserted, at these positions of the result.

    >>> sg.expand_dims(np.array([1.0, 2.0]), 0).shape
    (1, 2)
    """
    shape = type_of(x).shape
    count = len(axis) if isinstance(axis, Sequence) else 1
    axes = normal_axes(axis, len(shape) + count)
    sizes = iter(shape)
    return reshape(x, tuple(1 if i in axes else next(sizes) for i in range(len(shape) + count)), name)


def squeeze(x: Any, axis: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """*x* without these axes of size 1; by default without all that are literally of size 1.

    >>> sg.squeeze(np.ones((1, 2, 1))).shape
    (2,)
    """
    kind = type_of(x)
    axes = tuple(i for i, s in enumerate(kind.shape) if s == 1) if axis is None else normal_axes(axis, kind.ndim)
    if any(not same_size(kind.shape[a], 1) for a in axes):
        refuse(Reshape, ShapeError(f"(C1) only axes of size 1 can be squeezed away, and of {kind!r} axes {show_shape(axes)} were asked"), (x,))
    return reshape(x, tuple(s for i, s in enumerate(kind.shape) if i not in axes), name)


# ----------------------------------------------------------------------------------- concat, stack, split


class ConcatV2(Op):
    """Tensors one after the other along an axis that they have.

    Inputs
        xs: one or more tensors of one dtype (C1) and rank, whose other sizes agree (C3).
        axis: along which (C2).
    Returns
        the tensors joined.
    >>> sg.concat([np.array([1.0]), np.array([2.0, 3.0])], axis=0)
    array([1., 2., 3.])
    """

    @staticmethod
    def infer(*xs: TensorType, axis: int) -> TensorType:
        dtype = check_same_dtype(*xs)
        normal_axis(axis, xs[0].ndim)
        for x in xs[1:]:
            if x.ndim != xs[0].ndim or not all(i == axis or same_size(a, b) for i, (a, b) in enumerate(zip(x.shape, xs[0].shape, strict=False))):
                raise ShapeError(f"(C3) {xs[0]!r} and {x!r} differ in more than axis {axis}")
        total: Any = 0
        for x in xs:
            total = x.shape[axis] + total
        return tensor_type(dtype, (*xs[0].shape[:axis], total, *xs[0].shape[axis + 1 :]))

    gradient = {"xs": lambda g, op, i: _part(g, op.axis, sum((x.shape[op.axis] for x in op.inputs[:i]), 0), op.inputs[i].shape[op.axis])}
    numpy = xla = lambda xp, *xs, axis: xp.concatenate(xs, axis)
    samples = [sample(floats(2, 3), floats(1, 3), axis=0), sample(floats("n"), floats(2), floats("n"), axis=0), sample(floats(0, 3), floats(2, 3), axis=0)]


@builds(ConcatV2)
def concat(xs: Sequence[Any], axis: int, name: str | None = None) -> Tensor:
    if not xs:
        raise ShapeError("ConcatV2: (C1) needs at least one tensor")
    ndim = type_of(xs[0]).ndim
    if isinstance(axis, int) and -ndim <= axis < 0:
        axis += ndim
    return apply(ConcatV2, tuple(xs), (axis,), name)


def _part(x: Any, axis: int, start: Any, size: Any) -> Tensor:
    """*size* elements from *start* along an axis."""
    spans = tuple((start, size, 1) if i == axis else (0, s, 1) for i, s in enumerate(type_of(x).shape))
    return apply(StridedSlice, (x,), (spans,))


class Pack(Op):
    """Tensors side by side along a new axis.

    Inputs
        xs: one or more tensors of one dtype (C1) and shape (C3).
        axis: the position of the new axis (C2).
    Returns
        the tensors stacked.
    >>> sg.stack([np.array([1.0, 2.0]), np.array([3.0, 4.0])], axis=1)
    array([[1., 3.],
           [2., 4.]])
    """

    @staticmethod
    def infer(*xs: TensorType, axis: int) -> TensorType:
        dtype = check_same_dtype(*xs)
        normal_axis(axis, xs[0].ndim + 1)
        for x in xs[1:]:
            if x.ndim != xs[0].ndim or not all(same_size(a, b) for a, b in zip(x.shape, xs[0].shape, strict=True)):
                raise ShapeError(f"(C3) {xs[0]!r} and {x!r} cannot be stacked: their shapes differ")
        return tensor_type(dtype, (*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]))

    gradient = {"xs": lambda g, op, i: squeeze(_part(g, op.axis, i, 1), op.axis)}
    numpy = xla = lambda xp, *xs, axis: xp.stack(xs, axis)
    samples = [sample(floats(2, 3), floats(2, 3), axis=1), sample(floats("n"), floats("n"), axis=0), sample(floats(), floats(), axis=0)]


@builds(Pack)
def stack(xs: Sequence[Any], axis: int = 0, name: str | None = None) -> Tensor:
    if not xs:
        raise ShapeError("Pack: (C1) needs at least one tensor")
    ndim = type_of(xs[0]).ndim + 1
    if isinstance(axis, int) and -ndim <= axis < 0:
        axis += ndim
    return apply(Pack, tuple(xs), (axis,), name)


def unstack(x: Any, axis: int = 0, name: str | None = None) -> list[Tensor]:
    """The parts of *x* along an axis, without that axis.

    >>> sg.unstack(np.array([[1.0, 2.0], [3.0, 4.0]]))
    [array([1., 2.]), array([3., 4.])]
    """
    kind = type_of(x)
    axis = normal_axis(axis, kind.ndim)
    return [squeeze(_part(x, axis, i, 1), axis, name) for i in range(int(kind.shape[axis]))]


class Split(Op):
    """A tensor cut into parts along an axis.

    Inputs
        x: any tensor.
        axis: along which (C1).
        sizes: the sizes of the parts; they add up to x's size (C2).
    Returns
        as many tensors as sizes.
    >>> sg.split(np.array([1.0, 2.0, 3.0]), [1, 2], axis=0)
    (array([1.]), array([2., 3.]))
    """

    @staticmethod
    def infer(x: TensorType, *, sizes: tuple[Any, ...], axis: int) -> tuple[TensorType, ...]:
        normal_axis(axis, x.ndim, "C1")
        total = sum(sizes)
        if not same_size(total, x.shape[axis]):
            raise ShapeError(f"(C2) the sizes {show_shape(sizes)} add up to {total}, not to {x.shape[axis]}, the size of axis {axis}")
        return tuple(tensor_type(x.dtype, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in sizes)

    gradient = {"x": lambda g, op: concat(g, op.axis) if isinstance(g, tuple) else g}

    @staticmethod
    def numpy(xp: Any, x: Any, sizes: tuple[int, ...], axis: int) -> Any:
        parts = tuple(xp.split(x, np.cumsum(sizes)[:-1].tolist(), axis))
        return parts if len(parts) > 1 else parts[0]

    xla = numpy
    samples = [sample(floats(5, 2), sizes=(2, 3), axis=0), sample(floats("n", 4), sizes=(1, 0, 3), axis=1)]


@builds(Split)
def split(x: Any, num_or_size_splits: int | Sequence[Any], axis: int = 0, name: str | None = None) -> tuple[Tensor, ...]:
    kind = type_of(x)
    axis = normal_axis(axis, kind.ndim, "C1")
    if isinstance(num_or_size_splits, int):
        each = exact_quotient(kind.shape[axis], num_or_size_splits) if num_or_size_splits > 0 else None
        if each is None:
            refuse(Split, ShapeError(f"(C2) axis {axis}, of size {kind.shape[axis]}, does not split into {num_or_size_splits} equal parts"), (x,))
        sizes: tuple[Any, ...] = (each,) * num_or_size_splits
    else:
        sizes = shape_of(num_or_size_splits)
    parts = apply(Split, (x,), (sizes, axis), name)
    return parts if isinstance(parts, tuple) else (parts,)


# ------------------------------------------------------------------------------------------------ slices

Span = tuple[Any, Any, int]
"""Along one axis: the first element, the number of elements, the step."""


def _slices(spans: Sequence[Span]) -> tuple[slice, ...]:
    return tuple(_slice(*span) for span in spans)


def _slice(start: int, size: int, step: int) -> slice:
    if size == 0:
        return slice(0, 0)
    stop = start + (size - 1) * step + (1 if step > 0 else -1)
    return slice(start, stop if stop >= 0 else None, step)


class StridedSlice(Op):
    """Elements at regular distances along each axis; the operation behind ``x[a:b:c]``.

    Inputs
        x: any tensor.
        spans: per axis of x (C1) the first element, the number of elements, the step (not 0).
    Returns
        these elements.
    >>> sg.strided_slice(np.arange(6.0), [1], [6], [2])
    array([1., 3., 5.])
    """

    @staticmethod
    def infer(x: TensorType, *, spans: tuple[Span, ...]) -> TensorType:
        if len(spans) != x.ndim:
            raise ShapeError(f"(C1) {len(spans)} slices for {x.ndim} axes")
        return tensor_type(x.dtype, tuple(size for _, size, _ in spans))

    gradient = {"x": lambda g, op: apply(StridedSliceGrad, (g,), (op.x.shape, op.spans))}
    numpy = xla = lambda xp, x, spans: x[_slices(spans)]
    samples = [sample(floats(5, 3), spans=((1, 2, 2), (2, 3, -1))), sample(floats(4), spans=((0, 0, 1),))]


class StridedSliceGrad(Op):
    """The gradient of a slice: zeros, with the cotangent where the elements were taken.

    Inputs
        g: the cotangent, of the slice's shape (C1).
        shape, spans: of the tensor that was sliced, and the slices.
    Returns
        a tensor of that shape.
    >>> sg.ops.StridedSliceGrad.function(np.ones(2), (4,), ((1, 2, 2),))
    array([0., 1., 0., 1.])
    """

    @staticmethod
    def infer(g: TensorType, *, shape: Shape, spans: tuple[Span, ...]) -> TensorType:
        if g.ndim != len(spans) or not all(same_size(a, size) for a, (_, size, _) in zip(g.shape, spans, strict=True)):
            raise ShapeError(f"(C1) the cotangent {g!r} has not the slice's shape")
        return tensor_type(g.dtype, shape)

    gradient = {"g": lambda g, op: apply(StridedSlice, (g,), (op.spans,))}

    @staticmethod
    def numpy(xp: Any, g: Any, shape: tuple[int, ...], spans: tuple[Span, ...]) -> Any:
        full = xp.zeros(shape, g.dtype)
        full[_slices(spans)] = g
        return full

    @staticmethod
    def xla(xp: Any, g: Any, shape: tuple[int, ...], spans: tuple[Span, ...]) -> Any:
        # A pad with gaps between the elements: XLA fuses it, where a scatter would be a loop.
        flipped = [i for i, (_, _, step) in enumerate(spans) if step < 0]
        g = xp.flip(g, flipped) if flipped else g
        padding = []
        for total, (start, size, step) in zip(shape, spans, strict=True):
            low = start if step > 0 else start + (size - 1) * step
            reach = (size - 1) * abs(step) + 1 if size else 0
            padding.append((low, total - low - reach, abs(step) - 1) if size else (0, total, 0))
        return xp.lax.pad(g, xp.zeros((), g.dtype), padding)

    samples = [sample(floats(2, 3), shape=(5, 3), spans=((1, 2, 2), (2, 3, -1))), sample(floats(0), shape=(4,), spans=((0, 0, 1),))]


@builds(StridedSliceGrad)
def strided_slice_grad(g: Any, shape: ShapeLike, spans: tuple[Span, ...], name: str | None = None) -> Tensor:
    return apply(StridedSliceGrad, (g,), (shape_of(shape), spans), name)


@builds(StridedSlice)
def strided_slice(x: Any, begin: Sequence[Any], end: Sequence[Any], strides: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    steps = strides if strides is not None else [1] * len(begin)
    return take_index(x, tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps, strict=True)), name)


def _span(index: slice, size: Any) -> Span:
    """The span of a Python slice along an axis of this size, which may be symbolic."""
    step = 1 if index.step is None else operator.index(index.step)
    if step == 0:
        raise ShapeError("a slice's step cannot be 0")
    if isinstance(size, int) and not isinstance(index.start, Dim) and not isinstance(index.stop, Dim):
        start, stop, step = slice(index.start, index.stop, step).indices(size)
        return start, len(range(start, stop, step)), step
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def clamp(bound: Any, default: Any) -> Any:
        if bound is None:
            return default
        if isinstance(bound, int) and bound < 0:
            return at_least(size + bound, low)
        excess = at_least(bound - high, 0) if bound is not high else 0
        return bound - excess

    start, stop = clamp(index.start, 0 if step > 0 else high), clamp(index.stop, size if step > 0 else -1)
    reach = stop - start if step > 0 else start - stop
    count = reach if start == 0 and stop is size else at_least(reach, 0)
    return start, (count + (abs(step) - 1)) // abs(step), step


def take_index(x: Any, index: Any, name: str | None = None) -> Tensor:
    """``x[index]``: integers, slices, None, Ellipsis. Integer tensors are the business of ``gather``."""
    kind = type_of(x)
    parts: list[Any] = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for p in parts if p is not None and not isinstance(p, EllipsisType))
    if used > kind.ndim or sum(isinstance(p, EllipsisType) for p in parts) > 1:
        refuse(StridedSlice, ShapeError(f"(C1) {len(parts)} indices for {kind.ndim} axes"), (x,))
    if not any(isinstance(p, EllipsisType) for p in parts):
        parts.append(Ellipsis)
    at = next(i for i, p in enumerate(parts) if isinstance(p, EllipsisType))
    parts[at : at + 1] = [slice(None)] * (kind.ndim - used)
    spans: list[Span] = []
    shape: list[Any] = []
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        size = kind.shape[len(spans)]
        try:
            spans.append(_span(part, size) if isinstance(part, slice) else (_position(part, size), 1, 1))
        except ShapeError as error:
            refuse(StridedSlice, error, (x,))
        if isinstance(part, slice):
            shape.append(spans[-1][1])
    taken = x if all(_is_whole(s, n) for s, n in zip(spans, kind.shape, strict=True)) else apply(StridedSlice, (x,), (tuple(spans),), name)
    return taken if tuple(shape) == type_of(taken).shape else reshape(taken, tuple(shape), name)


def _is_whole(span: Span, size: Any) -> bool:
    return span[0] == 0 and span[1] == size and span[2] == 1


def _position(part: Any, size: Any) -> Any:
    if isinstance(part, (bool, np.bool_, float, str)):
        raise ShapeError(f"{part!r} is no index; take integers, slices, None or Ellipsis, or sg.gather and sg.where")
    try:
        position = part if isinstance(part, Dim) else operator.index(part)
    except TypeError:
        raise ShapeError(f"{part!r} is no index; take integers, slices, None or Ellipsis, or sg.gather and sg.where") from None
    if isinstance(position, int) and position < 0:
        position = size + position
    if isinstance(position, int) and isinstance(size, int) and not 0 <= position < size:
        raise ShapeError(f"index {part} is out of range for an axis of size {size}")
    return position


# ----------------------------------------------------------------------------------- pad, tile, reverse


class PadV2(Op):
    """The operand surrounded by a constant.

    Inputs
        x: any tensor.
        value: a scalar of its dtype (C1), by default 0.
        paddings: per axis of x (C2) how many elements come before and after.
    Returns
        the padded tensor.
    >>> sg.pad(np.array([1.0, 2.0]), [[1, 2]])
    array([0., 1., 2., 0., 0.])
    """

    @staticmethod
    def infer(x: TensorType, value: TensorType, *, paddings: tuple[tuple[Any, Any], ...]) -> TensorType:
        check_same_dtype(x, value)
        if value.ndim:
            raise ShapeError(f"(C1) the value must be a scalar, not {value!r}")
        if len(paddings) != x.ndim or any(isinstance(n, int) and n < 0 for pair in paddings for n in pair):
            raise ShapeError(f"(C2) paddings {paddings} for {x!r}: give two sizes, none negative, per axis")
        return tensor_type(x.dtype, tuple(low + size + high for size, (low, high) in zip(x.shape, paddings, strict=True)))

    gradient = {
        "x": lambda g, op: apply(StridedSlice, (g,), (tuple((low, size, 1) for size, (low, _) in zip(op.x.shape, op.paddings, strict=True)),)),
        "value": lambda g, op: _sum_all(g) - _sum_all(apply(StridedSlice, (g,), (tuple((low, size, 1) for size, (low, _) in zip(op.x.shape, op.paddings, strict=True)),))),
    }
    numpy = xla = lambda xp, x, value, paddings: xp.pad(x, paddings, constant_values=value)
    samples = [sample(floats(2, 3), floats(), paddings=((1, 0), (2, 1))), sample(floats(0), floats(), paddings=((1, 1),))]


@builds(PadV2)
def pad(x: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Tensor:
    pairs = tuple((shape_of([low])[0], shape_of([high])[0]) for low, high in paddings)
    if mode.upper() == "CONSTANT":
        return apply(PadV2, (x, constant_values), (pairs,), name)
    skip = {"REFLECT": 1, "SYMMETRIC": 0}.get(mode.upper())
    if skip is None:
        raise ValueError(f"PadV2: {mode!r} is no mode; take 'CONSTANT', 'REFLECT' or 'SYMMETRIC'")
    for axis, (low, high) in enumerate(pairs):
        size = type_of(x).shape[axis]
        if isinstance(size, int) and max(low, high) > size - skip:
            refuse(PadV2, ShapeError(f"(C2) {mode} padding {(low, high)} is larger than axis {axis}, of size {size}, can mirror"), (x,))
        before = [reverse(_part(x, axis, skip, low), [axis])] if low else []
        after = [reverse(_part(x, axis, size - skip - high, high), [axis])] if high else []
        x = concat([*before, x, *after], axis) if before or after else x
    return x


class Tile(Op):
    """The operand repeated along its axes.

    Inputs
        x: any tensor.
        multiples: per axis of x (C1) how often.
    Returns
        the repeated tensor.
    >>> sg.tile(np.array([1.0, 2.0]), [2])
    array([1., 2., 1., 2.])
    """

    @staticmethod
    def infer(x: TensorType, *, multiples: tuple[Any, ...]) -> TensorType:
        if len(multiples) != x.ndim:
            raise ShapeError(f"(C1) {len(multiples)} multiples for {x.ndim} axes")
        return tensor_type(x.dtype, tuple(m * s for m, s in zip(multiples, x.shape, strict=True)))

    gradient = {"x": lambda g, op: _untile(g, op)}
    numpy = xla = lambda xp, x, multiples: xp.tile(x, multiples)
    samples = [sample(floats(2, 3), multiples=(2, 1)), sample(floats("n"), multiples=(3,)), sample(floats(2), multiples=(0,))]


@builds(Tile)
def tile(x: Any, multiples: Sequence[Any], name: str | None = None) -> Tensor:
    return apply(Tile, (x,), (shape_of(multiples),), name)


def _untile(g: Any, op: Any) -> Tensor:
    interleaved = tuple(n for pair in zip(op.multiples, op.x.shape, strict=True) for n in pair)
    return sum_axes(reshape(g, interleaved), tuple(range(0, 2 * op.x.ndim, 2)))


class ReverseV2(Op):
    """The operand with the order of its elements turned round along some axes.

    Inputs
        x: any tensor.
        axis: which axes (C1).
    Returns
        the reversed tensor.
    >>> sg.reverse(np.array([1.0, 2.0]), [0])
    array([2., 1.])
    """

    @staticmethod
    def infer(x: TensorType, *, axis: tuple[int, ...]) -> TensorType:
        return x

    gradient = {"x": lambda g, op: reverse(g, op.axis)}
    numpy = xla = lambda xp, x, axis: xp.flip(x, axis)
    samples = [sample(floats(2, 3), axis=(1,)), sample(floats("n"), axis=(0,))]


@builds(ReverseV2)
def reverse(x: Any, axis: Any, name: str | None = None) -> Tensor:
    return apply(ReverseV2, (x,), (normal_axes(axis, type_of(x).ndim, "C1"),), name)


# --------------------------------------------------------------------------------------------------- sum


class Sum(Op):
    """Sum over axes.

    Inputs
        x: numbers (C1).
        axis: which axes (C2), None for all; keepdims: whether they stay, with size 1.
    Returns
        the sum; 0 over no elements. float16 and bfloat16 are summed as the engine does.
    >>> sg.reduce_sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """

    @staticmethod
    def infer(x: TensorType, *, axis: tuple[int, ...], keepdims: bool) -> TensorType:
        if x.dtype.is_bool:
            raise DTypeError(f"(C1) takes numbers, not {x!r}; convert with sg.cast")
        return reduced(x, axis, keepdims)

    gradient = {"x": lambda g, op: spread(g, op)}
    numpy = xla = lambda xp, x, axis, keepdims: xp.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    samples = [sample(floats(2, 3), axis=(0,), keepdims=False), sample(floats("n", 2, 3), axis=(0, 2), keepdims=True), sample(floats(0, 2), axis=(0, 1), keepdims=False), sample(ints(3), axis=(0,), keepdims=False)]


@builds(Sum)
def reduce_sum(x: Any, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Tensor:
    return apply(Sum, (x,), (normal_axes(axis, type_of(x).ndim), bool(keepdims)), name)


def reduced(x: TensorType, axis: tuple[int, ...], keepdims: bool) -> TensorType:
    """The type of *x* reduced over axes."""
    return tensor_type(x.dtype, tuple(1 if i in axis else s for i, s in enumerate(x.shape) if keepdims or i not in axis))


def spread(g: Any, op: Any) -> Tensor:
    """A tensor of a reduction's result type, repeated over the axes that were reduced."""
    if not op.keepdims and op.x.ndim != len(op.axis):
        g = reshape(g, tuple(1 if i in op.axis else s for i, s in enumerate(op.x.shape)))
    return g if g.type.shape == op.x.shape else broadcast_to(g, op.x.shape)


def sum_axes(x: Any, axis: tuple[int, ...]) -> Tensor:
    return apply(Sum, (x,), (axis, False))


def _sum_all(x: Any) -> Tensor:
    return sum_axes(x, tuple(range(type_of(x).ndim)))


def fit(dx: Output, x: TensorType) -> Output:
    """A cotangent in the shape of its operand: summed over the axes along which the operand was broadcast."""
    extra = dx.type.ndim - x.ndim
    padded = (1,) * extra + x.shape
    axes = tuple(i for i, (have, want) in enumerate(zip(dx.type.shape, padded, strict=True)) if i < extra or (want == 1 and have != 1))
    summed: Output = sum_axes(dx, axes) if axes else dx
    return summed if len(axes) == extra or not axes else reshape(summed, x.shape)
