"""Operands that are not outputs: arrays, Python numbers and nested lists, and their tensor types."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from stopgrad.base.errors import ArgumentError, DTypeError, GraphError, ShapeError
from stopgrad.base.promotion import Promotion
from stopgrad.base.types import (
    Dim,
    DType,
    TensorType,
    bool_,
    complex64,
    dtype_of,
    float32,
    int32,
    tensor_type,
)
from stopgrad.graph.graph import Operation, Output, describe

NumpyArray = np.ndarray[Any, Any]
Tensor = Any
"""The result of a public function: an Output or, outside of a graph, a NumPy array."""


def is_tensor(x: object) -> bool:
    """Whether a leaf is an output or an array; numbers, strings and functions are not."""
    return isinstance(x, (Output, Operation, np.ndarray, np.generic)) or (
        hasattr(x, "dtype") and hasattr(x, "__array__") and not str(x.dtype).startswith("key<")
    )  # JAX's typed keys are no arrays of numbers; functions loaded from JAX take them.


def type_of(x: Any) -> TensorType:
    """The tensor type of an output, array or number.

    Examples:
        >>> type_of(np.zeros((2, 3)))
        float64[2, 3]
    """
    if isinstance(x, Output):
        return x.type
    if isinstance(x, np.ndarray):
        return tensor_type(dtype_of(x.dtype), x.shape)
    if isinstance(x, Operation):
        return x.as_output().type
    if isinstance(x, Dim):
        return tensor_type(int32, ())
    if holds(x, Output, Operation, Dim):
        parts = [type_of(v) for v in x]
        strong = [t.dtype for v, t in zip(x, parts, strict=True) if not is_python(v)]
        weak = [t.dtype for v, t in zip(x, parts, strict=True) if is_python(v)]
        return tensor_type(Promotion(lambda _: True).common(strong, weak), (len(x), *parts[0].shape))
    array = as_array(x)
    return tensor_type(dtype_of(array.dtype), array.shape)


def holds(x: object, *kinds: type) -> bool:
    """Whether *x* is a list, perhaps nested, that holds an object of these kinds."""
    return isinstance(x, (list, tuple)) and any(isinstance(v, kinds) or holds(v, *kinds) for v in x)


def as_array(x: object, dtype: DType | None = None) -> NumpyArray:
    """A NumPy array of a number, nested list or array.

    Python numbers are int32, float32 or complex64 as in TensorFlow.
    """
    if dtype is None and not hasattr(x, "dtype"):
        dtype = python_dtype(x)
    if isinstance(x, Dim):
        raise _no_array(x)
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError(
            "a masked array cannot become a tensor: "
            "fill it first, with x.filled(0.0), and keep its mask as a tensor of its own"
        )
    try:
        array = np.asarray(x) if dtype is None else _converted(x, dtype)
    except GraphError:
        raise DTypeError(
            f"{shorten(x)} holds outputs of a graph, where an array is needed; "
            "join them with sg.stack or sg.concat"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        if holds(x, Dim):
            raise _no_array(x) from None
        why = "its parts differ in length" if "inhomogeneous" in str(error) else error
        raise DTypeError(
            f"{shorten(x)} cannot become a tensor{f' of {dtype}' if dtype else ''}: {why}"
        ) from None
    except MemoryError:
        raise DTypeError(f"{shorten(x)} cannot become a tensor: there is not so much memory") from None
    if array.dtype.kind in _NO_NUMBERS:
        raise DTypeError(
            f"{shorten(x)} cannot become a tensor: it holds {_NO_NUMBERS[array.dtype.kind]}, not numbers"
        )
    dtype_of(array.dtype)
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array


def _converted(x: object, dtype: DType) -> NumpyArray:
    """Numbers as an array of a dtype, which may round real numbers, and changes no others.

    Raises:
        ValueError: the dtype cannot hold them.
    """
    if dtype.is_floating and getattr(getattr(x, "dtype", None), "kind", "") != "c":
        return np.asarray(x, dtype.numpy)
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        array = np.asarray(x, dtype.numpy)
    checked = dtype.is_complex or (type(x) is int and dtype is not bool_)  # NumPy looks at single integers.
    if not checked and not np.array_equal(np.asarray(x), array):
        raise ValueError("it cannot hold these numbers; take another dtype, or convert them with sg.cast")
    return array


def _no_array(x: object) -> ShapeError:
    what = "the size" if isinstance(x, Dim) else "a size in"
    return ShapeError(
        f"{what} {shorten(x)} has no value yet, where an array is needed: it is known when a value is fed; "
        "sg.size(x, axis=0) is a tensor with its value"
    )


_NO_NUMBERS = {"O": "Python objects", "U": "text", "S": "bytes", "M": "dates", "m": "durations"}


def as_list(xs: object) -> tuple[Any, ...]:
    """The tensors of a list or another iterable, as a tuple; a single tensor is refused."""
    if isinstance(xs, (Output, Operation, str, np.ndarray)) or not isinstance(xs, Iterable):
        raise ArgumentError(
            "takes a list of tensors, not "
            f"{describe(xs) if isinstance(xs, (Output, Operation)) else shorten(xs)}; write [x, y]"
        )
    return tuple(xs)


def shorten(x: object) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def python_dtype(x: object) -> DType | None:
    """The dtype of Python numbers, also in nested lists; None if NumPy determines the dtype."""
    if isinstance(x, np.generic):
        return None
    if isinstance(x, Dim):
        return int32
    if isinstance(x, bool):
        return bool_
    if isinstance(x, int):
        return int32 if -(2**31) <= x < 2**31 else None
    if isinstance(x, float):
        return float32
    if isinstance(x, complex):
        return complex64
    if isinstance(x, (list, tuple)):
        kinds = [python_dtype(v) for v in x]
        order = [bool_, int32, float32, complex64]
        if not kinds:
            return float32
        if all(k in order for k in kinds):
            return max(cast("list[DType]", kinds), key=order.index)
    return None


def is_python(x: object) -> bool:
    """Whether *x* is a Python number or list, or a size, which takes the dtype of the other operands."""
    if isinstance(x, (bool, int, float, complex, Dim)):
        return not isinstance(x, np.generic)
    return isinstance(x, (list, tuple)) and python_dtype(x) is not None


def fits(x: object, dtype: DType) -> bool:
    """Whether a Python number or list can be converted to a dtype without losing its kind."""
    kind = python_dtype(x) or int32
    if kind.is_bool:
        return dtype.is_bool
    if kind.is_integer:
        return not dtype.is_bool
    return dtype.is_complex if kind.is_complex else dtype.is_differentiable


class Literal:
    """A constant's value as an attribute, compared by content, so that equal constants can be merged."""

    __slots__ = ("_hash", "array")

    array: NumpyArray

    def __init__(self, array: NumpyArray) -> None:
        if array.flags.writeable or not array.flags.owndata:
            array = np.array(array)
        array.flags.writeable = False
        self.array = array
        self._hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.array.dtype, self.array.shape, self.array.tobytes()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal) or hash(self) != hash(other):
            return False
        a, b = self.array, other.array
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    def __repr__(self) -> str:
        return shorten(self.array.tolist())


def show_shape(shape: Sequence[Any]) -> str:
    """A shape as it is printed in messages."""
    return f"[{', '.join(map(str, shape))}]"
