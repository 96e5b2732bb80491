"""Memory that the process keeps between calls.

XLA allocates memory for results and intermediate values in each call, and so does NumPy. glibc gets large
blocks from the system and returns them each time, and the system clears them page by page, which takes longer
than many computations. With memory kept, most calls that are bound by it take half the time
(``docs/performance.md``).
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

# From glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4

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
