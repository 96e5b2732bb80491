"""Calls of TensorFlow's operations as NumPy arrays, and random numbers for them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64


@dataclass
class Operand:
    """One operand of a case.

    Attributes:
        value: an array, or a list of them for an operand that is a list.
        fed: whether the value is fed; else it is a constant of the graph.
    """

    value: Any
    fed: bool


@dataclass
class Case:
    """One call of an operation.

    Attributes:
        op: its type.
        operands: in the order of the operation's definition.
        attributes: types as NumPy's scalar types.
        results: how many of the results are compared; None for all.
        second: whether gradients are compared; some operations have none in TensorFlow.
    """

    op: str
    operands: list[Operand]
    attributes: dict[str, Any] = field(default_factory=dict)
    results: int | None = None
    differentiated: bool = True


@dataclass
class Written:
    """A graph of TensorFlow's with what it computes.

    Attributes:
        graph: the serialised ``GraphDef``.
        fed: the values of its placeholders, by name.
        values: of the compared results, by name, such as ``c0:1``.
        seeds: cotangents of the differentiable ones, by name.
        gradients: for each placeholder with one, by name; None where TensorFlow has none.
    """

    graph: bytes
    fed: dict[str, Array]
    values: dict[str, Array]
    seeds: dict[str, Array]
    gradients: dict[str, Array | None]

    def save(self, path: Path) -> None:
        """Keep it as one file: the graph, all arrays behind one another, and a list of what they are."""
        arrays = [
            ("fed", self.fed),
            ("values", self.values),
            ("seeds", self.seeds),
            ("gradients", self.gradients),
        ]
        index, data = [], b""
        for what, named in arrays:
            for name, array in named.items():
                kept = None if array is None else np.ascontiguousarray(array)
                index.append(
                    [what, name, *((None, None) if kept is None else (kept.dtype.str, np.shape(array)))]
                )
                data += b"" if kept is None else kept.tobytes()
        parts = [self.graph, json.dumps(index).encode(), data]
        path.write_bytes(lzma.compress(b"".join(len(part).to_bytes(8, "little") + part for part in parts)))

    @classmethod
    def load(cls, path: Path) -> Written:
        """What :meth:`save` has kept."""
        rest, parts = lzma.decompress(path.read_bytes()), []
        while rest:
            size = int.from_bytes(rest[:8], "little")
            parts.append(rest[8 : 8 + size])
            rest = rest[8 + size :]
        graph, index, data = parts
        found: dict[str, dict[str, Any]] = {what: {} for what in ("fed", "values", "seeds", "gradients")}
        start = 0
        for what, name, dtype, shape in json.loads(index):
            if dtype is None:
                found[what][name] = None
                continue
            count = int(np.prod(shape))
            found[what][name] = np.frombuffer(data, dtype, count, start).reshape(shape)
            start += found[what][name].nbytes
        return cls(graph, **found)


class Random:
    """Random shapes and numbers, among them zeros and ties."""

    def __init__(self, seed: Sequence[int]) -> None:
        self.rng = np.random.default_rng(seed)

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def one(self, *options: Any) -> Any:
        return options[self.below(len(options))]

    def flag(self) -> bool:
        return bool(self.below(2))

    def shape(self, least: int = 0, most: int = 3, size: int = 4) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.integers(1, size + 1, least + self.below(most - least + 1)))

    def kind(self) -> Any:
        return self.one(F32, F64)

    def array(self, shape: Sequence[int], dtype: Any = F32, low: float = -2.0, high: float = 2.0) -> Array:
        """Numbers of a range; one time in three on a grid of halves, where zeros and ties are frequent."""
        if np.issubdtype(dtype, np.integer):
            return self.rng.integers(int(low), int(high) + 1, shape).astype(dtype)
        if np.issubdtype(dtype, np.bool_):
            return self.rng.random(shape) < 0.5
        if np.issubdtype(dtype, np.complexfloating):
            return (self.array(shape, F64, low, high) + 1j * self.array(shape, F64, low, high)).astype(dtype)
        found = low + (high - low) * self.rng.random(shape)
        if self.below(3) == 0:
            found = np.clip(np.round(found * 2) / 2, low, high)
        return np.asarray(found, dtype)

    def apart(self, shape: Sequence[int], dtype: Any = F32) -> Array:
        """Different numbers, none close to another or to 0."""
        count = int(np.prod(shape))
        return ((self.rng.permutation(count).reshape(shape) + 1) / (count + 1) * 4 - 2.01).astype(dtype)

    def pair(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two shapes that broadcast."""
        whole = self.shape(0, 3)
        return self._part(whole), self._part(whole)

    def _part(self, whole: Sequence[int]) -> tuple[int, ...]:
        start = self.below(len(whole) + 1) if self.below(2) else 0
        return tuple(1 if self.below(4) == 0 else n for n in whole[start:])

    def axis(self, ndim: int) -> int:
        return self.below(ndim) - (ndim if self.flag() else 0)

    def axes(self, ndim: int) -> Array:
        chosen = self.rng.permutation(ndim)[: self.below(ndim + 1)]
        return np.asarray([a - (ndim if self.flag() else 0) for a in chosen], I32)


def fed(value: Any) -> Operand:
    return Operand(value, True)


def const(value: Any, dtype: Any = None) -> Operand:
    return Operand(np.asarray(value, dtype), False)


def ints(*values: int) -> Operand:
    return const(np.asarray(values, I32))


Maker = Callable[[Random], Case]
Family = dict[str, Maker]
