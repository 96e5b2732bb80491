"""Sizes that are known when the model runs: read from its inputs, and computed from these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.base.sizes import Symbol, symbols
from stopgrad.base.types import Dim, Shape
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import Nodes, NotInOnnx, is_known

_INT = np.dtype(np.int64)


class Sizes:
    """The named sizes of a graph, as values of shape [1], written into the outermost graph."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._named: dict[str, str] = {}
        self._symbols: dict[Symbol, str] = {}

    def read(self, name: str, shape: Shape) -> None:
        """Learn the names of sizes from an input."""
        for axis, size in enumerate(shape):
            if isinstance(size, Dim):
                self._learn(name, axis, size)

    def _learn(self, name: str, axis: int, size: Dim) -> None:
        """Compute n from a size that is ``a * n + b``."""
        unknown = [s for s in symbols(size) if s.rule or s.name not in self._named]
        if len(unknown) != 1 or unknown[0].rule:
            return
        slope, rest = 0, 0
        for monomial, factor in size.terms:
            if monomial == ((unknown[0], 1),):
                slope = factor
            elif monomial == ():
                rest = factor
            else:
                return
        solution = self._node("Shape", [name], start=axis, end=axis + 1)
        if rest:
            solution = self._node("Sub", [solution, self._number(rest)])
        if slope != 1:
            solution = self._node("Div", [solution, self._number(slope)])
        self._named[unknown[0].name] = solution

    def one(self, size: int | Dim) -> str:
        """The name of a value of shape [1] that holds a size."""
        if not isinstance(size, Dim):
            return self._number(size)
        for symbol in sorted(_inside(size), key=lambda symbol: symbol.depth):
            if symbol not in self._symbols:
                self._symbols[symbol] = self._symbol(symbol)
        return self._polynomial(size)

    def all(self, shape: Sequence[int | Dim]) -> str:
        """The name of a value of shape [n] that holds sizes."""
        if is_known(shape):
            return self._nodes.constant(np.array(shape, np.int64).reshape(-1))
        parts: list[Any] = []
        for size in shape:
            if isinstance(size, Dim) or not parts or isinstance(parts[-1], str):
                parts.append(self.one(size) if isinstance(size, Dim) else [size])
            else:
                parts[-1].append(size)
        names = [p if isinstance(p, str) else self._nodes.constant(np.array(p, np.int64)) for p in parts]
        if len(names) == 1:
            return names[0]
        return self._nodes.add("Concat", names, [(_INT, (len(shape),))], axis=0)[0]

    def _symbol(self, symbol: Symbol) -> str:
        if not symbol.rule:
            if symbol.name not in self._named:
                raise NotInOnnx(f"no input of the model tells the size {symbol.name!r}; give it as a number")
            return self._named[symbol.name]
        a, b = [self._polynomial(size) for size in symbol.of]
        if symbol.rule == "max":
            return self._node("Max", [a, b])
        # ONNX divides towards zero; its remainder has the sign of the divisor.
        return self._node("Div", [self._node("Sub", [a, self._node("Mod", [a, b])]), b])

    def _polynomial(self, size: int | Dim) -> str:
        if not isinstance(size, Dim):
            return self._number(size)
        total: str | None = None
        for monomial, factor in size.terms:
            term: str | None = None
            for symbol, power in monomial:
                for _ in range(power):
                    base = self._symbols[symbol]
                    term = base if term is None else self._node("Mul", [term, base])
            if term is None:
                term = self._number(factor)
            elif factor != 1:
                term = self._node("Mul", [term, self._number(factor)])
            total = term if total is None else self._node("Add", [total, term])
        assert total is not None
        return total

    def _number(self, number: int) -> str:
        return self._nodes.constant(np.array([number], np.int64))

    def _node(self, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        with self._nodes.at("sizes"):
            return self._nodes.add(op_type, inputs, [(_INT, (1,))], **attributes)[0]


def _inside(size: int | Dim) -> set[Symbol]:
    """All symbols that a size is computed from."""
    within: set[Symbol] = set()
    waiting = list(symbols(size)) if isinstance(size, Dim) else []
    while waiting:
        symbol = waiting.pop()
        if symbol not in within:
            within.add(symbol)
            waiting += [inner for part in symbol.of if isinstance(part, Dim) for inner in symbols(part)]
    return within
