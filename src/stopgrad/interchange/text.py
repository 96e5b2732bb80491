"""A graph as text, one operation a line, that reads back; and the same in a file, with its arrays.

::

    x: float32[n, 3] = Placeholder(dtype=float32, shape=(n, 3))
    Exp: float32[n, 3] = Exp(x)
    gradients/Mul: float32[n, 3] = Mul(gradients/Fill, Exp) for Exp

An operand is the name of an operation, with ``:i`` where it is not the first output. Small constants stand in
the line; large ones are ``array("name")`` and live in the file.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stopgrad.errors import GraphError
from stopgrad.files import AnyPath, as_dtype, read_arrays, write_arrays
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.op import REGISTRY, Literal, infer_types
from stopgrad.source import Location
from stopgrad.types import DTYPES, DType, TensorType, dtype_of, size_from_text, tensor_type

_INLINE = 16
Arrays = dict[str, np.ndarray[Any, Any]]


def to_text(graph: Graph) -> str:
    """The graph, an operation a line. Locations and the values of large constants are not in it."""
    return "".join(f"{_line(op, {})}\n" for op in graph.operations)


def from_text(text: str, arrays: Mapping[str, np.ndarray[Any, Any]] | None = None) -> Graph:
    """The graph that :func:`to_text` wrote.

    Raises
        GraphError: with the line that does not read, or whose types do not follow from its operands.

    >>> graph = sg.Graph.from_text('x: float32[n] = Placeholder(dtype=float32, shape=(n,))')
    >>> graph.operations
    (<Placeholder 'x'>,)
    """
    graph = Graph()
    named: dict[str, Operation] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                op = _read_line(graph, line, named, arrays or {})
            except (GraphError, SyntaxError, KeyError, ValueError, TypeError) as error:
                raise GraphError(f"line {number} of the graph's text does not read: {error}\n  {line.strip()}") from None
            named[op.name] = op
    return graph


def save(graph: Graph, path: AnyPath) -> None:
    """Write the graph with its arrays and locations to a file; an old file stays until the new one is whole."""
    arrays: Arrays = {}
    lines = [_line(op, arrays) for op in graph.operations]
    for op in graph.operations:
        if any(callable(value) and not isinstance(value, DType) for value in op.values):
            raise GraphError(f"{describe(op)} holds a Python function and cannot be saved")
    locations = [_location(op) for op in graph.operations]
    arrays["graph"] = np.frombuffer("\n".join(lines).encode(), np.uint8)
    arrays["locations"] = np.frombuffer(json.dumps(locations).encode(), np.uint8)
    write_arrays(path, arrays)


def load(path: AnyPath) -> Graph:
    """The graph that :func:`save` wrote."""
    arrays = read_arrays(path)
    if "graph" not in arrays or "locations" not in arrays:
        raise GraphError(f"{path} holds no graph; it was not written by Graph.save")
    graph = from_text(arrays["graph"].tobytes().decode(), arrays)
    for op, location in zip(graph.operations, json.loads(arrays["locations"].tobytes()), strict=True):
        op._place = Location(*location) if location else None
    return graph


Graph.to_text = to_text  # type: ignore[method-assign, assignment]
Graph.from_text = staticmethod(from_text)  # type: ignore[method-assign]
Graph.save = save  # type: ignore[method-assign, assignment]
Graph.load = staticmethod(load)  # type: ignore[method-assign]


# -------------------------------------------------------------------------------------------- writing


def _line(op: Operation, arrays: Arrays) -> str:
    types = ", ".join(map(repr, (y.type for y in op.outputs)))
    operands = [_reference(x) for x in op.inputs]
    attributes = [f"{name}={_value(value, f'{op.name}.{name}', arrays)}" for name, value in op.attributes.items()]
    origin = f" for {op.origin.name}" if op.origin is not None else ""
    return f"{op.name}: {types} = {op.type}({', '.join([*operands, *attributes])}){origin}"


def _reference(x: Output) -> str:
    return f"{x.op.name}:{x.index}" if x.index else x.op.name


def _value(value: Any, name: str, arrays: Arrays) -> str:
    if isinstance(value, Literal):
        array = value.array
        if array.size <= _INLINE and array.dtype.kind != "V" and bool(np.isfinite(array).all()):
            return f"array({array.tolist()!r})"
        arrays[name] = array
        return f'array("{name}")'
    if isinstance(value, tuple):
        inner = ", ".join(_value(v, name, arrays) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _location(op: Operation) -> Any:
    found = op.location if op.origin is None else None
    return [found.file, found.line, found.end_line, found.column, found.end_column, found.function] if found else None


# -------------------------------------------------------------------------------------------- reading

_LINE = re.compile(r"(?P<name>\S+): (?P<types>.*?) = (?P<type>\w+)\((?P<arguments>.*)\)(?: for (?P<origin>\S+))?\Z")
_TYPE = re.compile(r"(\w+)\[([^\]]*)\]")


def _read_line(graph: Graph, line: str, named: Mapping[str, Operation], arrays: Mapping[str, np.ndarray[Any, Any]]) -> Operation:
    match = _LINE.match(line.strip())
    if match is None:
        raise GraphError("expected 'name: type = Type(operands, attribute=value)'")
    definition = REGISTRY.get(match["type"])
    if definition is None:
        raise GraphError(f"there is no operation type {match['type']!r}")
    types = tuple(_read_type(m) for m in _TYPE.finditer(match["types"]))
    inputs: list[Output] = []
    given: dict[str, Any] = {}
    for argument in _arguments(match["arguments"]):
        attribute, equals, text = argument.partition("=")
        if equals and attribute in definition.attributes:
            given[attribute] = _read_value(ast.parse(text, mode="eval").body, types[0], arrays)
        else:
            inputs.append(_operand(argument, named))
    values = tuple(given[name] for name in definition.attributes)
    inferred = infer_types(definition, tuple(x.type for x in inputs), values)
    if inferred != types:
        raise GraphError(f"its type follows as {', '.join(map(repr, inferred))}")
    label = graph._label_for(match["name"])
    if label != match["name"]:
        raise GraphError(f"the name {match['name']!r} stands twice")
    origin = named[match["origin"]] if match["origin"] else None
    return Operation(graph, definition, tuple(inputs), values, types, label, None, origin)


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


def _read_type(match: re.Match[str]) -> TensorType:
    return tensor_type(dtype_of(match[1]), tuple(size_from_text(s) for s in _arguments(match[2])))


def _read_value(node: ast.expr, type: TensorType, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """An attribute's value; *type* is that of the result, which a constant's array has."""
    if isinstance(node, ast.Tuple):
        return tuple(_read_value(item, type, arrays) for item in node.elts)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "array":
        value = ast.literal_eval(node.args[0])
        if not isinstance(value, str):
            return Literal(np.array(value, type.dtype.numpy).reshape([int(s) for s in type.shape]))
        if value not in arrays:
            raise GraphError(f"the array {value!r} is not in the text; it is in the file that Graph.save writes")
        return Literal(as_dtype(arrays[value], type.dtype))
    if isinstance(node, ast.Name) and node.id in DTYPES:
        return dtype_of(node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return size_from_text(ast.unparse(node))
