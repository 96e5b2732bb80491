"""Reads files of states, in the safetensors format, into memory that is there already."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from stopgrad_trainer.contents import AnyPath, Port, dtype_of, show_shape
from stopgrad_trainer.exported import Array
from stopgrad_trainer.needed import error, is_ours

_NAMES = {
    "bool": "BOOL",
    "float16": "F16",
    "bfloat16": "BF16",
    **{f"float{bits}": f"F{bits}" for bits in (32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
"""The format's names of dtypes."""


class StateFile:
    """A file that holds the state of a training; it is checked, and its arrays are not yet read.

    Args:
        path: of the file.
        state: what it must hold, by name.
        only: the names of which it must hold, where the rest is not asked for.

    Raises:
        MissingFileError, FileError: there is none, it is damaged, or the state of another training.
    """

    def __init__(self, path: AnyPath, state: Mapping[str, Port], only: Collection[str] | None = None) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise error("ArgumentError", f"{path!r:.60} is no path of a file")
        self._path, self._state = path, state
        self._wanted = {name: port for name, port in state.items() if only is None or name in only}
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # On a pipe it would wait.
                raise error("FileError", f"{path} cannot be read: it is no file")
            with safe_open(path, "numpy"):  # Which checks the format.
                self._places = self._header()
        except FileNotFoundError:
            raise error("MissingFileError", f"{path} cannot be read: there is no such file") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as caught:
            if is_ours(caught):
                raise
            raise error("FileError", f"{path} cannot be read: {caught}") from caught

    def _header(self) -> dict[str, int]:
        """Where the arrays begin, by name."""
        state = self._state
        with open(self._path, "rb") as file:
            count = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(count))
            size = os.fstat(file.fileno()).st_size
        header.pop("__metadata__", None)
        missing = [name for name in self._wanted if name not in header]
        extra = sorted(name for name in header if name not in state)
        if missing or extra:
            difference = f"it lacks {_some(missing)}" if missing else f"it has {_some(extra)} besides"
            raise error("FileError", f"{self._path} is the state of another training: {difference}")
        places = {}
        for name, port in self._wanted.items():
            kind, shape = header[name]["dtype"], tuple(header[name]["shape"])
            if kind != _NAMES[port.dtype] or shape != port.shape:
                named = next((dtype for dtype, code in _NAMES.items() if code == kind), kind)
                raise error(
                    "FileError",
                    f"{self._path} is the state of another training: for {name} it holds "
                    f"{named}{show_shape(shape)}, not {port.dtype}{show_shape(port.shape)}",
                )
            first, last = header[name]["data_offsets"]
            length = math.prod(shape) * dtype_of(port.dtype).itemsize
            if not 0 <= first <= last <= size - 8 - count or last - first != length:
                raise ValueError(f"{name} lies at {first} to {last}")
            places[name] = 8 + count + first
        return places

    def into(self, arrays: Mapping[str, Array]) -> None:
        """Read all arrays into these, which have their dtypes and shapes, are contiguous, and hold zeros.

        Raises:
            FileError: the file cannot be read.
        """
        try:
            with open(self._path, "rb", buffering=0) as file:
                for name, start in sorted(self._places.items(), key=lambda item: item[1]):
                    flat = arrays[name].reshape(-1)
                    remaining = flat.view(np.uint8).data.cast("B") if flat.size else memoryview(b"")
                    remaining = _behind_hole(file.fileno(), start, remaining)
                    file.seek(start + flat.nbytes - len(remaining))
                    while remaining:
                        done = file.readinto(remaining)
                        if not done:
                            raise ValueError("it ends too early")
                        remaining = remaining[done:]
                    if sys.byteorder == "big":
                        flat.byteswap(inplace=True)
        except (OSError, ValueError) as caught:
            raise error("FileError", f"{Path(self._path)} cannot be read: {caught}") from caught


def _behind_hole(file: int, start: int, remaining: memoryview) -> memoryview:
    """What must be read of memory that holds zeros: a file may have holes, which stand for zeros."""
    if len(remaining) < _HOLE or not hasattr(os, "SEEK_DATA"):
        return remaining
    try:
        return remaining[max(0, os.lseek(file, start, os.SEEK_DATA) - start) :]
    except OSError as caught:
        return (
            memoryview(b"") if caught.errno == errno.ENXIO else remaining
        )  # The rest is a hole, or it cannot say.


_HOLE = 1 << 20
"""Bytes, below which holes are not looked for."""


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
