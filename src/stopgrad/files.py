"""Arrays on disk, as NumPy's npz: written whole or not at all, with every dtype of ours."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stopgrad.errors import GraphError
from stopgrad.types import DType

AnyPath = str | os.PathLike[str]


def write_arrays(path: AnyPath, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name. An old file stays as it is until the new one is complete."""
    target = Path(path)
    stored = {name: array.view(storage(array.dtype)) for name, array in arrays.items()}
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, **stored)  # type: ignore[arg-type] # the stubs take every keyword for allow_pickle
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def read_arrays(path: AnyPath) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file by name, as they are stored; :func:`as_dtype` gives them their own dtype."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        raise GraphError(
            f"{os.fspath(path)} is no file of arrays that Session.save or Graph.save wrote"
        ) from None


def storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which files hold elements of *dtype*: itself, or their bits if the format lacks it."""
    return np.dtype(np.uint16) if dtype.name == "bfloat16" else dtype


def as_dtype(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """A stored array in the dtype that it was written from."""
    return array.view(dtype.numpy)
