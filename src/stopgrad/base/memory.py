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

# From glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_memory() -> bool:
    """Have the whole process keep memory that was freed. Returns whether that worked.

    It works on Linux with glibc. ``STOPGRAD_KEEP_MEMORY=0`` in the environment switches it off.
    """
    if os.environ.get("STOPGRAD_KEEP_MEMORY") == "0" or platform.libc_ver()[0] != "glibc":
        return False
    allocator = ctypes.CDLL(None)
    if not hasattr(allocator, "mallopt"):
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20))
    return {allocator.mallopt(what, value) for what, value in settings} == {1}
