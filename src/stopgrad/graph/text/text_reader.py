"""Reads the text of a graph, which may come from anywhere, and refuses what a writer would not write.

Every line is checked before its operation is made: that operands exist, attributes have the Python types that
their definition declares, types follow from the operands, and bodies are closed. Errors name the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from stopgrad.base.errors import ArgumentError, GraphError, InternalError, StopgradError
from stopgrad.base.garbage import without_gc
from stopgrad.base.types import DTYPES, FRESH, Dim, TensorType, dim, tensor_type
from stopgrad.graph.body import Body
from stopgrad.graph.build import named
from stopgrad.graph.builder import Region
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.graph.operands import Literal, NumpyArray, shorten
from stopgrad.graph.text import limits
from stopgrad.graph.text.array_literals import read_array
from stopgrad.graph.text.axes import Axes
from stopgrad.graph.text.grammar import FORMS, Forms, Values, check_size

_GRAPH = re.compile(r"graph ([0-9]{1,9}) \{\Z")
_TYPE = re.compile(r"(\w+)\[([^\[\]]*)\](?:, |\Z)")
_TAIL = re.compile(r"(?: inside no_gradient ([0-9/]+))?(?: for (?:([0-9]*):)?([^\s:]+))?\Z")
_REMEMBERED = 4096

FindArray = Callable[[str, TensorType], NumpyArray]
"""Finds an array by its name, for a constant of a type."""


class _Text:
    """The state of reading one of the graphs in a text."""

    __slots__ = ("closed", "depth", "graph", "operations", "reached")

    def __init__(self) -> None:
        self.graph = Graph()
        self.operations: dict[str, Operation] = {}
        self.closed = False
        self.depth = 0  # The nesting of bodies.
        self.reached: dict[tuple[Output, ...], bytearray] = {}

    def output(self, reference: object) -> Output:
        """The output of an earlier operation, from ``name`` or ``name:index``."""
        if not isinstance(reference, str):
            raise GraphError(f"{shorten(reference)} names no operation")
        name, colon, index = reference.partition(":")
        op = self.operations.get(name)
        if op is None:
            raise GraphError(f"no earlier operation is named {name[:60]!r}")
        if not colon:
            return op.outputs[0]
        if not index.isdecimal() or len(index) > 9 or int(index) >= len(op.outputs):
            raise GraphError(f"{reference[:60]!r}: the operation has {len(op.outputs)} outputs")
        return op.outputs[int(index)]

    def computed_from(self, inputs: tuple[Output, ...]) -> bytearray:
        """Marks the operations that depend only on *inputs*, which are placeholders."""
        marks = self.reached.get(inputs)
        if marks is None:
            sources = {x.op for x in inputs}
            marks = bytearray(len(self.operations))
            for op in self.operations.values():
                free = op.definition.fed or op.definition.stateful
                marks[op.id] = op in sources or (not free and all(marks[x.op.id] for x in op.inputs))
            if len(self.reached) >= limits.PARAMETERS:
                raise GraphError(f"the bodies of one graph have over {limits.PARAMETERS} lists of parameters")
            self.reached[inputs] = marks
        return marks


class Reader:
    """Reads one text.

    Args:
        array: finds arrays that are not in the text.
        trusted: whether native code that operations bring may run.

    Attributes:
        operations: all operations, also those in bodies, in the order of their lines.
        blocks: the ``no_gradient`` blocks, in the order in which the text names them first.
    """

    def __init__(self, array: FindArray, trusted: bool = False) -> None:
        self.operations: list[Operation] = []
        self.blocks: list[Region] = []
        self._array, self._trusted = array, trusted
        self._graphs: dict[str, _Text] = {}
        self._sizes: dict[str, Dim] = {}
        self._blocks: dict[str, Region] = {}
        self._axes = Axes()
        # Frequent texts are read once.
        self._types: dict[str, tuple[TensorType, ...]] = {}
        self._attributes: dict[tuple[type[Op], str, str], tuple[Any, ...]] = {}

    def read(self, text: str) -> Graph:
        """Read the graph, and before it the graphs of its bodies."""
        if not isinstance(text, str):
            raise ArgumentError(f"from_text takes a text, not {shorten(text)}")
        whole = self._begin("")
        open_graphs = [whole]
        without_gc(self._read_lines, open_graphs, text)
        if len(open_graphs) > 1:
            raise GraphError("the graph's text ends inside a graph; a closing brace is missing")
        for op in self.operations if self._trusted else ():
            op.definition.trust(op)
        return whole.graph

    def _read_lines(self, open_graphs: list[_Text], text: str) -> None:
        for number, line in enumerate(text.split("\n"), 1):
            line = line.strip()
            if not line:
                continue
            try:
                self._read(open_graphs, line)
            except StopgradError as error:
                raise _about(number, line, error.message) from None
            except RecursionError:
                raise _about(number, line, "Python's stack is too short to read it") from None

    def _read(self, open_graphs: list[_Text], line: str) -> None:
        if line == "}":
            if len(open_graphs) == 1:
                raise GraphError("there is no graph to close")
            open_graphs.pop().closed = True
        elif begins := _GRAPH.match(line):
            if len(open_graphs) > limits.NESTING:
                raise GraphError(f"more than {limits.NESTING} graphs stand inside one another")
            open_graphs.append(self._begin(begins[1]))
        else:
            self._operation(open_graphs[-1], line)

    def _begin(self, name: str) -> _Text:
        if name in self._graphs:
            raise GraphError(f"graph {name} stands twice")
        text = self._graphs[name] = _Text()
        return text

    # -------------------------------------------------------------------------------------- a line

    def _operation(self, where: _Text, line: str) -> None:
        # There is no " = " in names and types, and no bracket behind the call.
        head, equals, rest = line.partition(" = ")
        name, colon, types_text = head.partition(": ")
        call, closed, tail = rest.rpartition(")")
        type, opened, arguments = call.partition("(")
        if not (equals and colon and closed and opened):
            raise GraphError("expected 'name: type = Type(operands, attribute=value)'")
        definition = REGISTRY.get(type)
        if definition is None:
            raise GraphError(f"there is no operation type {type[:60]!r}")
        types = self._types.get(types_text)
        if types is None:
            types = self._read_types(types_text)
        operands, attributes = _parted(arguments)
        inputs = tuple([where.output(x) for x in operands.split(", ")]) if operands else ()
        _check_count(definition, inputs)
        values = self._attributes.get((definition, types_text, attributes))
        if values is None:
            values = self._read_attributes(where, definition, types, types_text, attributes)
        self._axes.check(definition, inputs, values)
        inferred = _inferred(definition, inputs, values)
        if inferred != types:
            raise GraphError(f"its type follows as {', '.join(map(repr, inferred))}")
        block, origin = self._read_tail(where, tail) if tail else (None, None)
        graph = where.graph
        if len(name) > limits.NAME:
            raise GraphError(f"a name has more than {limits.NAME} characters")
        if name in where.operations:
            raise GraphError(f"the name {name[:60]!r} stands twice")
        op = named(graph, "", name, None, definition, inputs, values, types, None, origin, block)
        where.operations[name] = op
        self.operations.append(op)

    def _read_types(self, text: str) -> tuple[TensorType, ...]:
        parsed: list[TensorType] = []
        start = 0
        while start < len(text):
            match = _TYPE.match(text, start)
            if match is None:
                raise GraphError(f"{text[start : start + 40]!r} is no type, as float32[n, 3]")
            parsed.append(self._read_type(match[1], match[2]))
            start = match.end()
            if len(parsed) > limits.OUTPUTS:
                raise GraphError(f"an operation has more than {limits.OUTPUTS} outputs")
        if len(self._types) > _REMEMBERED:
            self._types.clear()
        types = self._types[text] = tuple(parsed)
        return types

    def _read_type(self, dtype: str, text: str) -> TensorType:
        sizes: list[int | Dim] = []
        values = Values(text, self._size, FORMS)
        while not values.ended:
            size = check_size(values.value())
            if isinstance(size, int) and size < 0:
                raise GraphError(f"the size {size} is negative")
            sizes.append(size)
        if len(sizes) > limits.RANK:
            raise GraphError(f"a tensor has more than {limits.RANK} axes")
        if dtype not in DTYPES:
            raise GraphError(f"{dtype[:40]!r} is no element type")
        return tensor_type(DTYPES[dtype], tuple(sizes))

    def _size(self, name: str) -> Dim:
        """The size of a name. Unknown sizes become fresh ones, one for each name."""
        if FRESH.fullmatch(name) is None:
            return dim(name)
        size = self._sizes.get(name)
        if size is None:
            size = self._sizes[name] = dim()
        return size

    def _read_attributes(
        self,
        where: _Text,
        definition: type[Op],
        types: tuple[TensorType, ...],
        types_text: str,
        text: str,
    ) -> tuple[Any, ...]:
        outside: list[Any] = []  # What came from outside of the text.
        forms: Forms = {
            **FORMS,
            "array": partial(self._literal, types, outside),
            "body": partial(self._body, where, outside),
        }
        unsaid = {name: () for name, kind in definition.kinds.items() if kind is Kind.SHARDING}
        attributes: dict[str, Any] = {}
        values = Values(text, self._size, forms)
        while not values.ended:
            name, value = values.attribute()
            if name not in definition.attributes or name in attributes:
                raise GraphError(
                    f"the attribute {name[:60]!r} {'stands twice' if name in attributes else 'is unknown'}; "
                    f"{definition.type} has {', '.join(definition.attributes) or 'none'}"
                )
            attributes[name] = value
        attributes = {**unsaid, **attributes}
        missing = [name for name in definition.attributes if name not in attributes]
        if missing:
            raise GraphError(f"the attribute {missing[0]!r} is missing")
        canonical = definition.canonical([attributes[name] for name in definition.attributes])
        if not outside:
            if len(self._attributes) > _REMEMBERED:
                self._attributes.clear()
            self._attributes[definition, types_text, text] = canonical
        return canonical

    def _literal(self, types: tuple[TensorType, ...], outside: list[Any], *parts: object) -> Literal:
        """The value of a constant, which has the type of the result."""
        if len(parts) != 1 or len(types) != 1:
            raise GraphError("array takes numbers, or the name of an array in the file")
        (value,) = parts
        if not isinstance(value, str):
            return Literal(read_array(value, types[0]))
        outside.append(value)
        return Literal(self._array(value, types[0]))

    def _body(self, where: _Text, outside: list[Any], *parts: Any) -> Body:
        if len(parts) != 3 or not isinstance(parts[1], tuple) or not isinstance(parts[2], tuple):
            raise GraphError("body takes the number of a graph, names of parameters, and names of results")
        number, parameters, results = parts
        inner = self._graphs.get(str(number)) if type(number) is int else None
        if inner is None or not inner.closed:
            raise GraphError(f"graph {shorten(number)} does not stand before it")
        inputs = tuple([inner.output(x) for x in parameters])
        outputs = tuple([None if y is None else inner.output(y) for y in results])
        if len(set(inputs)) < len(inputs) or not all(x.op.definition.fed for x in inputs):
            raise GraphError("the parameters of a body are placeholders, each one once")
        closed = inner.computed_from(inputs)
        for y in outputs:
            if y is not None and not closed[y.op.id]:
                raise GraphError(f"the body's result {y.op.name!r} needs more than the body's parameters")
        where.depth = max(where.depth, inner.depth + 1)
        if where.depth > limits.BODIES:
            raise GraphError(f"more than {limits.BODIES} bodies run inside one another")
        outside.append(inner)
        return Body(inner.graph, inputs, outputs)

    def _read_tail(self, where: _Text, text: str) -> tuple[Region | None, Operation | None]:
        """The no_gradient block and the origin that are written behind an operation."""
        match = _TAIL.match(text)
        if match is None:
            raise GraphError(f"{text[:60]!r} is neither a no_gradient block nor an origin")
        block = self._block(match[1]) if match[1] else None
        if not match[3]:
            return block, None
        graph = where if match[2] is None else self._graphs.get(match[2])
        origin = graph.operations.get(match[3]) if graph is not None else None
        if origin is None:
            raise GraphError(f"no earlier operation is named {match[3][:60]!r}")
        return block, origin

    def _block(self, path: str) -> Region:
        block = self._blocks.get(path)
        if block is not None:
            return block
        numbers = path.split("/")
        if len(numbers) > limits.NESTING or not all(n.isdecimal() and len(n) < 10 for n in numbers):
            raise GraphError(f"{path[:60]!r} names no no_gradient block")
        outer = None
        for end in range(1, len(numbers) + 1):
            inner = "/".join(numbers[:end])
            if inner not in self._blocks:
                self._blocks[inner] = Region(outer, None)
                self.blocks.append(self._blocks[inner])
            outer = self._blocks[inner]
        return self._blocks[path]


def _parted(arguments: str) -> tuple[str, str]:
    """The operands, which have no ``=``, and the attributes."""
    first = arguments.find("=")
    if first < 0:
        return arguments, ""
    comma = arguments.rfind(", ", 0, first)
    return ("", arguments) if comma < 0 else (arguments[:comma], arguments[comma + 2 :])


def _check_count(definition: type[Op], inputs: tuple[Output, ...]) -> None:
    needed = len(definition.operands)
    if len(inputs) < needed or (len(inputs) > needed and definition.variadic is None):
        raise GraphError(
            f"{definition.type} takes {'at least ' if definition.variadic else ''}{needed} operands, "
            f"not {len(inputs)}"
        )


def _inferred(
    definition: type[Op], inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> tuple[TensorType, ...]:
    try:
        return infer_types(definition, tuple([x.type for x in inputs]), values)
    except StopgradError:
        raise
    except (AttributeError, NameError) as error:
        raise InternalError(f"{definition.type}: {type(error).__name__}: {error}") from error
    except Exception as error:  # Shape rules rely on public functions; a text has anything.
        raise GraphError(
            f"{definition.type} cannot take such operands and attributes ({type(error).__name__}: {error})"
        ) from None


def _about(number: int, line: str, why: str) -> GraphError:
    shown = line if len(line) <= 200 else f"{line[:197]}..."
    why = why if len(why) <= 1000 else f"{why[:997]}..."
    return GraphError(f"line {number} of the graph's text does not read: {why}\n  {shown}")
