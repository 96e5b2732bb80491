"""Writes a graph as text. Raises for what could not be read back, with the operation and its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stopgrad.base.errors import GraphError, StopgradError
from stopgrad.base.sizes import depth, renamed
from stopgrad.base.types import FRESH, Dim, DType, TensorType
from stopgrad.graph.body import Body, bodies_in
from stopgrad.graph.builder import Region
from stopgrad.graph.graph import Graph, Operation, Output, describe
from stopgrad.graph.kinds import Kind
from stopgrad.graph.names import check_name
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.graph.operands import Literal, NumpyArray
from stopgrad.graph.text import limits
from stopgrad.graph.text.array_literals import INLINE, spell_array
from stopgrad.graph.text.axes import Axes
from stopgrad.graph.text.grammar import spell_number


class Writer:
    """Writes a graph and the graphs of its bodies; numbers graphs, unknown sizes and blocks.

    Attributes:
        operations: all operations, also those in bodies, in the order of their lines.
        blocks: the ``no_gradient`` blocks, in the order in which the text names them first.
        arrays: the values of large constants, by their names in the text.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.blocks: dict[Region, str] = {}
        self.arrays: dict[str, NumpyArray] = {}
        self._graphs: dict[Graph, str] = {}
        self._written: dict[Graph, int] = {}  # The number of operations of each that have been written.
        self._depths: dict[Graph, int] = {}  # The nesting of bodies in each.
        self._unknown: dict[str, str] = {}
        # Frequent texts are made once.
        self._sizes: dict[Dim, str] = {}
        self._types: dict[TensorType, str] = {}
        self._axes = Axes()
        self._definitions: set[type[Op]] = set()

    def lines(self, graph: Graph) -> list[str]:
        """The text, line by line."""
        lines: list[str] = []
        self._graphs[graph] = ""
        stack = [self._open(graph)]
        while stack:
            indent = "  " * (len(stack) - 1)
            for op in stack[-1]:
                body = next((b for b in bodies_in(op.values) if b.graph not in self._graphs), None)
                if body is not None:
                    if len(stack) > limits.NESTING:
                        raise GraphError(f"{describe(op)} cannot be written: its bodies nest too deeply")
                    self._graphs[body.graph] = str(len(self._graphs))
                    lines.append(f"{indent}graph {self._graphs[body.graph]} {{")
                    stack.append(self._open(body.graph))
                    break
                lines.append(indent + self._line(op))
            else:
                stack.pop()
                if stack:
                    lines.append("  " * (len(stack) - 1) + "}")
        return lines

    def _open(self, graph: Graph) -> Iterator[Operation]:
        """The operations of a graph that have not been written."""
        settled = 0
        while settled < len(graph):  # Settling one may build others.
            op = graph._operations[settled]
            op.definition.settle(op)
            settled += 1
        self._written[graph] = 0
        while self._written[graph] < settled:
            yield graph._operations[self._written[graph]]

    def _line(self, op: Operation) -> str:
        definition, own = op.definition, op.name
        try:
            if len(own) > limits.NAME:
                raise GraphError(f"its name has more than {limits.NAME} characters")
            if definition not in self._definitions:
                self._learn(definition)
            if len(op.outputs) > limits.OUTPUTS:
                raise GraphError(f"it has more than {limits.OUTPUTS} outputs")
            types = ", ".join([self._type(y.type) for y in op.outputs])
            arguments = [_reference(x) for x in op.inputs]
            if definition.has_bodies:
                self._deepen(op)
            if op.values:
                where = self._graphs[op.graph]
                label = f"{where}:{own}." if where else f"{own}."
                values = definition.canonical(op.values)
                self._axes.check(definition, op.inputs, values)
                for (name, kind), value in zip(definition.kinds.items(), values, strict=True):
                    if value == () and kind is Kind.SHARDING:
                        continue  # It has no information.
                    if kind is Kind.FUNCTION:
                        raise GraphError(f"it calls Python ({value!r}); leave it out of what is written")
                    arguments.append(f"{name}={self._value(value, label + name)}")
        except StopgradError as error:
            raise GraphError(f"{describe(op)} cannot be written: {error.message}") from None
        region = op.graph._hidden.get(op)
        inside = f" inside no_gradient {self._block(region)}" if region is not None else ""
        self._written[op.graph] += 1
        self.operations.append(op)
        origin = self._origin(op) if op.origin is not None else ""
        return f"{own}: {types} = {definition.type}({', '.join(arguments)}){inside}{origin}"

    def _deepen(self, op: Operation) -> None:
        depth = 1 + max([self._depths.get(body.graph, 0) for body in bodies_in(op.values)], default=-1)
        self._depths[op.graph] = max(self._depths.get(op.graph, 0), depth)
        if depth > limits.BODIES:
            raise GraphError(f"more than {limits.BODIES} bodies run inside one another")

    def _learn(self, definition: type[Op]) -> None:
        """Check that a type of operation can be written; unnamed operations get its name."""
        if REGISTRY.get(definition.type) is not definition:
            raise GraphError("its type is not registered")
        check_name(definition.type)
        self._definitions.add(definition)

    def _origin(self, op: Operation) -> str:
        origin = op.origin
        assert origin is not None
        if origin.id >= self._written.get(origin.graph, 0):
            return ""
        where = "" if origin.graph is op.graph else f"{self._graphs[origin.graph]}:"
        return f" for {where}{origin.name}"

    def _block(self, region: Region) -> str:
        path = self.blocks.get(region)
        if path is None:
            chain: list[Region] = []
            outer: Region | None = region
            while outer is not None and outer not in self.blocks:
                chain.append(outer)
                outer = outer.outer
            path = self.blocks[outer] if outer is not None else ""
            for inner in reversed(chain):
                path = self.blocks[inner] = f"{path}/{len(self.blocks) + 1}".lstrip("/")
            if path.count("/") >= limits.NESTING:
                raise GraphError(f"more than {limits.NESTING} no_gradient blocks stand inside one another")
        return path

    def _size(self, size: int | Dim) -> str:
        if not isinstance(size, Dim):
            return str(size)
        written = self._sizes.get(size)
        if written is None:
            if depth(size) > limits.DEPTH:
                raise GraphError(f"in a size, more than {limits.DEPTH} quotients stand inside one another")
            text = repr(size)
            if FRESH.search(text):
                # Terms are sorted by the text's own names, so that reading and writing gives the same.
                FRESH.sub(self._number, text)
                text = repr(renamed(size, lambda name: self._unknown[name]))
            written = self._sizes[size] = text
        return written

    def _number(self, match: re.Match[str]) -> str:
        return self._unknown.setdefault(match[0], f"_{len(self._unknown) + 1}")

    def _type(self, type: TensorType) -> str:
        text = self._types.get(type)
        if text is None:
            if type.ndim > limits.RANK:
                raise GraphError(f"a tensor of more than {limits.RANK} axes stands in no text")
            text = self._types[type] = f"{type.dtype.name}[{', '.join(map(self._size, type.shape))}]"
        return text

    def _value(self, value: Any, label: str, depth: int = 1) -> str:
        """The text of a value; *label* is the name of an array in it that is not written into the text."""
        if depth > limits.DEPTH:
            raise GraphError(f"more than {limits.DEPTH} tuples stand inside one another")
        if isinstance(value, tuple):
            inner = ", ".join([self._value(v, f"{label}.{i}", depth + 1) for i, v in enumerate(value)])
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, Literal):
            if value.array.size <= INLINE:
                return f"array({spell_array(value.array)})"
            self.arrays[label] = value.array
            return f'array("{label}")'
        if isinstance(value, Body):
            inputs = self._value(tuple(map(_reference, value.inputs)), label)
            outputs = self._value(tuple(None if y is None else _reference(y) for y in value.outputs), label)
            return f"body({self._graphs[value.graph]}, {inputs}, {outputs})"
        if isinstance(value, DType):
            return value.name
        if isinstance(value, Dim):
            return self._size(value)
        if isinstance(value, (bool, str)) or value is None:
            return repr(value)
        return spell_number(value)


def _reference(x: Output) -> str:
    return f"{x.op.name}:{x.index}" if x.index else x.op.name
