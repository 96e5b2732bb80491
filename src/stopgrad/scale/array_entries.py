"""The checkpoints in a folder: their names, which is the newest, and which are skipped."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from stopgrad.base.errors import CheckpointError
from stopgrad.base.source import to_user
from stopgrad.base.types import TensorType
from stopgrad.graph.files import AnyPath, checked_path
from stopgrad.scale.array_folders import (
    NOTES,
    PATIENCE,
    BrokenError,
    FolderReader,
    Writing,
    open_folder,
    refuse,
    remove_folder,
)
from stopgrad.scale.distributed import agree

VALUES = "values"
"""The name of entries with the values of a session. Those of a run are named by their steps."""

_ENTRY = re.compile(r"(?P<stem>values|\d+)(?:\.(?P<serial>\d+))?")


class Entry(NamedTuple):
    """A checkpoint in a folder. Newer ones compare greater.

    Attributes:
        step: its number; 0 for the values of a session.
        serial: its number among those of that name: an old one stays until the new one is complete.
        path: the path of its folder.
    """

    step: int
    serial: int
    path: str


def entries(folder: str, values: bool) -> list[Entry]:
    """The entries of a folder, from old to new: with *values* those of a session, else those of a run."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        if os.path.isfile(folder):
            raise CheckpointError(
                f"{folder} is a file; checkpoints stand in a folder, give its path"
            ) from None
        refuse(error, folder, "read")
    matches = [(_ENTRY.fullmatch(name), os.path.join(folder, name)) for name in names]
    return sorted(
        Entry(0 if values else int(m["stem"]), int(m["serial"] or 0), path)
        for m, path in matches
        if m is not None and (m["stem"] == VALUES) is values and os.path.isdir(path)
    )


def new_entry(folder: str, stem: str) -> str:
    """The path of the next entry of this name."""
    there = [e.serial for e in entries(folder, stem == VALUES) if stem == VALUES or str(e.step) == stem]
    return os.path.join(folder, f"{stem}.{max(there) + 1}" if there else stem)


def newest_good(folder: str, values: bool, types: Mapping[str, TensorType]) -> FolderReader | None:
    """The newest intact entry, which has been checked; None if there is none.

    Newer ones that are broken are skipped with a warning.

    Raises:
        CheckpointError: the newest intact one belongs to another graph.
    """
    agree(
        f"restoring from {folder}", [], timeout=PATIENCE
    )  # Until then the first process may remove old ones.
    candidates = entries(folder, values)
    agree(f"the checkpoints in {folder}", [os.path.basename(e.path) for e in candidates], timeout=PATIENCE)
    for entry in reversed(candidates):
        try:
            return open_folder(entry.path, types)
        except BrokenError as error:
            warnings.warn(f"a checkpoint is passed over: {error.message}", stacklevel=to_user())
    return None


def begin_values(folder: AnyPath, values: Mapping[str, Any]) -> Writing:
    """Begin to write the values of a session into a folder. Older ones stay until it is complete."""
    shown = os.path.abspath(checked_path(folder))
    path = new_entry(shown, VALUES)

    def remove_old() -> None:
        for entry in entries(shown, values=True):
            if entry.path != path:
                remove_folder(entry.path)

    writing = Writing(path, values, {}, then=remove_old)
    writing.begin()
    return writing


def reader_of(path: AnyPath, types: Mapping[str, TensorType]) -> FolderReader:
    """Open and check an entry, or the newest intact one of a folder."""
    shown = checked_path(path)
    if os.path.exists(os.path.join(shown, NOTES)):
        return open_folder(shown, types)
    reader = newest_good(shown, bool(entries(shown, values=True)), types)
    if reader is None:
        raise CheckpointError(
            f"{shown} cannot be read: it is a folder without a checkpoint that is whole; give a file, "
            "or the folder of a checkpoint"
        )
    return reader
