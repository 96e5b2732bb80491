"""Shape rules shared by many operations, and the helpers with which the others are written.

A rule takes types and returns types; its messages carry the number of the constraint, (C1), (C2), ..., as the
operation's documentation lists it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.errors import DTypeError, ShapeError
from stopgrad.operands import show_shape
from stopgrad.types import DType, TensorType, bool_, same_size, tensor_type

Infer = Callable[..., Any]


def check_dtype(
    type: TensorType, allowed: Callable[[DType], bool], what: str, constraint: str = "C1"
) -> None:
    """Refuse a dtype that is not *allowed*."""
    if not allowed(type.dtype):
        raise DTypeError(f"({constraint}) takes {what}, not {type!r}; convert with sg.cast")


def is_number(d: DType) -> bool:
    return not d.is_bool


def is_real(d: DType) -> bool:
    return not d.is_bool and not d.is_complex


def is_inexact(d: DType) -> bool:
    return d.is_differentiable


def is_floating(d: DType) -> bool:
    return d.is_floating


def is_integer(d: DType) -> bool:
    return d.is_integer


def is_boolean(d: DType) -> bool:
    return d.is_bool


def is_integral(d: DType) -> bool:
    return d.is_integer or d.is_bool


def is_any(d: DType) -> bool:
    return True


_DESCRIPTIONS: dict[Callable[[DType], bool], str] = {
    is_number: "numbers",
    is_real: "real numbers",
    is_inexact: "floating-point or complex numbers",
    is_floating: "floating-point numbers",
    is_integer: "integers",
    is_boolean: "booleans",
    is_integral: "integers or booleans",
    is_any: "any dtype",
}


def same(allowed: Callable[[DType], bool] = is_number) -> Infer:
    """One operand; the result has its type. (C1) its dtype is allowed."""

    def infer(x: TensorType) -> TensorType:
        check_dtype(x, allowed, _DESCRIPTIONS[allowed])
        return x

    return infer


def to_bool(allowed: Callable[[DType], bool] = is_any) -> Infer:
    """One operand; the result is boolean, of its shape. (C1) its dtype is allowed."""

    def infer(x: TensorType) -> TensorType:
        check_dtype(x, allowed, _DESCRIPTIONS[allowed])
        return tensor_type(bool_, x.shape)

    return infer


def check_same_dtype(*types: TensorType, constraint: str = "C1") -> DType:
    """Refuse operands of several dtypes."""
    dtype = types[0].dtype
    for other in types[1:]:
        if other.dtype is not dtype:
            raise DTypeError(
                f"({constraint}) operands must have one dtype, not {dtype} and {other.dtype}; convert with sg.cast"
            )
    return dtype


def broadcast(allowed: Callable[[DType], bool] = is_number) -> Infer:
    """Two operands that broadcast. (C1) one dtype, which is allowed. (C2) shapes broadcast."""

    def infer(x: TensorType, y: TensorType) -> TensorType:
        dtype = check_same_dtype(x, y)
        check_dtype(x, allowed, _DESCRIPTIONS[allowed])
        return x if x is y else tensor_type(dtype, broadcast_c2(x.shape, y.shape))

    return infer


def broadcast_to_bool(allowed: Callable[[DType], bool] = is_any) -> Infer:
    """As :func:`broadcast`; the result is boolean."""
    typed = broadcast(allowed)

    def infer(x: TensorType, y: TensorType) -> TensorType:
        return tensor_type(bool_, typed(x, y).shape)

    return infer


def broadcast_shapes(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape that shapes broadcast to. Only a literal 1 broadcasts; sizes not known to differ count as equal."""
    from_right = max(map(len, shapes), default=0)
    result: list[Any] = [1] * from_right
    for shape in shapes:
        offset = from_right - len(shape)
        for i, size in enumerate(shape, offset):
            have = result[i]
            if have is size or (isinstance(size, int) and size == 1):
                continue
            if isinstance(have, int) and have == 1:
                result[i] = size
            elif not same_size(have, size):
                raise ShapeError(
                    f"shapes {' and '.join(show_shape(s) for s in shapes)} do not broadcast: sizes {have} and {size} differ, and neither is 1"
                )
            elif isinstance(size, int):
                result[i] = size
    return tuple(result)


def broadcast_c2(*shapes: Any) -> tuple[Any, ...]:
    try:
        return broadcast_shapes(*shapes)
    except ShapeError as error:
        raise ShapeError(f"(C2) {error.message}") from None


def normal_axis(axis: Any, ndim: int, constraint: str = "C2") -> int:
    """*axis* counted from the front."""
    try:
        index = operator.index(axis)
    except TypeError:
        raise ShapeError(f"({constraint}) {axis!r} is no axis; take an integer") from None
    if not -ndim <= index < ndim:
        raise ShapeError(
            f"({constraint}) axis {index} does not exist in {ndim} dimension{'s' if ndim != 1 else ''}"
        )
    return index % ndim


def normal_axes(axis: Any, ndim: int, constraint: str = "C2") -> tuple[int, ...]:
    """*axis*, one or several or None for all, as a sorted tuple without repeats."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(normal_axis(a, ndim, constraint) for a in (axis if isinstance(axis, Sequence) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"({constraint}) axes {show_shape(axes)} name one twice")
    return tuple(sorted(axes))


def check_rank(type: TensorType, ndim: int, what: str, constraint: str) -> None:
    if type.ndim != ndim:
        raise ShapeError(f"({constraint}) {what} must have {ndim} dimensions, not {type.ndim} ({type!r})")
