"""Puts weights into an inference model, given as bytes, and reads only the fields that change.

A model file is a message of Protocol Buffers: fields, each with a number and a kind of value. Only the fields
that hold the graph are taken apart; all others are copied unchanged.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from stopgrad_trainer.needed import error

Array = np.ndarray[Any, Any]

GRAPH = 7
INITIALIZER, _INPUT = 5, 11
_INPUT_NAME = 1
DIMS, DATA_TYPE, TENSOR_NAME, RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_KEY, _VALUE = 1, 2

_CODES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}
"""The numbers of ``TensorProto.DataType``."""

LARGEST = 2**31 - 1
"""The most bytes that a message may have."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: the field's number.
        value: an integer, or the bytes.
        whole: the encoded field.
    """

    number: int
    value: int | memoryview
    whole: memoryview

    @property
    def text(self) -> str:
        """The value as a string."""
        return "" if isinstance(self.value, int) else bytes(self.value).decode(errors="replace")


def with_weights(model: bytes, weights: Mapping[str, Array], folder: Path) -> bytes:
    """A model in which inputs of these names are replaced by stored weights.

    Args:
        model: the bytes of a file.
        weights: arrays by the names of inputs.
        folder: the folder of the model's external data, which is put into the result.

    Raises:
        FileError: the bytes are no model, or the result is larger than a file may be.
    """
    parts: list[bytes | memoryview] = []
    for field in fields(memoryview(model)):
        if field.number == GRAPH and isinstance(field.value, memoryview):
            parts.append(message(GRAPH, _graph(field.value, weights, folder)))
        else:
            parts.append(field.whole)
    result = b"".join(parts)
    if len(result) > LARGEST:
        raise error("FileError", f"the model has {len(result)} bytes, and a file of ONNX holds {LARGEST}")
    return result


def _graph(graph: memoryview, weights: Mapping[str, Array], folder: Path) -> bytes:
    parts: list[bytes | memoryview] = []
    for field in fields(graph):
        if field.number == _INPUT and _named(field, _INPUT_NAME) in weights:
            continue
        if field.number == INITIALIZER and isinstance(field.value, memoryview):
            parts.append(message(INITIALIZER, _with_data(field.value, folder)))
        else:
            parts.append(field.whole)
    parts += [message(INITIALIZER, _tensor(name, array)) for name, array in weights.items()]
    return b"".join(parts)


def _with_data(tensor: memoryview, folder: Path) -> bytes | memoryview:
    """A tensor with its data in it."""
    own_fields = list(fields(tensor))
    if not any(field.number == _LOCATION and field.value == 1 for field in own_fields):
        return tensor
    external = {}
    for field in own_fields:
        if field.number == _EXTERNAL and isinstance(field.value, memoryview):
            entry = {item.number: item.text for item in fields(field.value)}
            external[entry.get(_KEY, "")] = entry.get(_VALUE, "")
    data = _stored(
        folder, external.get("location", ""), external.get("offset") or "0", external.get("length", "")
    )
    others = [field.whole for field in own_fields if field.number not in (_EXTERNAL, _LOCATION)]
    return b"".join([*others, message(RAW, data)])


def _stored(folder: Path, name: str, offset: str, length: str) -> bytes:
    """Data beside a model, from a plain file of its folder.

    Raises:
        FileError: it lies elsewhere, or there is not so much of it.
    """
    if not name or Path(name).name != name:
        raise error("FileError", f"the data of a weight lies in {name!r:.80}, which is no file of the folder")
    if not all(_NUMBER.fullmatch(number) for number in (offset, length or "0")):
        raise error(
            "FileError", f"the data of a weight lies at {offset!r:.40}, {length!r:.40} bytes of {name}"
        )
    with open_plain(folder / name) as file:
        size = os.fstat(file.fileno()).st_size
        start = int(offset)
        count = int(length) if length else size - start
        if not 0 <= start <= start + count <= size:
            raise error("FileError", f"{name} has {size} bytes, and a weight takes {count} from {start} on")
        file.seek(start)
        return file.read(count)


_NUMBER = re.compile(r"[0-9]{1,19}")


def open_plain(path: Path) -> BinaryIO:
    """A file of a training folder, open for reading: neither a link, nor a pipe, on which one would wait.

    Raises:
        OSError: there is none.
        FileError: it is something else.
    """
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    if not os.path.islink(path):
        file = os.open(path, flags)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return open(file, "rb")
        os.close(file)
    raise error("FileError", f"{path} is no plain file")


def _named(field: Field, number: int) -> str:
    if isinstance(field.value, int):
        return ""
    return next((item.text for item in fields(field.value) if item.number == number), "")


def _tensor(name: str, array: Array) -> bytes:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    dims = b"".join(_varint(DIMS << 3) + _varint(size) for size in array.shape)
    kind = _varint(DATA_TYPE << 3) + _varint(_CODES[array.dtype.name])
    return dims + kind + message(TENSOR_NAME, name.encode()) + message(RAW, little.tobytes())


# ----------------------------------------------------------------------------------- protocol buffers


def fields(whole: memoryview) -> Iterator[Field]:
    """The fields of a message, in order.

    Raises:
        FileError: it is damaged.
    """
    position, end = 0, len(whole)
    while position < end:
        start = position
        tag, position = _read_varint(whole, position)
        value: int | memoryview
        kind = tag & 7
        if kind == 0:
            value, position = _read_varint(whole, position)
        elif kind == 2:
            length, position = _read_varint(whole, position)
            value, position = whole[position : position + length], position + length
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, position = whole[position : position + length], position + length
        else:
            raise error("FileError", f"the model is damaged: a field of kind {kind} at byte {start}")
        if position > end:
            raise error("FileError", "the model is truncated")
        yield Field(tag >> 3, value, whole[start:position])


def _read_varint(whole: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(whole) or shift > 63:
            raise error("FileError", "the model is truncated or damaged")
        byte = whole[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def message(number: int, content: bytes | memoryview) -> bytes:
    return b"".join([_varint(number << 3 | 2), _varint(len(content)), content])
