"""What IPython, also in a notebook, knows of a program: its cells; and how it shows our errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

VARIABLE = "STOPGRAD_TRACEBACK"
"""The environment variable that, as ``full``, leaves our frames in the tracebacks of notebooks."""
FULL = "full"


def shell() -> Any:
    """The running shell of IPython, also that of a notebook; None if there is none."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def cell_of(file: str) -> str:
    """The number of the cell that a file is; empty if it is none."""
    running = shell() if file.startswith("<ipython-input-") or "ipykernel" in file else None
    named = None if running is None else running.compile.format_code_name(file)
    found = None if named is None else re.search(r"\[(.+)\]", str(named[1]))
    return "" if found is None else found[1]


def at_line(name: str, line: int, cell: str = "") -> str:
    """A line as readers know it: of a file of this name, or of a cell.

    Examples:
        >>> at_line("train.py", 3), at_line("", 2, cell="7")
        ('train.py:3', 'cell 7, line 2')
    """
    return f"cell {cell}, line {line}" if cell else f"{name}:{line}"


def shorten_tracebacks(kind: type[BaseException], hidden: Callable[[str], bool]) -> None:
    """Let IPython show errors of a kind without frames that are no user's, unless the environment forbids it.

    Nothing changes if somebody has installed a handler of their own.

    Args:
        hidden: whether the frames of a file are left out.
    """
    running = shell()
    if running is None or running.custom_exceptions or os.environ.get(VARIABLE) == FULL:
        return

    def show(self: Any, etype: Any, value: BaseException, tb: Any, tb_offset: int | None = None) -> Any:
        if os.environ.get(VARIABLE) != FULL and not getattr(value, "defect", False):
            tb = without(tb, hidden)
            if value.__cause__ is not None and without(value.__cause__.__traceback__, hidden) is None:
                value.__cause__ = None  # It is ours, and its message is in that of the error.
        return self.showtraceback((etype, value, tb), tb_offset=tb_offset)

    running.set_custom_exc((kind,), show)


def without(tb: TracebackType | None, hidden: Callable[[str], bool]) -> TracebackType | None:
    """A traceback without the frames of some files."""
    kept = []
    while tb is not None:
        if not hidden(tb.tb_frame.f_code.co_filename):
            kept.append(tb)
        tb = tb.tb_next
    found = None
    for one in reversed(kept):
        found = TracebackType(found, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return found
