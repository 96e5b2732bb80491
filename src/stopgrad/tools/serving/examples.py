"""Examples to train on, from a file, as arrays by the names of what a training step is fed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from stopgrad.base.errors import FileError, MissingFileError, StopgradError
from stopgrad_trainer.contents import Contents, Port, dtype_of, fed

Arrays = dict[str, np.ndarray[Any, Any]]

LARGEST = 2**31 - 1
"""The most bytes of examples: a browser holds them in one buffer."""


@dataclass(frozen=True)
class Feeds:
    """What a step is fed besides the learning rate and the state.

    Attributes:
        ports: the inputs and the labels.
        cut: the names of those whose first axis is the batch; the others are fed whole, in each step.
        batch: the size of a batch, if the graph has only one.
    """

    ports: tuple[Port, ...]
    cut: tuple[str, ...]
    batch: int | None

    def described(self) -> list[dict[str, Any]]:
        """As the page reads it."""
        return [
            {"name": port.name, "dtype": port.dtype, "shape": list(port.shape), "cut": port.name in self.cut}
            for port in self.ports
        ]


def feeds_of(contents: Contents) -> Feeds:
    """What a training step is fed, and which of it is cut into batches.

    The batch is the first axis: the first that has a name, and if none has one, that of the first input.
    """
    ports = tuple(port for port in contents.inputs["train_step"] if port.role in ("input", "labels"))
    firsts = [port.shape[0] for port in ports if port.shape]
    batch = next((size for size in firsts if isinstance(size, str)), next(iter(firsts), None))
    cut = tuple(port.name for port in ports if port.shape and port.shape[0] == batch)
    return Feeds(ports, cut, batch if isinstance(batch, int) else None)


def read_examples(path: Path, feeds: Feeds) -> Arrays:
    """The examples in a file, checked against what a step is fed.

    Args:
        path: ``.npz`` or ``.safetensors``, arrays by name; ``.json``, lists by name; or ``.jsonl``, in each
            line an object that holds one example by the same names.
        feeds: what a step is fed.

    Returns:
        Arrays by name, those that are cut with all examples along their first axis.

    Raises:
        FileError: the file is missing or damaged, or holds something else than the step is fed.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise FileError(f"--data: {path} is none of {', '.join(_READERS)}")
    try:
        contents = read(path)
    except FileNotFoundError:
        raise MissingFileError(f"--data: there is no {path}") from None
    except StopgradError:
        raise
    except (OSError, ValueError, EOFError, RecursionError, SafetensorError, zipfile.BadZipFile) as error:
        raise FileError(f"--data: {path} cannot be read: {error}") from None
    return _checked(path, contents, feeds)


def _checked(path: Path, contents: Mapping[str, Any], feeds: Feeds) -> Arrays:
    wanted = [
        replace(port, shape=("examples", *port.shape[1:])) if feeds.batch and port.name in feeds.cut else port
        for port in feeds.ports
    ]
    dtypes = {port.name: dtype_of(port.dtype) for port in wanted}
    arrays = {
        name: x if isinstance(x, np.ndarray) or name not in dtypes else _array(path, name, x, dtypes[name])
        for name, x in contents.items()
    }
    examples: Arrays = fed(f"--data: {path}", wanted, arrays)
    count = len(examples[feeds.cut[0]]) if feeds.cut else 1
    least = feeds.batch or 1
    if count < least:
        raise FileError(f"--data: {path} holds {count} examples, and a step takes {least}")
    if sum(x.nbytes for x in examples.values()) > LARGEST:
        raise FileError(f"--data: {path} holds more than a browser takes, {LARGEST} bytes")
    return examples


def _array(path: Path, name: str, value: object, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers in lists as an array; no number is rounded to a whole one."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        raise FileError(f"--data: {path}: {name} is no array: its rows differ in length") from None
    if np.can_cast(array.dtype, dtype, "same_kind") or not array.size:
        return array.astype(dtype)
    shown = array.dtype.name if array.dtype.kind in "biuf" else "something else than numbers"
    raise FileError(f"--data: {path}: {name} is {dtype.name}, not {shown}")


# ------------------------------------------------------------------------------------------- formats


def _npz(path: Path) -> Arrays:
    with open(path, "rb") as stream:
        file = np.load(stream, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise FileError(f"--data: {path} is one array without a name; write it with numpy.savez")
        with file:
            return {name: file[name] for name in file.files}


def _json(path: Path) -> dict[str, Any]:
    contents = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(contents, dict):
        raise FileError(f"--data: {path} is no object that holds arrays by name")
    return contents


def _jsonl(path: Path) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(f"--data: {path}:{number}: this is no JSON: {error}") from None
            if not isinstance(row, dict) or (rows and row.keys() != rows[0].keys()):
                names = ", ".join(rows[0]) if rows else "names"
                raise FileError(f"--data: {path}:{number}: this is no object with {names}")
            rows.append(row)
    return _stacked(rows)


def _stacked(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


_READERS: Mapping[str, Callable[[Path], Mapping[str, Any]]] = {
    ".npz": _npz,
    ".safetensors": load_file,
    ".json": _json,
    ".jsonl": _jsonl,
}
"""The kinds of files, by how their names end."""
