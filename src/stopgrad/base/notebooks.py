"""What IPython, also in a notebook, knows of a program: its cells."""

from __future__ import annotations

import re
import sys
from typing import Any


def shell() -> Any:
    """The running shell of IPython, also that of a notebook; None if there is none."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def cell_of(file: str) -> str:
    """The number of the cell that a file is; empty if it is none."""
    running = shell() if file.startswith("<ipython-input-") or "ipykernel" in file else None
    named = None if running is None else running.compile.format_code_name(file)
    match = None if named is None else re.search(r"\[(.+)\]", str(named[1]))
    return "" if match is None else match[1]


def at_line(name: str, line: int, cell: str = "") -> str:
    """A line as readers know it: of a file of this name, or of a cell.

    Examples:
        >>> at_line("train.py", 3), at_line("", 2, cell="7")
        ('train.py:3', 'cell 7, line 2')
    """
    return f"cell {cell}, line {line}" if cell else f"{name}:{line}"
