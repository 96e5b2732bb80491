"""How examples are read from their sources, and joined into batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.errors import ArgumentError, DTypeError, ShapeError, StopgradError
from stopgrad.base.structure import flatten, paths_in, shown, unflatten
from stopgrad.graph.operands import NumpyArray


class Unfit(Exception):  # noqa: N818 - never leaves this module
    """Examples do not fit together; this becomes an error at the line that asked for the batch."""

    kind: type[StopgradError] = ShapeError


class UnfitDType(Unfit):
    kind: type[StopgradError] = DTypeError


class Ended(Exception):  # noqa: N818 - nobody waits for its message
    """Nobody wants this batch any more."""


def about(error: BaseException, what: str) -> None:
    error.add_note(f"stopgrad.data: {what}")


class _Examples:
    """A source of examples, each a structure of numbers and arrays, read one by one."""

    def __init__(self, source: Any, with_epochs: bool = False) -> None:
        self.source = source
        self.with_epochs = with_epochs

    def read(self, indices: NumpyArray, epoch: int, check: Callable[[], None]) -> Any:
        """The examples at *indices*, not yet joined; a grain MapDataset counts on from epoch to epoch."""
        first = epoch * len(self.source) if self.with_epochs else 0
        examples = []
        for index in indices.tolist():
            check()
            try:
                examples.append(self.source[first + index])
            except StopIteration as error:  # It would end the loop that waits for the batch.
                raise RuntimeError(f"the source raised StopIteration for example {index}") from error
            except BaseException as error:
                about(error, f"while example {index} was read")
                raise
        return examples

    def joined(self, examples: Sequence[Any], indices: NumpyArray) -> Any:
        return joined(examples, indices)


class _Rows:
    """An array on disk, or another whose rows are read through its brackets."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def read(self, indices: NumpyArray, epoch: int, check: Callable[[], None]) -> Any:
        """The rows at *indices*; consecutive ones are read at once."""
        first, last = int(indices[0]), int(indices[-1])
        try:
            if last - first + 1 == len(indices) and (np.diff(indices) == 1).all():
                return np.array(self.source[first : last + 1])
        except BaseException as error:
            about(error, f"while examples {first} to {last} were read")
            raise
        return np.stack(_Examples(self.source).read(indices, epoch, check))

    def joined(self, rows: NumpyArray, indices: NumpyArray) -> Any:
        return rows


class _Array:
    """An array in memory, or one that is mapped into it."""

    def __init__(self, source: Any) -> None:
        self.source = np.asarray(source)

    def read(self, indices: NumpyArray, epoch: int, check: Callable[[], None]) -> Any:
        return self.source[indices]  # A copy: batches may be written to.

    def joined(self, rows: NumpyArray, indices: NumpyArray) -> Any:
        return rows


def column_of(source: Any, path: str) -> Any:
    """A reader for one part of the source."""
    where = f" at {path}" if path else ""
    if hasattr(source, "iloc"):
        raise ArgumentError(
            f"the source{where} is a {type(source).__name__}, whose brackets look for labels; give its "
            "columns: {name: table[name].to_numpy() for name in table}"
        )
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ArgumentError(
            f"the source{where} is {source!r:.60}, without len() or brackets to read example i with; "
            "what can only be read from the front has no position to come back to"
        )
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        if not source.shape:
            raise ShapeError(f"the source{where} is one number, {source!r:.60}, without an axis of examples")
        # Arrays that can be shared between libraries are in memory; h5py's and zarr's cannot.
        return (_Array if hasattr(source, "__dlpack__") else _Rows)(source)
    grain = sys.modules.get("grain")  # Nobody has a dataset of grain's without it.
    return _Examples(source, with_epochs=grain is not None and isinstance(source, grain.MapDataset))


def joined(examples: Sequence[Any], indices: NumpyArray) -> Any:
    """One structure of arrays, with a first axis, from examples of the same structure."""
    _, spec = flatten(examples[0], none_is_leaf=True)
    try:
        columns = list(zip(*map(spec.flatten_up_to, examples), strict=True))
    except ValueError:
        for example, index in zip(examples, indices, strict=True):
            other = flatten(example, none_is_leaf=True)[1]
            if other != spec:
                raise Unfit(
                    f"example {index} has the structure {shown(other)}, others of its batch {shown(spec)}; "
                    "transform= can make them alike"
                ) from None
        raise
    names = paths_in(spec)
    arrays = [_stacked(row, indices, path) for row, path in zip(columns, names, strict=True)]
    return unflatten(spec, arrays)


def _stacked(values: Sequence[Any], indices: NumpyArray, path: tuple[Any, ...]) -> Any:
    arrays = [np.asarray(value) for value in values]
    first = arrays[0]
    shape, dtype = first.shape, first.dtype
    if dtype.kind == "O" or any([x.shape != shape or x.dtype != dtype for x in arrays]):  # noqa: C419
        _check_alike(arrays, values, indices, path)
        return np.stack(arrays)
    stacked = np.empty((len(arrays), *shape), dtype)
    for i, array in enumerate(arrays):
        stacked[i] = array
    return stacked


def _check_alike(
    arrays: Sequence[NumpyArray], values: Sequence[Any], indices: NumpyArray, path: tuple[Any, ...]
) -> None:
    where = f" at {'.'.join(map(str, path))}" if path else ""
    first = arrays[0]
    for array, value, index in zip(arrays, values, indices, strict=True):
        if array.dtype.kind == "O":
            raise UnfitDType(
                f"example {index}{where} is {value!r:.60}, a {type(value).__name__}, no number and no array; "
                "transform= can make it one, or leave it out"
            )
        if array.shape != first.shape:
            raise Unfit(
                f"example {index}{where} has the shape {array.shape}, others of its batch {first.shape}; "
                "transform= can cut or pad them"
            )
        if array.dtype != first.dtype and array.dtype.kind not in "US":  # Words may be of any length.
            raise UnfitDType(
                f"example {index}{where} is {array.dtype}, others of its batch {first.dtype}; "
                "transform= can convert them"
            )
