"""Element types. Each is a single object that equals NumPy's dtype, and that NumPy accepts as one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from stopgrad.base.errors import DTypeError


class DType:
    """The type of one element.

    Examples:
        >>> float32.name, float32.itemsize, float32.is_floating
        ('float32', 4, True)
        >>> float32 == np.float32, np.zeros(2).dtype == float64, np.zeros(2, dtype=int32).dtype
        (True, True, dtype('int32'))
    """

    __slots__ = (
        "is_bool",
        "is_complex",
        "is_differentiable",
        "is_floating",
        "is_integer",
        "itemsize",
        "kind",
        "name",
        "numpy",
        "real",
    )

    name: str
    numpy: np.dtype[Any]
    real: DType
    kind: str
    itemsize: int
    is_bool: bool
    is_integer: bool
    is_floating: bool
    is_complex: bool
    is_differentiable: bool

    def __init__(self, name: str, numpy: type[Any], kind: str) -> None:
        self.name = name
        self.numpy = np.dtype(numpy)
        self.kind = kind
        self.itemsize = self.numpy.itemsize
        self.is_bool = kind == "b"
        self.is_integer = kind in "iu"
        self.is_floating = kind == "f"
        self.is_complex = kind == "c"
        self.is_differentiable = kind in "fc"
        self.real = self

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype; NumPy reads this attribute where a dtype is expected."""
        return self.numpy

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is DType or not isinstance(other, (np.dtype, type, str)):
            return False
        try:
            return dtype_of(other) is self
        except DTypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.numpy)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_of, (self.name,)


DTYPES: dict[str, DType] = {}


def _define(name: str, numpy: type[Any], kind: str) -> DType:
    return DTYPES.setdefault(name, DType(name, numpy, kind))


float16: DType = _define("float16", np.float16, "f")
bfloat16: DType = _define("bfloat16", ml_dtypes.bfloat16, "f")
float32: DType = _define("float32", np.float32, "f")
float64: DType = _define("float64", np.float64, "f")
complex64: DType = _define("complex64", np.complex64, "c")
complex128: DType = _define("complex128", np.complex128, "c")
int8: DType = _define("int8", np.int8, "i")
int16: DType = _define("int16", np.int16, "i")
int32: DType = _define("int32", np.int32, "i")
int64: DType = _define("int64", np.int64, "i")
uint8: DType = _define("uint8", np.uint8, "u")
uint16: DType = _define("uint16", np.uint16, "u")
uint32: DType = _define("uint32", np.uint32, "u")
uint64: DType = _define("uint64", np.uint64, "u")
bool_: DType = _define("bool", np.bool_, "b")
complex64.real = float32
complex128.real = float64

BY_NUMPY: dict[np.dtype[Any], DType] = {dtype.numpy: dtype for dtype in DTYPES.values()}
"""The dtypes by NumPy's, in the machine's byte order."""
_BY_PYTHON = {bool: bool_, int: int32, float: float32, complex: complex64}

DTypeLike = DType | str | type | np.dtype


def dtype_of(x: DTypeLike | None) -> DType:
    """The :class:`DType` for a name, a NumPy dtype or scalar type, or a Python number type.

    Examples:
        >>> dtype_of("float32") is float32 is dtype_of(np.float32) is dtype_of(float)
        True
    """
    if type(x) is DType:
        return x
    if isinstance(x, np.dtype) and (dtype := BY_NUMPY.get(x)) is not None:  # The usual case.
        return dtype
    if isinstance(x, str) and x in DTYPES:
        return DTYPES[x]
    if x is None:  # For NumPy None means float64.
        raise DTypeError(f"None is no element type; stopgrad has {', '.join(DTYPES)}")
    try:
        return (
            _BY_PYTHON[x]
            if isinstance(x, type) and x in _BY_PYTHON
            else BY_NUMPY[np.dtype(x).newbyteorder("=")]
        )
    except (KeyError, TypeError, ValueError, SyntaxError):
        cure = "; of a tensor of PyTorch's take x.numpy()" if str(x).startswith("torch.") else ""
        raise DTypeError(f"{x!r} is no element type of stopgrad; it has {', '.join(DTYPES)}{cure}") from None
