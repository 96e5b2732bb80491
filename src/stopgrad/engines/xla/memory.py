"""The process's memory between calls: kept, rather than given back to the system and asked for again.

For each call XLA takes memory for results and intermediate values. Large pieces of it glibc takes from the
system and gives back, every time: the system clears them page by page, which takes longer than many
computations do. Kept, most calls that are bound by memory take half the time (``docs/performance.md``).
"""

from __future__ import annotations

import ctypes
import os
import platform

# From glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_memory() -> bool:
    """Let this process keep the memory that it has had; tells whether it does.

    That of everything in the process, on Linux with glibc. ``STOPGRAD_KEEP_MEMORY=0`` in the environment
    leaves it as it is.
    """
    if os.environ.get("STOPGRAD_KEEP_MEMORY") == "0" or platform.libc_ver()[0] != "glibc":
        return False
    allocator = ctypes.CDLL(None)
    if not hasattr(allocator, "mallopt"):
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20))
    return {allocator.mallopt(what, value) for what, value in settings} == {1}
