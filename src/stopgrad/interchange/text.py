"""A graph as text, one operation a line, that reads back; and the same in a file, with its arrays.

::

    x: float32[n, 3] = Placeholder(dtype=float32, shape=(n, 3))
    Exp: float32[n, 3] = Exp(x)
    gradients/Mul: float32[n, 3] = Mul(gradients/Fill, Exp) for Exp

An operand is the name of an operation, with ``:i`` where it is not the first output. Small constants stand in
the line; large ones are ``array("name")`` and live in the file. What a ``no_gradient`` block hides says so
(``inside no_gradient 1``). The graphs of bodies stand before the operation that runs them::

    graph 1 {
      h: float32[] = Placeholder(dtype=float32, shape=())
      Exp: float32[] = Exp(h)
    }
    While: float32[] = While(x, body=body(1, ("h",), ("Exp",)))

Unknown sizes are numbered in each text anew (``_1``): they equal no size of any other graph.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.body import Body, bodies_in
from stopgrad.build import infer_types
from stopgrad.builder import Region
from stopgrad.errors import GraphError
from stopgrad.files import AnyPath, as_dtype, read_arrays, write_arrays
from stopgrad.graph import Graph, Operation, Output
from stopgrad.op import REGISTRY
from stopgrad.operands import Literal
from stopgrad.source import Location
from stopgrad.types import DTYPES, FRESH, Dim, DType, TensorType, dim, dtype_of, size_from_text, tensor_type

_INLINE = 16
Arrays = dict[str, np.ndarray[Any, Any]]
Read = Mapping[str, np.ndarray[Any, Any]]


def to_text(graph: Graph) -> str:
    """The graph, an operation a line. Locations and the values of large constants are not in it."""
    return "".join(f"{line}\n" for line in _Writer({}).lines(graph, ""))


def from_text(text: str, arrays: Read | None = None) -> Graph:
    """The graph that :func:`to_text` wrote.

    Raises:
        GraphError: with the line that does not read, or whose types do not follow from its operands.

    Examples:
        >>> graph = sg.Graph.from_text('x: float32[n] = Placeholder(dtype=float32, shape=(n,))')
        >>> graph.operations
        (<Placeholder 'x'>,)
    """
    return _Reader(arrays or {}).read(text)[""]


def save(graph: Graph, path: AnyPath) -> None:
    """Write the graph with its arrays and locations to a file.

    An old file stays until the new one is whole.
    """
    arrays: Arrays = {}
    writer = _Writer(arrays)
    lines = writer.lines(graph, "")
    graphs = {"": graph, **{name: inner for inner, name in writer.graphs.items()}}
    locations = {name: [_location(op) for op in inner.operations] for name, inner in graphs.items()}
    arrays["graph"] = np.frombuffer("\n".join(lines).encode(), np.uint8)
    arrays["locations"] = np.frombuffer(json.dumps(locations).encode(), np.uint8)
    write_arrays(path, arrays)


def load(path: AnyPath) -> Graph:
    """The graph that :func:`save` wrote."""
    arrays = read_arrays(path)
    if "graph" not in arrays or "locations" not in arrays:
        raise GraphError(f"{path} holds no graph; it was not written by Graph.save")
    graphs = _Reader(arrays).read(arrays["graph"].tobytes().decode())
    for name, locations in json.loads(arrays["locations"].tobytes()).items():
        for op, location in zip(graphs[name].operations, locations, strict=True):
            op._place = Location(*location) if location else None
    return graphs[""]


Graph.to_text = to_text  # type: ignore[method-assign, assignment]
Graph.from_text = staticmethod(from_text)  # type: ignore[method-assign]
Graph.save = save  # type: ignore[method-assign, assignment]
Graph.load = staticmethod(load)  # type: ignore[method-assign]


# -------------------------------------------------------------------------------------------- writing


class _Writer:
    """Writes a graph and the graphs of its bodies; keeps what is numbered: graphs, unknown sizes, blocks."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.graphs: dict[Graph, str] = {}
        self._sizes: dict[str, str] = {}
        self._blocks: dict[Region, str] = {}

    def lines(self, graph: Graph, indent: str) -> list[str]:
        found: list[str] = []
        settled = 0
        while settled < len(graph):  # To settle one may build others.
            op = graph._operations[settled]
            op.definition.settle(op)
            settled += 1
        for op in graph.operations:
            for body in bodies_in(op.values):
                if body.graph not in self.graphs:
                    name = self.graphs[body.graph] = str(len(self.graphs) + 1)
                    found += [
                        f"{indent}graph {name} {{",
                        *self.lines(body.graph, indent + "  "),
                        f"{indent}}}",
                    ]
            found.append(indent + self._line(op))
        return found

    def _line(self, op: Operation) -> str:
        types = ", ".join(self._type(y.type) for y in op.outputs)
        operands = [_reference(x) for x in op.inputs]
        attributes = [
            f"{name}={self._value(value, f'{self.graphs.get(op.graph, str())}:{op.name}.{name}')}"
            for name, value in op.attributes.items()
        ]
        region = op.graph._hidden.get(op)
        inside = f" inside no_gradient {self._block(region)}" if region is not None else ""
        origin = f" for {op.origin.name}" if op.origin is not None and op.origin.graph is op.graph else ""
        return f"{op.name}: {types} = {op.type}({', '.join([*operands, *attributes])}){inside}{origin}"

    def _block(self, region: Region) -> str:
        if region not in self._blocks:
            outer = f"{self._block(region.outer)}/" if region.outer is not None else ""
            self._blocks[region] = f"{outer}{len(self._blocks) + 1}"
        return self._blocks[region]

    def _size(self, size: int | Dim) -> str:
        text = repr(size)
        renamed = FRESH.sub(lambda m: self._sizes.setdefault(m[0], f"_{len(self._sizes) + 1}"), text)
        # A sum is written in the order of the text's own names, so that reading and writing change nothing.
        return renamed if renamed == text else repr(size_from_text(renamed, reserved=True))

    def _type(self, type: TensorType) -> str:
        return f"{type.dtype.name}[{', '.join(map(self._size, type.shape))}]"

    def _value(self, value: Any, name: str) -> str:
        if isinstance(value, Literal):
            array = value.array
            if array.size <= _INLINE and array.dtype.kind != "V" and bool(np.isfinite(array).all()):
                return f"array({array.tolist()!r})"
            self.arrays[name] = array
            return f'array("{name}")'
        if isinstance(value, Body):
            inputs = self._value(tuple(map(_reference, value.inputs)), name)
            outputs = self._value(tuple(None if y is None else _reference(y) for y in value.outputs), name)
            return f"body({self.graphs[value.graph]}, {inputs}, {outputs})"
        if isinstance(value, tuple):
            inner = ", ".join(self._value(v, name) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, slice):
            parts = (self._value(v, name) for v in (value.start, value.stop, value.step))
            return f"slice({', '.join(parts)})"
        if isinstance(value, DType):
            return value.name
        return self._size(value) if isinstance(value, Dim) else repr(value)


