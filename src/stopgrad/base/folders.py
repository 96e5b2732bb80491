"""The folders of cached files, which can be made again, and files that tell whether they are whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import warnings
from pathlib import Path

from stopgrad.base.source import to_user


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

    None if it cannot be made, or if another user could have written to it, of which a warning is given once.
    What is in it is trusted like the installed package.
    """
    folder = cache_folder() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status, parent = folder.lstat(), folder.parent.stat()
        if os.name == "posix" and status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode):
            status = _closed(folder, status)
    except OSError:
        return None
    if os.name != "posix":
        return folder
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    safe = parent.st_uid in (0, os.getuid()) and (
        not parent.st_mode & _OTHERS or parent.st_mode & stat.S_ISVTX
    )
    if is_own and safe and not status.st_mode & _OTHERS:
        return folder
    if str(folder) not in _WARNED:
        _WARNED.add(str(folder))
        warnings.warn(
            f"{folder} is not used: another user owns it, or could write to it, and what is in it would be "
            "run. Remove it, or name another folder in STOPGRAD_CACHE_DIR",
            RuntimeWarning,
            stacklevel=to_user(),
        )
    return None


_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_WARNED: set[str] = set()
"""The folders of which a warning was given."""


def _closed(folder: Path, status: os.stat_result) -> os.stat_result:
    """Take from others the right to read a folder of ours; what they could have written to stays as it is."""
    if status.st_mode & 0o077 and not status.st_mode & _OTHERS:
        folder.chmod(0o700)
        return folder.lstat()
    return status


# ----------------------------------------------------------------------------------------------- sealed files

_MARK = b"stopgrad 1\n"
_HEAD = len(_MARK) + 8 + 32


def seal(key: str, content: bytes) -> bytes:
    """The beginning of a file that holds something under a key: version, length and SHA-256 of both.

    Examples:
        >>> len(seal("key", b"content"))
        51
    """
    digest = hashlib.sha256(key.encode() + b"\0" + content).digest()
    return _MARK + len(content).to_bytes(8, "little") + digest


def unsealed(path: Path, key: str) -> bytes | None:
    """What a file holds under a key; None if there is none. One that is not as it was written is removed.

    Links are not followed, and another user's files not read.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _remove(path)
        return None
    with open(file, "rb") as stream:
        status = os.fstat(file)
        own = os.name != "posix" or status.st_uid == os.getuid()
        if own and stat.S_ISREG(status.st_mode) and status.st_size >= _HEAD:
            head, content = stream.read(_HEAD), stream.read()
            if head == seal(key, content):
                return content
    _remove(path)
    return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
