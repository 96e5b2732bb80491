"""Functions that move elements, or choose elements by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Output, Shape, ShapeLike, Tensor
from stopgrad.ops.indexing.gather import take_along_axis as _take_along_axis
from stopgrad.ops.linalg.matrices import matrix_transpose as matrix_transpose
from stopgrad.ops.shapes.join import concat as _concat, stack as _stack, tile as _tile, unstack as _unstack
from stopgrad.ops.shapes.moving import (
    flip as flip,
    moveaxis as moveaxis,
    repeat as repeat,
    roll as _roll,
    take as take,
)
from stopgrad.ops.shapes.reshape import (
    broadcast_to as _broadcast_to,
    expand_dims as _expand_dims,
    reshape as _reshape,
    squeeze as _squeeze,
    transpose as _transpose,
)
from stopgrad.ops.structural.sources import identity
from stopgrad.ops.xp.support import as_tuple, check_copy, flat, standard

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "take",
    "take_along_axis",
    "tile",
    "unstack",
]


@standard
def broadcast_shapes(*shapes: ShapeLike) -> Shape:
    """The shape to which several shapes broadcast.

    Examples:
        >>> sg.xp.broadcast_shapes((3, 1), (4,))
        (3, 4)
    """
    return d.broadcast_shapes(*[d.shape_of(shape) for shape in shapes])


@standard
def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """Arrays broadcast to one shape.

    Examples:
        >>> a, b = sg.xp.broadcast_arrays(np.zeros((2, 1)), np.zeros(3))
        >>> a.shape, b.shape
        ((2, 3), (2, 3))
    """
    shape = d.broadcast_shapes(*[d.type_of(x).shape for x in arrays])
    return tuple([_broadcast_to(x, shape) for x in arrays])


@standard
def broadcast_to(x: ArrayLike, /, shape: ShapeLike) -> Tensor:
    """*x* broadcast to a shape: :func:`stopgrad.broadcast_to`.

    Examples:
        >>> sg.xp.broadcast_to(np.array([1.0]), (2,))
        array([1., 1.])
    """
    return _broadcast_to(x, shape)


@standard
def concat(arrays: Sequence[ArrayLike], /, axis: int | None = 0) -> Tensor:
    """Arrays joined along an axis; with ``axis=None``, flattened and joined.

    Examples:
        >>> sg.xp.concat([np.zeros((1, 1)), np.ones((1, 1))], axis=None)
        array([0., 1.])
    """
    parts = d.as_list(arrays)
    return _concat([flat(x) for x in parts], 0) if axis is None else _concat(parts, axis)


@standard
def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Tensor:
    """The array with new axes of size 1: :func:`stopgrad.expand_dims`.

    Examples:
        >>> sg.xp.expand_dims(np.zeros(3), (0, -1)).shape
        (1, 3, 1)
    """
    return _expand_dims(x, axis)


@standard
def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order: :func:`stopgrad.transpose`.

    Examples:
        >>> sg.xp.permute_dims(np.zeros((2, 3)), (1, 0)).shape
        (3, 2)
    """
    return _transpose(x, axes)


@standard
def reshape(x: ArrayLike, /, shape: ShapeLike, copy: bool | None = None) -> Tensor:
    """The elements in another shape: :func:`stopgrad.reshape`; -1 stands for the size that remains.

    Examples:
        >>> sg.xp.reshape(np.arange(4.0), (2, -1))
        array([[0., 1.],
               [2., 3.]])
    """
    check_copy(copy)
    y = _reshape(x, shape)
    return identity(y) if copy and isinstance(y, Output) else np.array(y) if copy else y


@standard
def roll(x: ArrayLike, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """The elements shifted cyclically along axes; with ``axis=None``, those of the flattened array.

    Examples:
        >>> sg.xp.roll(np.array([1.0, 2.0, 3.0]), 1)
        array([3., 1., 2.])
    """
    return _roll(x, shift, axis)


@standard
def squeeze(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """The array without axes of size 1: :func:`stopgrad.squeeze`.

    Examples:
        >>> sg.xp.squeeze(np.zeros((1, 3)), 0).shape
        (3,)
    """
    return _squeeze(x, axis)


@standard
def stack(arrays: Sequence[ArrayLike], /, axis: int = 0) -> Tensor:
    """Arrays of one shape joined along a new axis: :func:`stopgrad.stack`.

    Examples:
        >>> sg.xp.stack([np.zeros(2), np.ones(2)])
        array([[0., 0.],
               [1., 1.]])
    """
    return _stack(d.as_list(arrays), axis)


@standard
def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Tensor:
    """The array repeated along its axes; missing axes are added in front.

    Examples:
        >>> sg.xp.tile(np.array([1.0, 2.0]), (2, 2))
        array([[1., 2., 1., 2.],
               [1., 2., 1., 2.]])
    """
    shape = d.type_of(x).shape
    times = as_tuple(repetitions)
    missing = len(times) - len(shape)
    if missing > 0:
        x = _reshape(x, (1,) * missing + shape)
    return _tile(x, (1,) * -missing + times)


@standard
def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of an array along an axis of known size, as a tuple.

    Examples:
        >>> sg.xp.unstack(np.array([1.0, 2.0]))
        (array(1.), array(2.))
    """
    return tuple(_unstack(x, axis=axis))


@standard
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int = -1) -> Tensor:
    """Elements along an axis, at positions of their own for each row: :func:`stopgrad.take_along_axis`.

    Examples:
        >>> sg.xp.take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1], [0]]))
        array([[2.],
               [3.]])
    """
    return _take_along_axis(x, indices, axis)
