"""Changes of shape: reshape, transpose, broadcast, and the sum that undoes a broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArrayLike,
    Axes,
    Dim,
    DTypeError,
    NumpyArray,
    Op,
    Operation,
    Output,
    Permutation,
    Shape,
    ShapeError,
    ShapeLike,
    Size,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.convert import conj

__all__ = [
    "broadcast_to",
    "expand_dims",
    "reduce_sum",
    "reshape",
    "squeeze",
    "transpose",
]


class Reshape(Op):
    """The same elements, in row-major order, in another shape.

    Args:
        x (``tensor``): any tensor.
        shape: the new sizes; the function computes one that is given as -1.

    Returns:
        The tensor in that shape.

    Constraints:
        (C1) The product of the sizes is the number of x's elements, and at most one size is given as -1.

    Examples:
        >>> sg.reshape(np.arange(4.0), [2, -1])
        array([[0., 1.],
               [2., 3.]])
    """

    @staticmethod
    def infer(x: TensorType, *, shape: Shape) -> TensorType:
        if not d.same_size(d.product(x.shape), d.product(shape)):
            raise ShapeError(
                f"(C1) {x!r} has {x.size} elements, the shape {d.show_shape(shape)} has {d.product(shape)}"
            )
        return d.tensor_type(x.dtype, shape)

    gradient: d.Gradient = {"x": lambda g, op: reshape(g, op.x.shape)}
    batch = d.ALONG
    moves = ("x",)
    views = True
    remade = True
    folded = True
    keeps_sign = True
    magnitudes = d.Magnitudes.SAME
    lower: d.Lowering = lambda xp, x, shape: xp.reshape(x, shape)
    samples: d.Samples = [
        d.sample(d.floats(2, 3), shape=(3, 2)),
        d.sample(d.floats(1, 1), shape=()),
        d.sample(d.floats(0, 2), shape=(4, 0)),
    ]


@d.builds(Reshape, by_type=True)
def reshape(tensor: ArrayLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    alone = isinstance(shape, str) or not hasattr(shape, "__iter__") or d.is_whole(shape)
    sizes: Any = [shape] if alone else shape
    given_sizes = list(sizes)
    if not _PLAIN.issuperset(map(type, given_sizes)):
        given_sizes = [
            s if type(s) is Dim else d.whole(s) if d.is_whole(s) else d.shape_of([s])[0] for s in given_sizes
        ]
    with d.about(Reshape, tensor):
        if any(type(s) is int and s < -1 for s in given_sizes) or given_sizes.count(-1) > 1:
            raise ShapeError(
                f"(C1) the shape {d.show_shape(given_sizes)} may hold -1 once and no other negative size"
            )
        if -1 in given_sizes:
            given_sizes[given_sizes.index(-1)] = _missing_size(d.type_of(tensor), given_sizes)
    return d.apply(Reshape, (tensor,), (d.shape_of(given_sizes),), name)


_PLAIN = {int, Dim}


def _missing_size(x: TensorType, given_sizes: list[Any]) -> Size:
    """The size that is given as -1."""
    total, rest = d.product(x.shape), d.product(d.shape_of([s for s in given_sizes if s != -1]))
    missing = d.exact_quotient(total, rest)
    if missing is None and isinstance(total, int) and isinstance(rest, int):
        raise ShapeError(f"(C1) {total} elements do not fit the shape {d.show_shape(given_sizes)}")
    return missing if missing is not None else total // rest


class Transpose(Op):
    """The axes in another order.

    Args:
        x (``a``): any tensor.
        perm: for each axis of the result, the axis of x that it is; by default the function reverses the
            order. With ``conjugate=True`` it takes the complex conjugate as well.

    Returns:
        The tensor with its axes permuted.

    Constraints:
        (C1) perm names each axis of x once.

    Examples:
        >>> sg.transpose(np.array([[1.0, 2.0, 3.0]])).shape
        (3, 1)
    """

    @staticmethod
    def infer(x: TensorType, *, perm: Permutation) -> TensorType:
        if sorted(perm) != list(range(x.ndim)):
            raise ShapeError(f"(C1) {perm} is no order of the {x.ndim} axes of {x!r}")
        return d.tensor_type(x.dtype, tuple(x.shape[p] for p in perm))

    gradient: d.Gradient = {"x": lambda g, op: transpose(g, tuple(np.argsort(op.perm).tolist()))}
    batch = d.ALONG
    moves = ("x",)
    remade = True
    magnitudes = d.Magnitudes.SAME
    lower: d.Lowering = lambda xp, x, perm: xp.transpose(x, perm)
    samples: d.Samples = [
        d.sample(d.floats(2, 3, 4), perm=(2, 0, 1)),
        d.sample(d.floats("n", 2), perm=(1, 0)),
    ]


@d.builds(Transpose, by_type=True)
def transpose(
    a: ArrayLike, perm: Sequence[int] | None = None, conjugate: bool = False, name: str | None = None
) -> Tensor:
    if d.flag(conjugate, "conjugate"):
        a = conj(a)
    ndim = d.type_of(a).ndim
    order = (
        tuple(range(ndim))[::-1]
        if perm is None
        else tuple(p + ndim if -ndim <= p < 0 else p for p in map(d.whole, perm))
    )
    return d.apply(Transpose, (a,), (order,), name)


class BroadcastTo(Op):
    """A tensor repeated along new axes and along axes of size 1.

    Args:
        x (``input``): any tensor.
        shape: the new shape.

    Returns:
        The tensor in that shape.

    Constraints:
        (C1) x's shape broadcasts to the new shape.

    Examples:
        >>> sg.broadcast_to(np.array([1.0, 2.0]), [2, 2])
        array([[1., 2.],
               [1., 2.]])
    """

    @staticmethod
    def infer(x: TensorType, *, shape: Shape) -> TensorType:
        if x.ndim > len(shape) or not all(
            (isinstance(a, int) and a == 1) or d.same_size(a, b)
            for a, b in zip(x.shape[::-1], shape[::-1], strict=False)
        ):
            raise ShapeError(f"(C1) {x!r} does not broadcast to {d.show_shape(shape)}")
        return d.tensor_type(x.dtype, shape)

    gradient: d.Gradient = {"x": lambda g, op: g}
    batch = d.BROADCAST
    moves = ("x",)
    views = True
    remade = True
    folded = True
    keeps_sign = True
    magnitudes = d.Magnitudes.SAME
    lower: d.Lowering = lambda xp, x, shape: xp.broadcast_to(x, shape)
    samples: d.Samples = [
        d.sample(d.floats(3), shape=(2, 3)),
        d.sample(d.floats(2, 1), shape=(2, 3)),
        d.sample(d.floats(), shape=(2,)),
        d.sample(d.floats(1), shape=(0,)),
    ]


@d.builds(BroadcastTo, by_type=True)
def broadcast_to(input: ArrayLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    return d.apply(BroadcastTo, (input,), (d.shape_of(shape),), name)


@d.guarded("expand_dims", by_type=True)
def expand_dims(input: ArrayLike, axis: int | Sequence[int], name: str | None = None) -> Tensor:
    """A tensor with axes of size 1 inserted.

    Args:
        input: any tensor.
        axis: the positions of the new axes in the result.

    Returns:
        The tensor in its new shape.

    Constraints:
        (C1) The axes exist in the result, and none is named twice.

    Examples:
        >>> sg.expand_dims(np.array([1.0, 2.0]), 0).shape
        (1, 2)
    """
    shape = d.type_of(input).shape
    count = len(axis) if isinstance(axis, Sequence) else 1
    axes = d.normal_axes(axis, len(shape) + count, "C1")
    sizes = iter(shape)
    return reshape(input, tuple(1 if i in axes else next(sizes) for i in range(len(shape) + count)), name)


@d.guarded("squeeze", by_type=True)
def squeeze(input: ArrayLike, axis: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """A tensor without axes of size 1.

    Args:
        input: any tensor.
        axis: the axes to leave out; by default all whose size is known to be 1. An empty list means none, as
            in NumPy; in TensorFlow it means all.

    Returns:
        The tensor in its new shape.

    Constraints:
        (C1) The axes exist in input, none is named twice, and each has size 1.

    Examples:
        >>> sg.squeeze(np.ones((1, 2, 1))).shape
        (2,)
    """
    kind = d.type_of(input)
    axes = (
        tuple(i for i, s in enumerate(kind.shape) if s == 1)
        if axis is None
        else d.normal_axes(axis, kind.ndim, "C1")
    )
    with d.about(Reshape, input):
        if any(not d.same_size(kind.shape[a], 1) for a in axes):
            raise ShapeError(
                f"(C1) only axes of size 1 can be squeezed away, and of {kind!r} axes {d.show_shape(axes)} "
                "were asked"
            )
    return reshape(input, tuple(s for i, s in enumerate(kind.shape) if i not in axes), name)


class Sum(Op):
    """Sum over axes.

    Args:
        x (``input_tensor``): numbers.
        axis: the axes to sum over; by default the function takes all.
        keepdims: whether the axes stay, with size 1.

    Returns:
        The sum; 0 over no elements. float16 and bfloat16 are added in float32, and the sum is rounded, as
        everywhere where numbers are added up (docs/numerics.md).

    Constraints:
        (C1) x holds numbers.
        (C2) The axes exist in x, and none is named twice.

    Examples:
        >>> sg.reduce_sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        array([4., 6.])
    """

    @staticmethod
    def infer(x: TensorType, *, axis: Axes, keepdims: bool) -> TensorType:
        if x.dtype.is_bool:
            raise DTypeError(f"(C1) takes numbers, not {x!r}; convert with sg.cast")
        return reduced(x, axis, keepdims)

    gradient: d.Gradient = {"x": lambda g, op: spread(g, op)}
    batch = d.ALONG
    rounds_once = True
    keeps_sign = True
    magnitudes = d.Magnitudes.SAME
    lower: d.Lowering = lambda xp, x, axis, keepdims: xp.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    samples: d.Samples = [
        d.sample(d.floats(2, 3), axis=(0,), keepdims=False),
        d.sample(d.floats("n", 2, 3), axis=(0, 2), keepdims=True),
        d.sample(d.floats(0, 2), axis=(0, 1), keepdims=False),
        d.sample(d.ints(3), axis=(0,), keepdims=False),
    ]


@d.builds(Sum, by_type=True)
def reduce_sum(
    input_tensor: ArrayLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    axes = d.normal_axes(axis, d.type_of(input_tensor).ndim)
    return d.apply(Sum, (input_tensor,), (axes, d.flag(keepdims)), name)


def reduced(x: TensorType, axis: tuple[int, ...], keepdims: bool) -> TensorType:
    """The type of *x* reduced over axes."""
    return d.tensor_type(
        x.dtype, tuple(1 if i in axis else s for i, s in enumerate(x.shape) if keepdims or i not in axis)
    )


def spread(g: Output, op: Operation) -> Tensor:
    """A tensor of the type of a reduction's result, repeated along the axes that were reduced."""
    g = unreduced(g, op)
    return g if g.type.shape == op.x.shape else broadcast_to(g, op.x.shape)


