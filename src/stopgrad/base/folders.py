"""The folders of cached files, which can be made again."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_folder() -> Path:
    """The user's folder for compiled code and measurements: ``$STOPGRAD_CACHE_DIR``, if that is set.

    It need not exist yet. Whoever can write there can run code as this user.

    Examples:
        >>> cache_folder().is_absolute()
        True
    """
    named = os.environ.get("STOPGRAD_CACHE_DIR")
    if named:
        return Path(named).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache").absolute() / "stopgrad"


def private_folder(name: str) -> Path | None:
    """A folder of the cache for executable files, made if it does not exist.

    None if it cannot be made, or if another user could have written to it.
    """
    folder = cache_folder() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return None
    return None if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.name == "posix" else folder
