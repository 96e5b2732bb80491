"""Writes a training folder: all of it, or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from stopgrad.base.errors import ArgumentError, FileError
from stopgrad.graph.files import CURES, AnyPath, exchanged, flush_folder, locked, replacing, write_arrays
from stopgrad.graph.operands import NumpyArray
from stopgrad.interop.onnx.training.manifest import FORMAT, STATE_FILE, WEIGHTS

MANIFEST = "manifest.json"
APART = 64 * 2**20
"""If the arrays of all graphs have at least so many bytes, each is stored once in a file of its own."""
SMALL = 1024
"""Arrays with fewer bytes stay in their graphs."""


def write_folder(
    folder: AnyPath,
    models: Mapping[str, Any],
    state: Mapping[str, NumpyArray],
    manifest: Mapping[str, Any],
) -> None:
    """Write a training folder.

    Args:
        folder: the path; of nothing, of an empty folder or of an older training folder, which is replaced.
        models: by file name; large arrays are taken out of them.
        state: arrays by name.
        manifest: the contents of ``manifest.json``.

    Raises:
        FileError: something else is there, or the system refuses. What was there is kept.
    """
    with replacing_folder(folder) as part:
        _set_apart(models, part)
        for name, model in models.items():
            with replacing(part / name) as file, open(file, "wb", closefd=False) as stream:
                stream.write(model.SerializeToString())
        write_arrays(part / STATE_FILE, state, {"made_for": FORMAT})
        with replacing(part / MANIFEST) as file, open(file, "w", encoding="utf-8", closefd=False) as text:
            json.dump(manifest, text, indent=1, ensure_ascii=False)
            text.write("\n")


@contextmanager
def replacing_folder(folder: AnyPath) -> Iterator[Path]:
    """A new folder, which replaces *folder* if the block ends without an error.

    It is locked meanwhile. One without a lock was left by a process that died; the next writer removes it.

    Raises:
        FileError: there is something other than a training folder, or the system refuses.
    """
    target = checked(folder)
    try:
        with contextlib.ExitStack() as stack:
            _remove_abandoned(target)
            part = _part_of(target, stack)
            yield part
            flush_folder(str(part))
            _put(part, target)
            flush_folder(str(target.parent))
    except FileError:
        raise
    except OSError as error:
        why = CURES.get(error.errno or 0, error.strerror or str(error))
        raise FileError(f"{target} cannot be written: {why}") from error


def _part_of(target: Path, stack: contextlib.ExitStack) -> Path:
    """An empty folder beside another, locked; at the end of the stack it is removed."""
    while True:
        part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_PART}")
        stack.callback(shutil.rmtree, part, ignore_errors=True)  # Before there is one.
        part.mkdir()
        if sys.platform == "win32":  # Folders cannot be opened there.
            return part
        lock = os.open(part, os.O_RDONLY)
        stack.callback(os.close, lock)
        if locked(lock, wait=True) is not False and part.exists():
            return part  # Else another process removed it as abandoned before it was locked.


def _remove_abandoned(target: Path) -> None:
    if sys.platform == "win32":
        return
    for name in os.listdir(target.parent):
        if name.startswith(f".{target.name}.") and name.endswith(_PART):
            with contextlib.suppress(OSError):
                lock = os.open(target.with_name(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
                try:
                    if locked(lock, wait=False):
                        shutil.rmtree(target.with_name(name))
                finally:
                    os.close(lock)


def _put(part: Path, target: Path) -> None:
    """Put a folder in the place of another, which is then called *part*, or nowhere."""
    if not target.exists():
        os.rename(part, target)
    elif not exchanged(part, target):
        old = part.with_name(f"{part.name}.old")
        os.rename(target, old)
        try:
            os.rename(part, target)
        except BaseException:
            if not target.exists():
                os.rename(old, target)
            raise
        os.rename(old, part)


_PART = ".part"


def checked(folder: AnyPath) -> Path:
    """The path of a folder that may be written.

    Raises:
        ArgumentError: it is no path.
        FileError: something else is there, or the folder around it is not.
    """
    try:
        target = Path(os.path.realpath(os.fspath(folder)))
    except (TypeError, ValueError):
        raise ArgumentError(f"folder: {folder!r:.60} is no path; take a string or a pathlib.Path") from None
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: the folder {target.parent} does not exist")
    if target.exists():
        if not target.is_dir():
            raise FileError(f"{target} is a file; give the path of a folder")
        if any(target.iterdir()) and not is_training_folder(target):
            raise FileError(
                f"{target} holds other files; give the path of a new folder, or of a training folder"
            )
    return target


def is_training_folder(folder: Path) -> bool:
    """Whether a folder is a training folder."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


# -------------------------------------------------------------------------------------- large arrays


def _set_apart(models: Mapping[str, Any], folder: Path) -> None:
    """Move the stored arrays of models into one file, each once, if they are large altogether."""
    tensors = [t for model in models.values() for t in model.graph.initializer]
    large = [t for t in tensors if t.HasField("raw_data") and len(t.raw_data) >= SMALL]
    if sum(len(t.raw_data) for t in large) < APART:
        return
    places: dict[bytes, int] = {}
    end = 0
    with replacing(folder / WEIGHTS) as file, open(file, "wb", closefd=False) as stream:
        for tensor in large:
            data = tensor.raw_data
            key = hashlib.sha256(data).digest()
            if key not in places:
                end += stream.write(b"\0" * (-end % _ALIGNED))
                places[key] = end
                end += stream.write(data)
            _point(tensor, places[key], len(data))


_ALIGNED = 4096
"""Runtimes map a file into memory by pages."""


def _point(tensor: onnx.TensorProto, offset: int, length: int) -> None:
    """Make a tensor refer to its data in the file."""
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
