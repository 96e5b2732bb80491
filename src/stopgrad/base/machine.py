"""The capabilities of this machine."""

from __future__ import annotations

import contextlib
import platform


def processor() -> str:
    """The processor's features as text; if texts differ, machine code may not run on the other processor.

    Examples:
        >>> processor() == processor()
        True
    """
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return f"{platform.machine()} {platform.processor()}"
