"""Where files of this library stand that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's folder for what was compiled and measured: ``$STOPGRAD_CACHE_DIR``, if that is set.

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
