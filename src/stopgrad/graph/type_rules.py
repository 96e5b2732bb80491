"""Rules of inference that many operations share, and the checks of which other rules are made.

A rule takes the types of operands and returns that of the result. Its errors have the number, such as (C1),
of the constraint in the operation's documentation, to which the constraints of rules of this module are added
(:mod:`stopgrad.graph.docstrings`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.coercion import whole
from stopgrad.base.errors import AxisError, DTypeError, ShapeError
from stopgrad.base.promotion import Promotion
from stopgrad.base.types import DType, Shape, TensorType, bool_, same_size, tensor_type
from stopgrad.graph.operands import show_shape

Infer = Callable[..., TensorType]
"""Maps the types of operands, and attributes by name, to the type of the one output."""


def check_dtype(
    type: TensorType, allowed: Callable[[DType], bool], what: str, constraint: str = "C1"
) -> None:
    """Raise for a dtype that is not *allowed*; *what* says which are."""
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


DESCRIPTIONS: dict[Callable[[DType], bool], str] = {
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
    """One operand; the result has its type.

    Constraints:
        (C1) The dtype is allowed.
    """

    def infer(x: TensorType) -> TensorType:
        check_dtype(x, allowed, DESCRIPTIONS[allowed])
        return x

    return _rule(infer, allowed, ONE)


def to_bool(allowed: Callable[[DType], bool] = is_any) -> Infer:
    """One operand; the result is boolean, of its shape.

    Constraints:
        (C1) The dtype is allowed.
    """

    def infer(x: TensorType) -> TensorType:
        check_dtype(x, allowed, DESCRIPTIONS[allowed])
        return tensor_type(bool_, x.shape)

    return _rule(infer, allowed, "Returns:\n    Booleans.\n\n" + ONE)


def check_same_dtype(*types: TensorType, constraint: str = "C1") -> DType:
    """The common dtype of all operands; raises if they differ."""
    dtype = types[0].dtype
    for other in types[1:]:
        if other.dtype is not dtype:
            raise DTypeError(
                f"({constraint}) operands must have one dtype, not {dtype} and {other.dtype}; "
                "convert with sg.cast"
            )
    return dtype


def broadcast(allowed: Callable[[DType], bool] = is_number, *names: str) -> Infer:
    """Two operands, x and y or with other *names*; the result has their broadcast shape.

    Constraints:
        (C1) The operands have one dtype, which is allowed.
        (C2) The shapes broadcast.
    """

    def infer(x: TensorType, y: TensorType) -> TensorType:
        check_dtype(x, allowed, DESCRIPTIONS[allowed])
        check_dtype(y, allowed, DESCRIPTIONS[allowed])
        dtype = check_same_dtype(x, y)
        return x if x is y else tensor_type(dtype, broadcast_c2(x.shape, y.shape))

    return _rule(infer, allowed, TWO, *names)


def broadcast_to_bool(allowed: Callable[[DType], bool] = is_any) -> Infer:
    """Like :func:`broadcast`, with the same constraints; the result is boolean."""
    typed = broadcast(allowed)

    def infer(x: TensorType, y: TensorType) -> TensorType:
        return tensor_type(bool_, typed(x, y).shape)

    return _rule(infer, allowed, "Returns:\n    Booleans, of the broadcast shape.\n\n" + TWO)


ONE = """\
Args:
    {{0}}: {dtypes}.

Constraints:
    (C1) {{0}} {holds}.
"""
"""The document of operations of one operand."""

TWO = """\
Args:
    {{0}}: {dtypes}.
    {{1}}: {too}, of a shape that broadcasts with {{0}}'s.

Constraints:
    (C1) {{0}} and {{1}} {hold}.
    (C2) The shapes of {{0}} and {{1}} broadcast.
