"""Arrays on disk, in the safetensors format: written completely or not at all, and checked on reading.

A file is a header, with the name, dtype, shape and position of every array, and the arrays' bytes. The
library *safetensors* reads the header and checks it against the file's length. Writing is done here: the
library replaces a file without flushing it to the disk, changes its permissions, and leaves temporary files
behind. The format lacks complex128, which is stored as pairs of float64 and marked in the header.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import numpy as np
from safetensors import SafetensorError, safe_open

from stopgrad.base.errors import ArgumentError, FileError, GraphError, MissingFileError
from stopgrad.base.progress import Progress
from stopgrad.base.types import DTYPES, TensorType
from stopgrad.graph.operands import NumpyArray, shorten, show_shape

if sys.platform != "win32":
    import fcntl

AnyPath = str | os.PathLike[str]

_NAMES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
_DTYPES = {stored: DTYPES[name] for name, stored in _NAMES.items()}
_DTYPE = "dtype:"
"""The prefix of header notes with the dtype of an array, if it is stored in another one."""

HEADER = 3_000_000
"""The most bytes of a header, enough for 30,000 arrays. Reading one takes up to 28 times as much memory."""


# -------------------------------------------------------------------------------------------- writing


def write_arrays(
    path: AnyPath, arrays: Mapping[str, NumpyArray], notes: Mapping[str, str] | None = None
) -> None:
    """Write arrays by name. An old file stays as it is until the new one is complete.

    Args:
        path: the path of the file. A symbolic link is followed; an old file's mode is kept.
        arrays: arrays of any dtype of ours. Any name is allowed but ``__metadata__``, which the format uses.
        notes: further entries of the header.

    Raises:
        FileError: the disk is full, the folder is missing or read-only, the path is that of a folder.
    """
    # The largest element types first, so that all are aligned.
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    header = _header(ordered, notes or {})
    with Progress("writing arrays", total=len(ordered)) as progress, replacing(path) as file:
        _write(file, header)
        for _, array in ordered:
            stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            data = stored.reshape(-1).view(np.uint8)
            if data.size < _HOLE or data.any():
                _write(file, data.data)
            else:  # What is skipped reads as zeros, and takes no room where the system allows it.
                os.ftruncate(file, os.lseek(file, data.size, os.SEEK_CUR))
            progress.step()


_HOLE = 1 << 20
"""Arrays of zeros with so many bytes are not written, but left out: such is the first state of optimisers."""


def _header(arrays: Iterable[tuple[str, NumpyArray]], notes: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "stopgrad", **notes}}
    at = 0
    for name, array in arrays:
        if name in entries:
            raise GraphError(f"no array can be called {name!r} in a file; give it another name")
        shape = list(array.shape)
        if array.dtype == np.complex128:
            entries["__metadata__"][_DTYPE + name] = "complex128"
            entries[name] = {"dtype": "F64", "shape": [*shape, 2], "data_offsets": [at, at + array.nbytes]}
        else:
            dtype = _NAMES[array.dtype.name]
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER:
        raise GraphError(
            f"the names, dtypes and shapes of the arrays take {len(text)} bytes; a file holds {HEADER}"
        )
    return len(text).to_bytes(8, "little") + text


def _write(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view[: 1 << 30]) :]


@contextmanager
def replacing(path: AnyPath) -> Iterator[int]:
    """A new file, open for writing, which replaces *path* when the block ends without an error.

    It is written under a temporary name in the same folder, and locked meanwhile. A temporary file without a
    lock was left by a process that died; the next writer to *path* removes it.
    """
    shown = checked_path(path)
    part, file = "", -1
    try:
        target = os.path.realpath(shown)
        old = _old(target, shown)
        folder, name = os.path.split(target)
        mark = f".{hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()}."
        _remove_abandoned(folder, mark)
        part, file = _part_file(os.path.join(folder, mark))
        if old is not None:
            _keep_owner_and_mode(file, old)
        yield file
        os.fsync(file)
        if sys.platform == "win32":
            os.close(file)
            file = -1
        os.replace(part, target)
        flush_folder(folder)
    except OSError as error:
        _refuse(error, shown, "written")
    finally:
        if part:
            with contextlib.suppress(OSError):
                os.unlink(part)
        if file >= 0:
            os.close(file)


def checked_path(path: AnyPath) -> str:
    """A path as a string; raises if it cannot be one."""
    try:
        shown = os.fspath(path)
    except TypeError:
        shown = b""  # type: ignore[assignment]
    if not isinstance(shown, str) or not shown or "\0" in shown:
        raise ArgumentError(f"{shorten(path)} is no path of a file; take a string or a pathlib.Path")
    return shown


def _old(target: str, shown: str) -> os.stat_result | None:
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{shown} cannot be written: it is {_kind_of(status)}; give the path of a file")
    return status


def _kind_of(status: os.stat_result) -> str:
    return "a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"


def _part_file(beginning: str) -> tuple[str, int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        part = f"{beginning}{secrets.token_hex(4)}.part"
        try:
            file = os.open(part, flags, 0o666)
        except FileExistsError:
            continue
        if locked(file, wait=True) is not False and os.fstat(file).st_nlink:
            return part, file
        os.close(file)  # Another process removed it as abandoned before it was locked.


def locked(file: int, wait: bool) -> bool | None:
    """Lock an open file; returns whether that worked, and None if the system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_abandoned(folder: str, mark: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(mark) and name.endswith(".part"):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(os.path.join(folder, name))


def _remove_if_abandoned(part: str) -> None:
    if sys.platform == "win32":
        os.unlink(part)  # On Windows this fails while it is open.
        return
    file = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if locked(file, wait=False):
            os.unlink(part)
    finally:
        os.close(file)


def _keep_owner_and_mode(file: int, old: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    new = os.fstat(file)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):  # Only the superuser may do so.
            os.fchown(file, old.st_uid, old.st_gid)
    os.fchmod(file, stat.S_IMODE(old.st_mode))


def flush_folder(folder: str) -> None:
    """Flush a folder to the disk, so that a new name in it lasts, if the system can."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def exchanged(one: AnyPath, other: AnyPath) -> bool:
    """Exchange the names of two files or folders in one step; returns whether the system can."""
    names = os.fsencode(one), os.fsencode(other)
    library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform in ("linux", "darwin") else None
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)
    return hasattr(library, "renamex_np") and bool(library.renamex_np(*names, _EXCHANGE) == 0)


_HERE, _EXCHANGE = -100, 2
"""``AT_FDCWD``; ``RENAME_EXCHANGE`` on Linux and ``RENAME_SWAP`` on macOS."""


CURES = {
    errno.ENOENT: "its folder does not exist; make it first",
    errno.ENOTDIR: "its folder is no folder",
    errno.ENOSPC: "the disk is full; make room, or save elsewhere",
    errno.EDQUOT: "the disk quota is used up; make room, or save elsewhere",
    errno.EFBIG: "the file is larger than the system allows",
    errno.EACCES: "this is not permitted; save elsewhere, or change the permissions",
    errno.EPERM: "this is not permitted; save elsewhere, or change the permissions",
    errno.EROFS: "the file system is read-only; save elsewhere",
    errno.ENAMETOOLONG: "the name is too long; take a shorter one",
    errno.ELOOP: "its symbolic links lead in a circle",
}


def _refuse(error: OSError, path: str, done: str) -> NoReturn:
    if isinstance(error, FileError):
        raise error
    why = CURES.get(error.errno or 0, error.strerror or str(error))
    if done == "read" and error.errno == errno.ENOENT:
        why = "there is no such file"
    kind = MissingFileError if error.errno == errno.ENOENT else FileError
    refused = kind(f"{path} cannot be {done}: {why}")
    refused.errno, refused.filename = error.errno, path
    raise refused from error


# -------------------------------------------------------------------------------------------- reading


class ArrayFile:
    """A file of arrays, open for reading. Its header is checked at once; arrays are read on demand.

    Attributes:
        path: the path of the file.
        names: the names of the arrays.
        notes: further entries of the header.
    """

    path: str

    def __init__(self, path: AnyPath) -> None:
        self.path = checked_path(path)
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):
                raise FileError(
                    f"{self.path} cannot be read: it is {_kind_of(status)}; give the path of a file"
                )
            self._check_header()
            self._file = cast("Any", safe_open)(self.path, "numpy", backend="pread")
        except OSError as error:
            _refuse(error, self.path, "read")
        except SafetensorError as error:
            raise self._broken(error) from None
        self.names: frozenset[str] = frozenset(self._file.keys())
        self.notes: dict[str, str] = self._file.metadata() or {}

    def _check_header(self) -> None:
        with open(self.path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
        if length > HEADER:
            raise GraphError(
                f"{self.path} is no file of arrays that Session.save or Graph.save wrote: "
                f"its header would be {length} bytes long; {HEADER} is the most"
            )

    def _broken(self, error: SafetensorError) -> GraphError:
        return GraphError(
            f"{self.path} is no file of arrays that Session.save or Graph.save wrote: {str(error)[:200]}"
        )

    def some_names(self) -> str:
        """Its names, shortened, as messages print them."""
        shown = ", ".join(sorted(self.names)[:20])[:1000]
        return f"{shown}, ..." if len(self.names) > 20 else shown or "none"

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape in which an array is stored."""
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str, type: TensorType | None, what: str) -> NumpyArray:
        """The array of this name, which must have this type, if one is given; *what* names it in errors."""
        if name not in self.names:
            raise GraphError(f"{self.path} holds no value of {what}; it has {self.some_names()}")
        part = self._file.get_slice(name)
        stored, shape = part.get_dtype(), tuple(part.get_shape())
        noted = self.notes.get(_DTYPE + name)
        pairs = noted == "complex128" and stored == "F64" and shape[-1:] == (2,)
        if noted is not None and not pairs:
            raise GraphError(
                f"{self.path} holds {stored}{show_shape(shape)} for {what}, said to be {noted[:40]}"
            )
        dtype = DTYPES["complex128"] if pairs else _DTYPES.get(stored)
        if dtype is None:
            raise GraphError(f"{self.path} holds {stored}{show_shape(shape)} for {what}")
        shape = shape[:-1] if pairs else shape
        if type is not None:
            check_array(dtype.numpy, shape, type, self.path, what)
        try:
            array: NumpyArray = self._file.get_tensor(name)
        except SafetensorError as error:
            raise self._broken(error) from None
        if dtype.is_bool and array.size and array.view(np.uint8).max() > 1:
            raise GraphError(f"{self.path} holds bytes other than 0 and 1 for {what}, which is boolean")
        return array.view(np.complex128).reshape(shape) if pairs else array

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)


def check_array(
    dtype: np.dtype[Any], shape: tuple[int, ...], type: TensorType, where: str, what: str
) -> None:
    """Raise for an array that is not of this type; *where* and *what* describe it in the error."""
    if dtype != type.dtype.numpy or shape != type.shape:
        shown = f"{'' if dtype.isnative else 'byte-swapped '}{dtype.name}{show_shape(shape)}"
        raise GraphError(f"{where} holds {shown} for {what}, not {type!r}")


SHOWN = 20
"""The most differences that an error names."""


def shortened(lines: Sequence[str]) -> list[str]:
    """The first lines of an error, and the number of further ones."""
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], f"and {more} more"] if more > 0 else list(lines)
