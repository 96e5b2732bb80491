"""Graphs in files: the text, the arrays of constants, and the locations of operations.

Locations are rows of numbers that refer to a table of texts. They include the user's expression, so that a
graph from elsewhere shows it without opening any file that it names.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stopgrad.base.coercion import flag
from stopgrad.base.errors import GraphError
from stopgrad.base.progress import Progress
from stopgrad.base.source import Location, RawLocation, decode
from stopgrad.base.types import DType, TensorType, int32, int64, tensor_type, uint8
from stopgrad.graph.files import AnyPath, ArrayFile, write_arrays
from stopgrad.graph.graph import Graph, Operation
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.text.text_reader import Reader
from stopgrad.graph.text.text_writer import Writer

_FIELDS = ("file", "line", "end_line", "column", "end_column", "function", "source")
_TEXTS = ("file", "function", "source")
_CONSTANT = "constant:"
"""The prefix of the names of constants' arrays."""


def save(graph: Graph, path: AnyPath) -> None:
    """Write the graph with its arrays and locations to a file.

    An old file stays until the new one is complete.

    Raises:
        GraphError: names the first operation that cannot be written, with its line.
        FileError: the disk is full, the folder is missing or read-only, the path is that of a folder.
    """
    writer = Writer()
    text = "\n".join(writer.lines(graph)).encode()
    places = _Places()
    arrays: dict[str, NumpyArray] = {
        "graph": np.frombuffer(text, np.uint8),
        "operations": np.array([places.of_operation(op) for op in writer.operations], np.int32),
        "blocks": np.array([places.row(region.location) for region in writer.blocks], np.int32),
        **places.arrays(),
        **{_CONSTANT + name: array for name, array in writer.arrays.items()},
    }
    write_arrays(path, arrays)


def load(path: AnyPath, *, trusted: bool = False) -> Graph:
    """The graph that :func:`save` wrote.

    The file may come from anywhere: nothing in it is executed, no file that it names is opened, and the cost
    of reading is bounded by its length.

    Args:
        path: the path of the file.
        trusted: whether programs of JAX that the file brings may run: native code, which can do anything.

    Raises:
        GraphError: the file holds no graph, or one of its lines cannot be read.
        FileError: the file cannot be read.
    """
    trusting = flag(trusted, "Graph.load: trusted")
    with Progress("reading a graph"), ArrayFile(path) as file:

        def constant(name: str, type: TensorType) -> NumpyArray:
            if _CONSTANT + name not in file.names:
                raise GraphError(f"the file holds no array {name[:60]!r}")
            return file.read(_CONSTANT + name, type, f"the array {name[:60]!r}")

        reader = Reader(constant, trusting)
        try:
            text = _column(file, "graph", uint8).tobytes().decode()
            graph = reader.read(text)
            _give_locations(file, reader)
        except UnicodeDecodeError as error:
            raise GraphError(f"{os.fspath(path)}: its text is no UTF-8: {error.reason}") from None
        except GraphError as error:
            raise GraphError(f"{os.fspath(path)}: {error.message}") from None
    return graph


Graph.save = save  # type: ignore[method-assign, assignment]
Graph.load = staticmethod(load)  # type: ignore[method-assign]


# ------------------------------------------------------------------------------------------- locations


class _Places:
    """Numbers locations, each one once, in the order of their first use."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], int] = {}
        self._table: list[list[int]] = []
        self._texts: dict[str, int] = {}

    def of_operation(self, op: Operation) -> int:
        """The row of an operation's location; -1 if it is that of its origin in the same graph."""
        step: Operation | None = op
        while step is not None:
            if step._place is not None:
                return self.row((step._place, step._instruction))
            if step.origin is not None and step.origin.graph is op.graph:
                return -1
            step = step.origin
        return -1

    def row(self, raw: RawLocation | None) -> int:
        """The row of a location, which the caller keeps alive; -1 for none."""
        if raw is None:
            return -1
        key = id(raw[0]), raw[1]
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._table)
            location = decode(raw)
            self._table.append([self._field(location, name) for name in _FIELDS])
        return row

    def _field(self, location: Location, name: str) -> int:
        value = getattr(location, name)
        if name in _TEXTS:
            return self._texts.setdefault(value, len(self._texts))
        return -1 if value is None else int(value)

    def arrays(self) -> dict[str, NumpyArray]:
        texts = [text.encode(errors="surrogatepass") for text in self._texts]
        return {
            "locations": np.array(self._table, np.int32).reshape(-1, len(_FIELDS)),
            "texts": np.frombuffer(b"".join(texts), np.uint8),
            "text_ends": np.cumsum([len(text) for text in texts], dtype=np.int64),
        }


def _give_locations(file: ArrayFile, reader: Reader) -> None:
    table = _Table(file)
    for name, needed in (("operations", len(reader.operations)), ("blocks", len(reader.blocks))):
        rows = _column(file, name, int32)
        if len(rows) != needed or (needed and not -1 <= rows.min() <= rows.max() < len(table)):
            raise GraphError(f"{name!r} does not hold a row for each of {needed}")
        if name == "operations":
            for op, row in zip(reader.operations, rows.tolist(), strict=True):
                if row >= 0:
                    op._place = table.location(row)
        else:
            for block, row in zip(reader.blocks, rows.tolist(), strict=True):
                if row >= 0:
                    block.location = table.location(row), 0


class _Table:
    """The locations of a file, by their rows; each is made once, at its first use."""

    def __init__(self, file: ArrayFile) -> None:
        self._rows = _column(file, "locations", int32, len(_FIELDS))
        self._texts = _column(file, "texts", uint8)
        self._ends = ends = _column(file, "text_ends", int64)
        if len(ends) and not (ends[0] >= 0 and (np.diff(ends) >= 0).all() and ends[-1] == len(self._texts)):
            raise GraphError("the ends of the texts do not follow each other")
        self._locations: dict[int, Location] = {}
        self._decoded: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def location(self, row: int) -> Location:
        location = self._locations.get(row)
        if location is None:
            fields: dict[str, Any] = dict(zip(_FIELDS, self._rows[row].tolist(), strict=True))
            for name, value in fields.items():
                if name in _TEXTS:
                    fields[name] = self._text(value)
                elif value < -1 or (name == "line" and value < 0):
                    raise GraphError(f"row {row} holds a negative {name}")
                elif value < 0:
                    fields[name] = None
            location = self._locations[row] = Location(**fields)
        return location

    def _text(self, i: int) -> str:
        text = self._decoded.get(i)
        if text is None:
            if not 0 <= i < len(self._ends):
                raise GraphError(f"there is no text {i}")
            start = int(self._ends[i - 1]) if i else 0
            try:
                text = self._texts[start : int(self._ends[i])].tobytes().decode(errors="surrogatepass")
            except UnicodeDecodeError as error:
                raise GraphError(f"text {i} is no UTF-8: {error.reason}") from None
            self._decoded[i] = text
        return text


def _column(file: ArrayFile, name: str, dtype: DType, width: int | None = None) -> NumpyArray:
    """Read an array of numbers, or of rows of numbers, of any length."""
    if name not in file.names:
        raise GraphError(f"the file holds no graph: it has no {name!r}; Graph.save writes one")
    shape = file.shape(name)
    length = shape[0] if shape else 0
    expected = (length,) if width is None else (length, width)
    return file.read(name, tensor_type(dtype, expected), repr(name))
