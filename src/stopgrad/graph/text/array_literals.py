"""The arrays of constants in the text of a graph: small ones are written into the line, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from stopgrad.base.errors import GraphError
from stopgrad.base.types import DType, TensorType, dtype_of
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.text.grammar import spell_number

INLINE = 16
"""The most elements that a line may hold; larger arrays are in the file."""


def spell_array(array: NumpyArray) -> str:
    """The text between the brackets of ``array(...)``.

    It has numbers if they read back with the same bits; else bytes (for unusual NaNs).
    """
    dtype = dtype_of(array.dtype)
    numbers = array.astype(np.float32) if dtype.name == "bfloat16" else array
    if dtype.is_differentiable and not np.isfinite(numbers).all():
        usual = _array_of(numbers.ravel().tolist(), dtype)
        if usual.tobytes() != array.tobytes():
            return f"hex('{little_endian(array).tobytes().hex()}')"
    return _spell_list(numbers.tolist())


def little_endian(array: NumpyArray) -> NumpyArray:
    """The array with little-endian bytes, as in files."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _spell_list(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_spell_list, value))}]"  # The recursion is as deep as the array has axes.
    return spell_number(value)


def read_array(value: Any, type: TensorType) -> NumpyArray:
    """The array of this type that *value* spells."""
    if type.symbolic:
        raise GraphError("a constant has no unknown sizes")
    shape = [int(size) for size in type.shape]
    if isinstance(value, bytes):
        return _array_of_bytes(value, type, shape)
    items = [value]
    for size in shape:
        if not all(isinstance(item, list) and len(item) == size for item in items):
            raise GraphError(f"the numbers have another shape than {type!r}")
        items = [number for item in items for number in item]
    for number in items:
        _check_number(number, type.dtype)
    return _array_of(items, type.dtype).reshape(shape)


def _array_of(numbers: list[Any], dtype: DType) -> NumpyArray:
    with np.errstate(all="ignore"):
        return np.array(numbers, dtype.numpy)


def _array_of_bytes(value: bytes, type: TensorType, shape: list[int]) -> NumpyArray:
    raw = np.frombuffer(value, np.uint8)
    count = 1
    for size in shape:
        count *= size
    if len(value) != count * type.dtype.itemsize:
        raise GraphError(f"{len(value)} bytes are not those of {type!r}")
    if type.dtype.is_bool and (raw > 1).any():
        raise GraphError("the bytes of booleans are 0 and 1")
    stored = raw.view(type.dtype.numpy.newbyteorder("<"))
    return stored.astype(type.dtype.numpy).reshape(shape)


def _check_number(number: Any, dtype: DType) -> None:
    kind = type(number)
    if dtype.is_bool:
        fits = kind is bool
    elif dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        fits = kind is int and limits.min <= number <= limits.max
    elif kind is int:
        fits = abs(number) <= 2**53  # Floats hold these integers exactly.
    else:
        fits = kind is float or (dtype.is_complex and kind is complex)
    if not fits:
        raise GraphError(f"{repr(number)[:40]} is no {dtype}")