"""
"""The document of operations of two operands."""


def _rule(infer: Any, allowed: Callable[[DType], bool], document: str, *names: str) -> Infer:
    """Give a rule its promotion of operands to an allowed dtype, and its document."""
    infer.promotion = Promotion(allowed)
    documented(infer, document, allowed)
    if names:
        signature = inspect.signature(infer)
        renames = zip(signature.parameters.values(), names, strict=True)
        infer.__signature__ = signature.replace(parameters=[p.replace(name=name) for p, name in renames])
    return infer


def documented(infer: Any, document: str, allowed: Callable[[DType], bool]) -> Infer:
    """Fill in the allowed dtypes in a rule's *document*, which docstrings include.

    The document has ``{dtypes}``; ``{too}`` for those of a second operand; and with a verb ``{holds}`` for
    one operand, and ``{hold}`` for several of one dtype.
    """
    dtypes = DESCRIPTIONS[allowed]
    too, holds, hold = dtypes, f"holds {dtypes}", f"hold {dtypes}, of one dtype"
    if "-point" in dtypes:  # As in "x is floating-point".
        dtypes = too = dtypes.removesuffix(" numbers")
        holds, hold = f"is {dtypes}", f"are {dtypes}, of one dtype"
    elif allowed is is_boolean:
        hold = f"hold {dtypes}"
    elif allowed is is_any:
        too, holds, hold = "the same dtype", f"has {dtypes}", "have one dtype"
    infer.document = document.format(dtypes=dtypes, too=too, holds=holds, hold=hold)
    return infer


def broadcast_shapes(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape that shapes broadcast to.

    Only a known size of 1 broadcasts; symbolic sizes that are not known to differ count as equal.
    """
    from_right = max(map(len, shapes), default=0)
    result: list[Any] = [1] * from_right
    for shape in shapes:
        offset = from_right - len(shape)
        for i, size in enumerate(shape, offset):
            known_size = result[i]
            if known_size is size or (isinstance(size, int) and size == 1):
                continue
            if isinstance(known_size, int) and known_size == 1:
                result[i] = size
            elif not same_size(known_size, size):
                shown = " and ".join(map(show_shape, shapes))
                raise ShapeError(
                    f"shapes {shown} do not broadcast: sizes {known_size} and {size} differ, and neither is 1"
                )
            elif isinstance(size, int):
                result[i] = size
    return tuple(result)


def broadcast_c2(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """:func:`broadcast_shapes`, as the constraint (C2)."""
    try:
        return broadcast_shapes(*shapes)
    except ShapeError as error:
        raise ShapeError(f"(C2) {error.message}") from None


def normal_axis(axis: object, ndim: int, constraint: str = "C2") -> int:
    """*axis* counted from the front."""
    try:
        index = whole(axis)
    except TypeError:
        raise ShapeError(f"({constraint}) {axis!r} is no axis; take an integer") from None
    if not -ndim <= index < ndim:
        raise AxisError(
            f"({constraint}) axis {index} does not exist in {ndim} dimension{'s' if ndim != 1 else ''}"
        )
    return index % ndim


def normal_axes(axis: object, ndim: int, constraint: str = "C2") -> tuple[int, ...]:
    """*axis*, which is one, several, or None for all, as a sorted tuple; raises for an axis named twice."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, np.ndarray) and axis.ndim == 1:
        axis = axis.tolist()
    axes = tuple(normal_axis(a, ndim, constraint) for a in (axis if isinstance(axis, Sequence) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"({constraint}) axes {show_shape(axes)} name one twice")
    return tuple(sorted(axes))


def same_shape(a: Shape, b: Shape, besides: int | None = None) -> bool:
    """Whether two shapes may be equal: sizes may be unless known to differ. Axis *besides* may differ."""
    return len(a) == len(b) and all(
        i == besides or same_size(m, n) for i, (m, n) in enumerate(zip(a, b, strict=True))
    )


def check_shape(type: TensorType, expected: Shape, what: str, constraint: str, of: str = "") -> None:
    """Raise unless *what*, an operand of this type, has the expected shape, which is that *of* something."""
    if not same_shape(type.shape, expected):
        whose = f" of {of}" if of else ""
        raise ShapeError(
            f"({constraint}) {what} must have the shape {show_shape(expected)}{whose}, not {type!r}"
        )


def is_for_each(setting: TensorType, x: TensorType) -> bool:
    """Whether a setting is a scalar or, as vmap makes it, has one entry for each example of leading axes."""
    return setting.ndim <= x.ndim and all(map(same_size, setting.shape, x.shape[: setting.ndim]))
