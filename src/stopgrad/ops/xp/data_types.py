"""Element types, their limits and promotion, and information about the namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from stopgrad.base.types import (
    bool_ as bool,
    complex64 as complex64,
    complex128 as complex128,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    ArgumentError,
    ArrayLike,
    DType,
    DTypeError,
    DTypeLike,
    Operation,
    Output,
    Promotion,
    Tensor,
)
from stopgrad.ops.elementwise.convert import cast
from stopgrad.ops.structural.sources import identity
from stopgrad.ops.xp.support import CPU, check_device, standard

__all__ = [
    "__array_namespace_info__",
    "astype",
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


@standard
def astype(x: ArrayLike, dtype: DTypeLike, /, copy: object = True, device: str | None = None) -> Tensor:
    """*x* in another dtype: :func:`stopgrad.cast`.

    Args:
        x: any tensor.
        dtype: the dtype of the result.
        copy: whether to copy an array that has the dtype already.
        device: None or "cpu".

    Returns:
        The same elements in that dtype.

    Examples:
        >>> sg.xp.astype(np.array([1.5, -1.5]), sg.int32)
        array([ 1, -1], dtype=int32)
    """
    check_device(device)
    target, again = d.dtype_of(dtype), d.flag(copy, "copy")
    if d.type_of(x).dtype is not target:
        return cast(x, target)
    return np.array(x) if again and isinstance(x, np.ndarray) else identity(x) if again else x


def _dtype(x: Any) -> DType:
    """The dtype of an array, or the dtype itself."""
    if isinstance(x, (Output, Operation, np.ndarray, np.generic)):
        return d.type_of(x).dtype
    return d.dtype_of(x)


@standard
def can_cast(from_: ArrayLike | DTypeLike, to: DTypeLike, /) -> Any:
    """Whether a dtype, or an array's dtype, is promoted to another without loss.

    Examples:
        >>> sg.xp.can_cast(sg.int32, sg.float64), sg.xp.can_cast(sg.float64, sg.float32)
        (True, False)
    """
    return result_type(_dtype(from_), d.dtype_of(to)) is d.dtype_of(to)


class FInfo(NamedTuple):
    """The limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IInfo(NamedTuple):
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


@standard
def finfo(type: ArrayLike | DTypeLike, /) -> FInfo:
    """The limits of a floating-point dtype, or of the parts of a complex one.

    Examples:
        >>> sg.xp.finfo(sg.float32).bits
        32
    """
    dtype = _dtype(type).real
    if not dtype.is_floating:
        raise DTypeError(f"finfo is about floating-point dtypes, not {dtype}; sg.xp.iinfo about integers")
    limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    eps, largest, least, normal = map(float, (limits.eps, limits.max, limits.min, limits.smallest_normal))
    return FInfo(dtype.itemsize * 8, eps, largest, least, normal, dtype)


@standard
def iinfo(type: ArrayLike | DTypeLike, /) -> IInfo:
    """The limits of an integer dtype.

    Examples:
        >>> sg.xp.iinfo(sg.int8).max
        127
    """
    dtype = _dtype(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo is about integers, not {dtype}; sg.xp.finfo about floating-point dtypes")
    limits = np.iinfo(dtype.numpy)
    return IInfo(limits.bits, int(limits.max), int(limits.min), dtype)


_KINDS: dict[str, Callable[[DType], Any]] = {
    "bool": lambda dtype: dtype.is_bool,
    "signed integer": lambda dtype: dtype.kind == "i",
    "unsigned integer": lambda dtype: dtype.kind == "u",
    "integral": lambda dtype: dtype.is_integer,
    "real floating": lambda dtype: dtype.is_floating,
    "complex floating": lambda dtype: dtype.is_complex,
    "numeric": lambda dtype: not dtype.is_bool,
}


@standard
def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> Any:
    """Whether a dtype equals another, or is of a kind, or of one of several.

    Args:
        dtype: the dtype to test.
        kind: a dtype; "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex
            floating" or "numeric"; or a tuple of these.

    Returns:
        True or False.

    Examples:
        >>> sg.xp.isdtype(sg.float32, "real floating"), sg.xp.isdtype(sg.float32, (sg.int8, "bool"))
        (True, False)
    """
    checked = d.dtype_of(dtype)
    return any([_is_of(checked, single) for single in (kind if isinstance(kind, tuple) else (kind,))])  # noqa: C419


def _is_of(dtype: DType, kind: DTypeLike) -> Any:
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind](dtype)
    try:
        return d.dtype_of(kind) is dtype
    except DTypeError:
        kinds = ", ".join(map(repr, _KINDS))
        raise ArgumentError(f"a kind is a dtype, one of {kinds}, or a tuple of these, not {kind!r}") from None


@standard
def result_type(*arrays_and_dtypes: ArrayLike | DTypeLike) -> DType:
    """The common dtype of arrays, numbers and dtypes.

    Examples:
        >>> sg.xp.result_type(np.zeros(2, np.int8), sg.uint8, 1)
        int16
    """
    if not arrays_and_dtypes:
        raise ArgumentError("at least one array or dtype is needed")
    weak = [x for x in arrays_and_dtypes if d.is_python(x)]
    strong = [_dtype(x) for x in arrays_and_dtypes if not d.is_python(x)]
    return Promotion(d.is_any).common(strong, [d.python_dtype(x) or int64 for x in weak])


# ------------------------------------------------------------------------------------------- inspection


class Info:
    """The namespace's information about itself."""

    @standard
    def capabilities(self) -> dict[str, Any]:
        """Its capabilities: masks select elements of arrays, but not of outputs, whose shapes are fixed."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    @standard
    def default_device(self) -> str:
        """The device of new arrays."""
        return CPU

    @standard
    def devices(self) -> tuple[str, ...]:
        """All devices."""
        return (CPU,)

    @standard
    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of new arrays."""
        check_device(device)
        return {
            "real floating": float32,
            "complex floating": complex64,
            "integral": int32,
            "indexing": int64,
        }

    @standard
    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's dtypes by name; with *kind* only those of that kind or kinds."""
        check_device(device)
        by_name = {name: d.DTYPES[name] for name in __all__ if name in d.DTYPES}
        return by_name if kind is None else {n: d for n, d in by_name.items() if isdtype(d, kind)}


@standard
def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """The namespace's information about itself.

    Examples:
        >>> sg.xp.__array_namespace_info__().default_dtypes()["real floating"]
        float32
    """
    return _INFO


_INFO = Info()
