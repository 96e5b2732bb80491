"""The user's files on a page, and where each operation was built in them."""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stopgrad.base.notebooks import cell_of
from stopgrad.base.source import Location, in_library
from stopgrad.flow.source_lines import character_columns
from stopgrad.graph.graph import Operation

WHOLE = 3000
"""The most lines of a file that is shown completely; of longer ones, only surroundings of used lines are."""
AROUND = 40


@dataclass
class _File:
    path: str
    lines: Sequence[str]
    """All lines; empty for a file that is not opened."""
    stored: dict[int, str] = field(default_factory=dict)
    """Lines that are known without opening the file."""
    used: set[int] = field(default_factory=set)


class Sources:
    """Places, numbered at their first use; then their files.

    Attributes:
        places: for each place the file's number, line, last line, first and last column, and the function.
            Columns count characters from 0; they are -1 if unknown.
    """

    def __init__(self) -> None:
        self.places: list[tuple[int, int, int, int, int, str]] = []
        self._files: list[_File] = []
        self._by_file: dict[tuple[str, bool], int] = {}
        self._by_place: dict[tuple[int, int, int, int, int, str], int] = {}
        self._by_instruction: dict[Any, int] = {}

    def of(self, op: Operation) -> int:
        """The number of the place where an operation was built; -1 if unknown."""
        # Many operations share an instruction; decoding one takes time in proportion to its function.
        located: Operation | None = op
        while located is not None and located._place is None:
            located = located.origin
        if located is None:
            return -1
        key = located._place, located._instruction
        number = self._by_instruction.get(key)
        if number is None:
            number = self._by_instruction[key] = self.at(located.location)
        return number

    def at(self, location: Location | None) -> int:
        """The number of a place; -1 for None."""
        if location is None:
            return -1
        number = self._file(location)
        file = self._files[number]
        last = location.end_line or location.line
        file.used.update((location.line, last))
        start, end = (character_columns(location) if file.lines else None) or (-1, -1)
        place = number, location.line, last, start, end, location.function
        index = self._by_place.setdefault(place, len(self.places))
        if index == len(self.places):
            self.places.append(place)
        return index

    def _file(self, location: Location) -> int:
        # The places of a loaded graph contain their source: no file is opened for them.
        opened = location._source is None
        key = location.file, opened
        number = self._by_file.get(key)
        if number is None:
            number = self._by_file[key] = len(self._files)
            lines = linecache.getlines(location.file) if opened else []
            self._files.append(_File(location.file, [line.rstrip("\r\n") for line in lines]))
        if not opened:  # Of several expressions in a line the longest, which contains the others.
            stored = self._files[number].stored
            stored[location.line] = max(stored.get(location.line, ""), location.source, key=len)
        return number

    def files(self) -> list[dict[str, Any]]:
        """For each file, its name and the shown parts: the number of the first line, and the text."""
        cells = [cell_of(file.path) for file in self._files]
        names = [
            f"cell {cell}" if cell else name
            for name, cell in zip(shown_names([file.path for file in self._files]), cells, strict=True)
        ]
        return [
            {"name": name, "cell": bool(cell), "parts": _parts(file)}
            for name, cell, file in zip(names, cells, self._files, strict=True)
        ]


def _parts(file: _File) -> list[tuple[int, str]]:
    if not file.lines:
        return sorted(file.stored.items())
    if len(file.lines) <= WHOLE:
        return [(1, "\n".join(file.lines))]
    parts: list[tuple[int, int]] = []
    for line in sorted(file.used):
        start, end = max(1, line - AROUND), min(len(file.lines), line + AROUND)
        if parts and start <= parts[-1][1] + 1:
            parts[-1] = parts[-1][0], end
        else:
            parts.append((start, end))
    return [(start, "\n".join(file.lines[start - 1 : end])) for start, end in parts]


def shown_names(paths: Sequence[str]) -> list[str]:
    """Names of files on a page: relative to the working directory, a library's from its name on, or with the
    fewest folders that differ.

    Pages are shared, and need not say where their author's files are.
    """
    here = Path.cwd()
    short = []
    for path in paths:
        parts, library = Path(path).parts, Path(in_library(path)).parts
        below = os.path.isabs(path) and Path(path).is_relative_to(here)
        short.append(library or (Path(path).relative_to(here).parts if below else parts[-1:] or (path,)))
    for length in range(2, max((len(Path(path).parts) for path in paths), default=0) + 1):
        clashing = {name for name in short if short.count(name) > 1}
        if not clashing:
            break
        short = [
            Path(path).parts[-length:] if name in clashing else name
            for path, name in zip(paths, short, strict=True)
        ]
    return ["/".join(name) for name in short]