def unreduced(g: Output, op: Operation) -> Tensor:
    """A tensor of the type of a reduction's result, reshaped to broadcast with the reduction's operand."""
    if op.keepdims or op.x.ndim == len(op.axis):
        return g
    return reshape(g, tuple(1 if i in op.axis else s for i, s in enumerate(op.x.shape)))


def sum_axes(x: ArrayLike, axis: tuple[int, ...]) -> Tensor:
    """The sum over these axes, without them."""
    return d.apply(Sum, (x,), (axis, False))


def sum_to(dx: Output, x: TensorType) -> Output:
    """A cotangent in the shape of its operand: summed over the axes along which the operand was broadcast."""
    extra = dx.type.ndim - x.ndim
    padded = (1,) * extra + x.shape
    axes = tuple(
        i
        for i, (have, want) in enumerate(zip(dx.type.shape, padded, strict=True))
        if i < extra or (want == 1 and have != 1)
    )
    fitted: Output = d.emit(Sum, (dx,), (axes, extra == 0)).outputs[0] if axes else dx
    if extra not in (0, len(axes)):
        fitted = reshape(fitted, x.shape)
    # Sizes that were only assumed to be equal: the gradient keeps its operand's type, and a run checks them.
    return fitted if fitted.type.shape == x.shape else broadcast_to(fitted, x.shape)


def beside(setting: Output | NumpyArray, x: Output | NumpyArray) -> Tensor:
    """A scalar, or one value for each index of x's leading axes, in a shape that broadcasts with x."""
    if not setting.ndim:
        return setting
    return reshape(setting, (*setting.shape, *(1,) * (x.ndim - setting.ndim)))
