"""Places in the user's files: captured in well under a microsecond, decoded only when printed."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
from types import CodeType

import numpy as np

# The recipes are written as a user would write them, so their lines count as the user's.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Code that may run between us and the user's line: the trainer, context managers, and the array libraries,
# which call back.
_BESIDE = os.path.dirname(os.path.dirname(np.__file__))
_TRAINER = f"{_PACKAGE[:-1]}_trainer{os.sep}"
_BETWEEN = (
    _TRAINER,
    contextlib.__file__,
    *[os.path.join(_BESIDE, name, "") for name in ("numpy", "jax", "torch")],
)
_RECIPES = os.path.join(_PACKAGE, "tools", "recipes") + os.sep

# Whether a file is internal, by file name: Python caches a string's hash, but not that of a code object.
_INTERNAL: dict[str, bool] = {}
FILES = 4096
"""The most files in that table; cells of notebooks are files too."""


# One int object for all equal instruction numbers, since a graph holds one for each operation.
_INSTRUCTIONS: dict[int, int] = {}
INSTRUCTIONS = 2**14
"""Instruction numbers from here on are not shared."""


def is_internal(file: str) -> bool:
    """Whether a file is the package's, but no recipe, or may run between it and the user's line."""
    if len(_INTERNAL) >= FILES:
        _INTERNAL.clear()
    found = _INTERNAL[file] = file.startswith((_PACKAGE, *_BETWEEN)) and not file.startswith(_RECIPES)
    return found


def to_user() -> int:
    """The number of frames from the caller up to the user's, as ``warnings.warn`` counts them."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    return level


def capture() -> tuple[CodeType, int] | None:
    """The instruction in the first frame outside the package that led here."""
    frame = sys._getframe(2)
    known = _INTERNAL
    while True:
        code = frame.f_code
        internal = known.get(code.co_filename)
        if internal is None:
            internal = is_internal(code.co_filename)
        if not internal:
            at = frame.f_lasti
            return code, _INSTRUCTIONS.setdefault(at, at) if at < INSTRUCTIONS else at
        if frame.f_back is None:
            return None
        frame = frame.f_back


class Location:
    """A place in a source file: ``file``, ``line`` and, if the interpreter knows it, the sub-expression."""

    __slots__ = ("_source", "column", "end_column", "end_line", "file", "function", "line")

    def __init__(
        self,
        file: str,
        line: int,
        end_line: int | None = None,
        column: int | None = None,
        end_column: int | None = None,
        function: str = "",
        source: str | None = None,
    ) -> None:
        self.file = file
        self.line = line
        self.end_line = end_line
        self.column = column
        self.end_column = end_column
        self.function = function
        self._source = source  # Given for a location that was read from a saved graph.

    @property
    def source(self) -> str:
        """The source text of the sub-expression, or of the line; empty if the file cannot be read."""
        if self._source is not None:
            return self._source
        text = linecache.getline(self.file, self.line)
        if self.end_line == self.line and self.column is not None and self.end_column is not None:
            # Columns count UTF-8 bytes.
            return text.encode()[self.column : self.end_column].decode(errors="replace")
        return text.strip()

    def __repr__(self) -> str:
        return f"{self.file}:{self.line}"

    def describe(self) -> str:
        """``file:line: expression``, as messages print it."""
        source = self.source
        return f"{self!r}: {source}" if source else repr(self)


RawLocation = tuple[CodeType | Location, int]
"""A captured instruction, or a place that is decoded already."""


class _Itself:
    """Code as the key of a cache. Python's own hash of code reads all of it, each time."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.code is other.code

    def __hash__(self) -> int:
        return id(self.code)


@functools.lru_cache(8)
def _positions(itself: _Itself) -> tuple[tuple[int | None, ...], ...]:
    """The places of all instructions; Python can only decode them one after the other, from the first."""
    return tuple(itself.code.co_positions())


def decode(raw: RawLocation) -> Location:
    """The place of a captured instruction."""
    code, instruction = raw
    if isinstance(code, Location):
        return code
    positions, index = _positions(_Itself(code)), instruction // 2
    line, end_line, column, end_column = positions[index] if index < len(positions) else (None,) * 4
    return Location(
        code.co_filename,
        line if line is not None else code.co_firstlineno,
        end_line,
        column,
        end_column,
        code.co_name,
    )
