"""Writes a training folder: all of it, or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from stopgrad.base.errors import ArgumentError, FileError
from stopgrad.graph.files import AnyPath, replacing, write_arrays
from stopgrad.graph.operands import NumpyArray
from stopgrad.interop.onnx.training.manifest import FORMAT, STATE_FILE

MANIFEST = "manifest.json"
WEIGHTS = "weights.bin"
"""The file with the arrays that are too large to be in every graph."""

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

    Raises:
        FileError: there is something other than a training folder, or the system refuses.
    """
    target = checked(folder)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
    try:
        part.mkdir()
        yield part
        if target.exists():
            os.rename(target, old)
        try:
            os.rename(part, target)
        except OSError:
            if old.exists():
                os.rename(old, target)
            raise
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        for rest in (part, old):
            with contextlib.suppress(OSError):
                shutil.rmtree(rest)


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
        held = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(held, dict) and held.get("format") == FORMAT


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
