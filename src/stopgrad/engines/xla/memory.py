"""Memory: the process keeps it between calls, and that of results is handed over.

XLA allocates memory for results and intermediate values in each call. glibc gets large blocks from the system
and returns them each time, and the system clears them page by page, which takes longer than many
computations. With memory kept, most calls that are bound by it take half the time (``docs/performance.md``).

XLA asks for all intermediate values at once, in one of its own threads. For such a thread glibc keeps pieces
of less than 64 MiB only: it gets larger ones from the system each time, whatever it was told. So XLA is told
to ask for several pieces.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Any

import numpy as np

# From glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4

PIECE = 48 * 2**20
"""The most bytes that XLA asks for at once, unless one value has more. It leaves room in 64 MiB."""

_libc = cache(platform.libc_ver)  # It reads the interpreter's file.


def keeps_memory() -> bool:
    """Whether memory is kept: on Linux with glibc, unless the environment has ``STOPGRAD_KEEP_MEMORY=0``."""
    return os.environ.get("STOPGRAD_KEEP_MEMORY") != "0" and _libc()[0] == "glibc"


def keep_memory() -> bool:
    """Have the whole process keep memory that was freed. Returns whether that worked."""
    if not keeps_memory():
        return False
    allocator = ctypes.CDLL(None)
    if not hasattr(allocator, "mallopt"):
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20))
    return {allocator.mallopt(what, value) for what, value in settings} == {1}


class _Lent:
    """Memory of one of JAX's arrays, which stays alive with it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        self.owner = owner
        interface = owner.__array_interface__  # A dict of its own each time, which takes a while to make.
        interface["data"] = interface["data"][0], False
        self.__array_interface__ = interface


SMALL = 2**15
"""Copying fewer bytes takes no longer than not copying them."""


def handed_over(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A result of JAX's as an array that the caller may write into.

    JAX's own view is read-only, because others may hold its memory. A result is nobody else's, so its memory
    is handed over without a copy.
    """
    if array.flags.writeable:
        return array
    if array.nbytes < SMALL or not array.flags.c_contiguous:
        return array.copy()
    found = np.asarray(_Lent(array))
    return found if found.dtype == array.dtype else found.view(array.dtype)
