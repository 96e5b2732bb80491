"""What a text or file may ask for: a reader refuses more, and a writer refuses to write more.

Each bound lies far above what programs need, and keeps the cost of reading in proportion to the length of
what is read. What sizes may be stands in :mod:`stopgrad.base.sizes`. SECURITY.md lists all of them.
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
"""Bodies that run in bodies: what runs them is nested, too, and Python's stack is not endless."""

RANK = 64
"""Axes of a tensor; also NumPy's bound."""

OUTPUTS = 65_536
"""Outputs of one operation."""

PARAMETERS = 16
"""Different lists of parameters of the bodies that have one graph."""
