"""What this machine can do."""

from __future__ import annotations

import contextlib
import platform


def processor() -> str:
    """What the processor can do, in words that differ where machine code for one may not run on another.

    Examples:
        >>> processor() == processor()
        True
    """
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return f"{platform.machine()} {platform.processor()}"
