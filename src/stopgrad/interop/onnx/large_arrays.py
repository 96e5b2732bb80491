"""Large arrays of a model file, read one by one, so that a model is not in memory twice while it is loaded.

A model file is a message of Protocol Buffers. Its headers are read through a map of the file, and the parser
of Protocol Buffers gets a copy without the numbers of large initializers; these are read when they are asked
for, each into its own array. The map is gone after that: a loaded model does not depend on its file.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from stopgrad.base.errors import FileError
from stopgrad_trainer.exported import (
    DATA_TYPE,
    DIMS,
    GRAPH,
    INITIALIZER,
    RAW,
    TENSOR_NAME,
    Field,
    fields,
    message,
)

LEAST = 1 << 14
"""The bytes of an array from which on it is read by itself."""

_PLAIN = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
"""NumPy's dtypes of the numbers of ``TensorProto.DataType`` that are stored as NumPy has them."""


class Place(NamedTuple):
    """Where in a file an array stands.

    Attributes:
        path: the file.
        offset: its first byte.
        dtype, shape: its type.
    """

    path: str
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self, what: str) -> np.ndarray[Any, Any]:
        """The array, which only the caller has.

        Raises:
            FileError: the file has changed meanwhile.
        """
        array = np.empty(self.shape, self.dtype)
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                there = file.readinto(array.reshape(-1).view(np.uint8).data)
        except OSError as error:
            raise FileError(f"{what} cannot be read: {error}") from error
        if there != array.nbytes:
            raise FileError(f"{what} cannot be read: the file has become shorter")
        return array.astype(self.dtype.newbyteorder("="), copy=False)


def without_arrays(path: str, file: BinaryIO) -> tuple[bytes, dict[str, Place]]:
    """A model without the numbers of its large initializers, and where these stand, by name.

    Raises:
        FileError: it is no model.
        OSError, ValueError: the file cannot be mapped.
    """
    # It is closed with the last view of it, which an error's traceback may hold for a while.
    whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    places: dict[str, Place] = {}
    return b"".join(_lean_model(whole, _Reader(path, _address(whole), places))), places


class _Reader(NamedTuple):
    path: str
    start: int
    places: dict[str, Place]


def _lean_model(model: memoryview, reader: _Reader) -> Iterator[bytes]:
    for field in fields(model):
        if field.number == GRAPH and isinstance(field.value, memoryview):
            yield message(GRAPH, b"".join(_lean_graph(field.value, reader)))
        else:
            yield bytes(field.whole)


def _lean_graph(graph: memoryview, reader: _Reader) -> Iterator[bytes]:
    for field in fields(graph):
        if field.number == INITIALIZER and isinstance(field.value, memoryview) and len(field.value) >= LEAST:
            yield message(INITIALIZER, _lean_tensor(field.value, reader))
        else:
            yield bytes(field.whole)


def _lean_tensor(tensor: memoryview, reader: _Reader) -> bytes:
    """A tensor without its numbers, if these are as NumPy has them."""
    entries = list(fields(tensor))
    raw = [field.value for field in entries if field.number == RAW and isinstance(field.value, memoryview)]
    kinds = [field.value for field in entries if field.number == DATA_TYPE]
    names = [field.text for field in entries if field.number == TENSOR_NAME]
    dims = _dims(entries)
    dtype = np.dtype(_PLAIN.get(kinds[0], "V1") if len(kinds) == 1 and isinstance(kinds[0], int) else "V1")
    is_plain = dtype.kind != "V" and len(raw) == len(names) == 1 and len({*names} - {*reader.places}) == 1
    if not is_plain or any(size < 0 for size in dims) or math.prod(dims) * dtype.itemsize != len(raw[0]):
        return bytes(tensor)
    offset = _address(raw[0]) - reader.start
    reader.places[names[0]] = Place(reader.path, offset, dtype.newbyteorder("<"), tuple(dims))
    return b"".join([bytes(field.whole) for field in entries if field.number != RAW])


def _dims(entries: list[Field]) -> list[int]:
    """The sizes of a tensor, each in a field of its own or several packed into one; −1 for what is none."""
    sizes: list[int] = []
    for field in entries:
        if field.number == DIMS:
            if isinstance(field.value, int):
                sizes.append(field.value if field.value < 2**63 else -1)
            else:
                return [-1]  # Packed, which no exporter does.
    return sizes


def _address(view: memoryview) -> int:
    """Where in memory a view begins."""
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])
