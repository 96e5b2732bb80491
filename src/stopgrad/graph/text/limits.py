"""Bounds of texts and files, which readers and writers enforce.

Each bound is far above the needs of programs, and keeps the cost of reading proportional to the length of the
text. Those of sizes are in :mod:`stopgrad.base.sizes`. SECURITY.md lists all of them.
"""

from __future__ import annotations

NAME = 65_536
"""Characters in the name of an operation."""

DIGITS = 400
"""Digits of a number."""

DEPTH = 1_000
"""Brackets in brackets, quotients of quotients of sizes."""

NESTING = 200
"""Graphs written in graphs, ``no_gradient`` blocks in blocks."""

BODIES = 100
"""Bodies inside bodies: running them is recursive, and Python's stack is limited."""

RANK = 64
"""Axes of a tensor; also NumPy's bound."""

OUTPUTS = 65_536
"""Outputs of one operation."""

PARAMETERS = 16
"""Different lists of parameters of the bodies that have one graph."""
