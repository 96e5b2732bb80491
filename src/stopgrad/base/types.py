"""The types of tensors, made of an element type and sizes.

The names of :mod:`stopgrad.base.dtypes` and :mod:`stopgrad.base.sizes` can be imported from here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.dtypes import (
    DTYPES,
    DType,
    DTypeLike,
    bfloat16,
    bool_,
    complex64,
    complex128,
    dtype_of,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from stopgrad.base.errors import ShapeError, StopgradError
from stopgrad.base.interning import Interned
from stopgrad.base.sizes import (
    FRESH,
    Dim,
    Shape,
    Size,
    at_least,
    checking,
    dim,
    exact_quotient,
    length_value,
    named,
    product,
    same_size,
    shown,
    size_value,
    total,
    within_bounds,
)

__all__ = [
    "DTYPES",
    "FRESH",
    "DType",
    "DTypeLike",
    "Dim",
    "Shape",
    "ShapeLike",
    "Size",
    "TensorType",
    "at_least",
    "bfloat16",
    "bind_sizes",
    "bool_",
    "checking",
    "complex64",
    "complex128",
    "dim",
    "dtype_of",
    "exact_quotient",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "length_value",
    "map_sizes",
    "name_of",
    "named",
    "product",
    "same_size",
    "shape_of",
    "size_value",
    "sized",
    "tensor_type",
    "total",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "whole_size",
    "within_bounds",
]


# --------------------------------------------------------------------------------------------- shapes

ShapeLike = int | str | Dim | None | Sequence[int | str | Dim | None]


def shape_of(shape: ShapeLike) -> Shape:
    """A shape from a user's argument: numbers, names of sizes, and ``None`` for a fresh unknown size.

    Examples:
        >>> shape_of(["batch", 3])
        (batch, 3)
    """
    alone = isinstance(shape, str) or not hasattr(shape, "__iter__") or is_whole(shape)
    sizes: Any = (shape,) if alone else shape
    return tuple([dim(s) if s is None or isinstance(s, str) else whole_size(s) for s in sizes])


def whole_size(size: object) -> Size:
    """The size of an axis: exactly a :class:`Dim`, or an ``int`` that an array's axis can have."""
    if isinstance(size, Dim):
        return size
    try:
        number = whole(size)
    except StopgradError as error:
        cure = "take a number, a name, or None for an unknown one"
        if not isinstance(error, TypeError):  # A tensor without a value.
            cure = "take the sizes of a tensor y, known or not, from y.shape"
        raise ShapeError(f"{size!r} is no size; {cure}") from None
    if number < 0:
        raise ShapeError(f"the size {shown(number)} is negative; take None or a name for an unknown size")
    return within_bounds(number)


def bind_sizes(shape: Shape, actual: Sequence[int], binding: dict[str, int]) -> bool:
    """Add the values of named sizes in a fed shape to *binding*. Returns whether the shapes agree so far."""
    if len(shape) != len(actual):
        return False
    for size, number in zip(shape, actual, strict=True):
        if isinstance(size, int):
            if size != number:
                return False
        elif (name := name_of(size)) and binding.setdefault(name, number) != number:
            return False
    return True


def name_of(size: Dim) -> str:
    """The name of a size that is just a name; empty for a computed one."""
    ((monomial, factor), *more) = size.terms
    ((symbol, power), *others) = monomial
    return "" if more or others or factor != 1 or power != 1 else symbol.name


def map_sizes(value: object, function: Callable[[Dim], Any]) -> Any:
    """The attribute *value* with *function* applied to every :class:`Dim` in it."""
    if isinstance(value, Dim):
        return function(value)
    if isinstance(value, tuple):
        return tuple(map_sizes(v, function) for v in value)
    if isinstance(value, slice):
        return slice(map_sizes(value.start, function), map_sizes(value.stop, function), value.step)
    return value


# --------------------------------------------------------------------------------------- tensor types


class TensorType:
    """Element type and shape. Interned: compare with ``is``. Made by :func:`tensor_type`.

    Examples:
        >>> tensor_type(float32, (dim("n"), 3))
        float32[n, 3]
    """

    __slots__ = ("__weakref__", "differentiable", "dtype", "ndim", "shape", "symbolic")

    dtype: DType
    shape: Shape
    ndim: int
    differentiable: bool
    symbolic: bool

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_type, (self.dtype, self.shape)

    @property
    def size(self) -> int | Dim:
        """The number of elements."""
        return product(self.shape)


_TYPES: Interned[TensorType] = Interned()


def tensor_type(dtype: DType, shape: Shape) -> TensorType:
    """The one :class:`TensorType` of this dtype and shape."""
    return _TYPES.get((dtype, shape)) or _interned(dtype, shape)


def sized(type: TensorType, binding: Mapping[str, int]) -> TensorType:
    """A type with numbers for its sizes, given the values of their names."""
    if not type.symbolic:
        return type
    return tensor_type(type.dtype, tuple(length_value(size, binding) for size in type.shape))


def _interned(dtype: DType, shape: Shape) -> TensorType:
    # A size is exactly an int or a Dim, however it was computed: to Python 1 == 1.0 == True.
    shape = tuple([size if type(size) is Dim else whole_size(size) for size in shape])
    new = object.__new__(TensorType)
    new.dtype, new.shape, new.ndim = dtype, shape, len(shape)
    new.differentiable = dtype.is_differentiable
    new.symbolic = any(isinstance(size, Dim) for size in shape)
    return _TYPES.keep((dtype, shape), new)