def _reference(x: Output) -> str:
    return f"{x.op.name}:{x.index}" if x.index else x.op.name


def _location(op: Operation) -> list[Any] | None:
    found = op.location
    if found is None:
        return None
    return [found.file, found.line, found.end_line, found.column, found.end_column, found.function]


# -------------------------------------------------------------------------------------------- reading

_LINE = re.compile(
    r"(?P<name>\S+): (?P<types>.*?) = (?P<type>\w+)\((?P<arguments>.*)\)"
    r"(?: inside no_gradient (?P<block>[\d/]+))?(?: for (?P<origin>\S+))?\Z"
)
_TYPE = re.compile(r"(\w+)\[([^\]]*)\]")
_GRAPH = re.compile(r"graph (\d+) \{\Z")


class _Reader:
    """Reads what :class:`_Writer` wrote."""

    def __init__(self, arrays: Read) -> None:
        self._arrays = arrays
        self._graphs: dict[str, Graph] = {}
        self._named: dict[str, dict[str, Operation]] = {}
        self._sizes: dict[str, str] = {}
        self._blocks: dict[str, Region] = {}

    def read(self, text: str) -> dict[str, Graph]:
        """All graphs of the text by their numbers; the whole one by the empty string."""
        open_graphs = [self._begin("")]
        for number, line in enumerate(text.splitlines(), 1):
            stripped = line.strip()
            match = _GRAPH.match(stripped)
            try:
                if match:
                    open_graphs.append(self._begin(match[1]))
                elif stripped == "}":
                    open_graphs.pop()
                    self._graphs[open_graphs[-1]]  # One brace too many is an error, too
                elif stripped:
                    self._read_line(open_graphs[-1], stripped)
            except (GraphError, SyntaxError, KeyError, ValueError, TypeError, IndexError) as error:
                raise GraphError(
                    f"line {number} of the graph's text does not read: {error}\n  {stripped}"
                ) from None
        if len(open_graphs) > 1:
            raise GraphError(
                f"the graph's text ends inside graph {open_graphs[-1]}; a closing brace is missing"
            )
        return self._graphs

    def _begin(self, name: str) -> str:
        if name in self._graphs:
            raise GraphError(f"graph {name} stands twice")
        self._graphs[name], self._named[name] = Graph(), {}
        return name

    def _read_line(self, where: str, line: str) -> None:
        graph, named = self._graphs[where], self._named[where]
        match = _LINE.match(line)
        if match is None:
            raise GraphError("expected 'name: type = Type(operands, attribute=value)'")
        definition = REGISTRY.get(match["type"])
        if definition is None:
            raise GraphError(f"there is no operation type {match['type']!r}")
        types = tuple(self._type(m) for m in _TYPE.finditer(match["types"]))
        inputs: list[Output] = []
        given: dict[str, Any] = {}
        for argument in _arguments(match["arguments"]):
            attribute, equals, text = argument.partition("=")
            if equals and attribute in definition.attributes:
                given[attribute] = self._value(ast.parse(text, mode="eval").body, types)
            else:
                inputs.append(_operand(argument, named))
        values = tuple(given[name] for name in definition.attributes)
        inferred = infer_types(definition, tuple(x.type for x in inputs), values)
        if inferred != types:
            raise GraphError(f"its type follows as {', '.join(map(repr, inferred))}")
        label = graph.names.label("", match["name"])
        if label != match["name"]:
            raise GraphError(f"the name {match['name']!r} stands twice")
        origin = named[match["origin"]] if match["origin"] else None
        region = self._block(match["block"]) if match["block"] else None
        op = Operation(graph, definition, tuple(inputs), values, types, label, None, origin, region)
        named[op.name] = op

    def _block(self, path: str) -> Region:
        if path not in self._blocks:
            outer = path.rpartition("/")[0]
            self._blocks[path] = Region(self._block(outer) if outer else None, None)
        return self._blocks[path]

    def _size(self, text: str) -> int | Dim:
        return size_from_text(
            FRESH.sub(lambda m: self._sizes.setdefault(m[0], repr(dim())), text), reserved=True
        )

    def _type(self, match: re.Match[str]) -> TensorType:
        return tensor_type(dtype_of(match[1]), tuple(self._size(s) for s in _arguments(match[2])))

    def _value(self, node: ast.expr, types: Sequence[TensorType]) -> Any:
        """An attribute's value; *types* are those of the results: a constant's array has the first."""
        match node:
            case ast.Tuple(elts=items):
                return tuple(self._value(item, types) for item in items)
            case ast.Call(func=ast.Name(id="array"), args=[array]):
                return self._array(ast.literal_eval(array), types[0])
            case ast.Call(func=ast.Name(id="slice"), args=parts):
                return slice(*(self._value(part, types) for part in parts))
            case ast.Call(func=ast.Name(id="body"), args=[ast.Constant(value=number), inputs, outputs]):
                named = self._named[str(number)]
                return Body(
                    self._graphs[str(number)],
                    [_operand(x, named) for x in ast.literal_eval(inputs)],
                    [None if y is None else _operand(y, named) for y in ast.literal_eval(outputs)],
                )
            case ast.Name(id=name) if name in DTYPES:
                return dtype_of(name)
        try:
            return ast.literal_eval(node)
        except ValueError:
            return self._size(ast.unparse(node))

    def _array(self, value: Any, type: TensorType) -> Literal:
        if not isinstance(value, str):
            return Literal(np.array(value, type.dtype.numpy).reshape([int(s) for s in type.shape]))
        if value not in self._arrays:
            raise GraphError(
                f"the array {value!r} is not in the text; it is in the file that Graph.save writes"
            )
        return Literal(as_dtype(self._arrays[value], type.dtype))


def _operand(reference: str, named: Mapping[str, Operation]) -> Output:
    name, _, index = reference.partition(":")
    if name not in named:
        raise GraphError(f"no earlier operation is named {name!r}")
    return named[name].outputs[int(index or 0)]


def _arguments(text: str) -> Iterator[str]:
    """The parts between commas that stand outside of brackets and quotes."""
    depth, start, quoted = 0, 0, ""
    for i, character in enumerate(text):
        if quoted:
            quoted = "" if character == quoted and text[i - 1] != "\\" else quoted
        elif character in "'\"":
            quoted = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()
