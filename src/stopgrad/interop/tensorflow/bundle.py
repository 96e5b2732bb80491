"""Reads checkpoints in TensorFlow's TensorBundle format: a sorted index, and files of numbers beside it.

The index is a table in LevelDB's format: blocks of keys, each of which shares its beginning with the one
before, and at the end a block that says where the others are. Only the two kinds of files of one folder are
opened, whose names are fixed; what is a link is refused.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from stopgrad.base.errors import FileError, MissingFileError
from stopgrad.interop.tensorflow.messages import BundleEntryProto, BundleHeaderProto

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
_LARGEST_INDEX = 2**28
"""The most bytes of an index."""
_MASK = 0xA282EAD8
_ROW = 1024
"""The bytes of the rows that are checked side by side."""


class Bundle:
    """A checkpoint.

    Attributes:
        entries: a ``BundleEntryProto`` for each tensor, by its key.
    """

    name: str

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.name = os.path.basename(prefix)
        index = _opened(f"{prefix}.index", _LARGEST_INDEX)
        self.entries: dict[str, Any] = {}
        header = BundleHeaderProto()
        header_seen = False
        for key, value in _items(index, self.name):
            if not key:
                _parse(header, value, self.name)
                header_seen = True
                continue
            entry = BundleEntryProto()
            _parse(entry, value, self.name)
            self.entries[key.decode(errors="replace")] = entry
        if not header_seen or header.endianness not in (0, 1):
            raise FileError(f"the checkpoint {self.name} has no header: it is damaged")
        self._shards = header.num_shards
        self._is_big = header.endianness == 1

    @classmethod
    def of(cls, folder: str) -> Bundle | None:
        """The checkpoint of a SavedModel's folder of variables; None if there is none."""
        prefix = os.path.join(folder, "variables")
        if os.path.islink(folder):
            raise FileError(f"{folder!r} is a link; a SavedModel's files are read from its own folder only")
        return cls(prefix) if os.path.lexists(f"{prefix}.index") else None

    def read(self, key: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A tensor, which only the caller has.

        Raises:
            FileError: there is none of that key, or its numbers are damaged.
        """
        what = f"the tensor {key!r} of the checkpoint {self.name}"
        entry = self.entries.get(key)
        if entry is None:
            raise FileError(f"the checkpoint {self.name} holds no tensor {key!r}")
        if len(entry.slices):
            raise FileError(f"{what} is stored in slices, which are not read; save it again as a whole")
        shape = tuple(int(d.size) for d in entry.shape.dim)
        count = math.prod(shape)
        if any(size < 0 for size in shape) or count * dtype.itemsize != entry.size:
            raise FileError(f"{what} declares the sizes {list(shape)} and stores {entry.size} bytes")
        if not 0 <= entry.shard_id < self._shards or entry.offset < 0:
            raise FileError(f"{what} stands where there is nothing")
        path = f"{self._prefix}.data-{entry.shard_id:05d}-of-{self._shards:05d}"
        content = _opened(path, None, entry.offset, entry.size)
        if len(content) != entry.size:
            raise FileError(f"{what} cannot be read: its file is too short")
        if _masked(crc32c(content)) != entry.crc32c:
            raise FileError(f"{what} is damaged: its checksum is another one")
        numbers = np.frombuffer(
            content, dtype.newbyteorder(">" if self._is_big else "<") if dtype.itemsize > 1 else np.uint8
        )
        numbers = numbers.view(dtype) if dtype.itemsize == 1 and dtype.kind != "b" else numbers
        own = numbers != 0 if dtype.kind == "b" else numbers.astype(dtype.newbyteorder("="))
        return own.reshape(shape)


def _opened(path: str, largest: int | None, start: int = 0, size: int | None = None) -> bytes:
    """The bytes of a plain file, or of a part of it."""
    name = os.path.basename(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise MissingFileError(f"the checkpoint's file {name} is missing") from error
    except OSError as error:
        raise FileError(f"{path!r} cannot be read, or is a link: {error}") from error
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{path!r} is no file")
        if largest is not None and status.st_size > largest:
            raise FileError(f"{path!r} has {status.st_size} bytes; at most {largest} are read")
        if size is None:
            return file.read()
        if start + size > status.st_size:
            return b""
        file.seek(start)
        return file.read(size)


def _parse(message: Any, content: bytes, name: str) -> None:
    try:
        message.ParseFromString(content)
    except Exception as error:  # Of protobuf's, which has no types.
        raise FileError(f"the index of the checkpoint {name} is damaged: {error}") from error


# ------------------------------------------------------------------------------------------------- tables


def _items(table: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table."""
    try:
        if len(table) < _FOOTER or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
            raise FileError(f"{name}.index is no index of a checkpoint, or is truncated")
        footer = table[-_FOOTER:]
        at = _varint(footer, _varint(footer, 0)[1])[1]
        for _, handle in _block(table, *_handle(footer, at), name):
            yield from _block(table, *_handle(handle, 0), name)
    except (IndexError, struct.error) as error:
        raise FileError(f"the index of the checkpoint {name} is damaged") from error


def _handle(content: bytes, at: int) -> tuple[int, int]:
    """Where a block stands: its first byte and its size."""
    start, at = _varint(content, at)
    return start, _varint(content, at)[0]


def _block(table: bytes, start: int, size: int, name: str) -> Iterator[tuple[bytes, bytes]]:
    end = start + size
    if end + _TRAILER > len(table):
        raise FileError(f"the index of the checkpoint {name} is truncated or damaged")
    kind, stored = struct.unpack("<BI", table[end : end + _TRAILER])
    if kind != 0:
        raise FileError(
            f"the index of the checkpoint {name} is compressed, which is not read; save the "
            "model again with TensorFlow 2"
        )
    if _masked(crc32c(table[start : end + 1])) != stored:
        raise FileError(f"the index of the checkpoint {name} is damaged: its checksum is another one")
    block = table[start:end]
    restarts = struct.unpack("<I", block[-4:])[0]
    last = len(block) - 4 * (restarts + 1)
    at, key = 0, b""
    while at < last:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + own + length > last:
            raise FileError(f"the index of the checkpoint {name} is damaged")
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next one begins."""
    number = 0
    for shift in range(0, 64, 7):
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError


# ---------------------------------------------------------------------------------------------- checksums


def _table() -> np.ndarray[Any, Any]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE = _table()
_BYTES = [int(x) for x in _TABLE]


def crc32c(content: bytes) -> int:
    """The CRC-32C (Castagnoli) of bytes.

    Rows of equal length are checked side by side; a checksum is moved over the next row by a linear map.

    Examples:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    rows = len(content) // _ROW
    crc = 0xFFFFFFFF
    if rows > 8:
        cells = np.frombuffer(content, np.uint8, rows * _ROW).reshape(rows, _ROW)
        row_crcs = np.zeros(rows, np.uint32)
        for column in np.ascontiguousarray(cells.T):
            row_crcs = _TABLE[(row_crcs ^ column) & 0xFF] ^ (row_crcs >> 8)
        for row_crc in row_crcs.tolist():
            moved = 0
            for place in range(4):
                moved ^= _OVER_A_ROW[place][(crc >> (8 * place)) & 0xFF]
            crc = moved ^ row_crc
        content = content[rows * _ROW :]
    for byte in content:
        crc = _BYTES[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _over_a_row() -> list[list[int]]:
    """What each value of each byte of a checksum becomes by a row of zeros."""
    values = np.arange(256, dtype=np.uint32)
    table = []
    for place in range(4):
        crc = values << np.uint32(8 * place)
        for _ in range(_ROW):
            crc = _TABLE[crc & 0xFF] ^ (crc >> 8)
        table.append([int(x) for x in crc])
    return table


_OVER_A_ROW = _over_a_row()


def _masked(crc: int) -> int:
    """A checksum as the files hold it."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
