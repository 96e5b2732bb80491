"""A digest of what a graph computes, which is the same in every process."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stopgrad.base.dtypes import DType
from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output, describe
from stopgrad.graph.operands import Literal, NumpyArray


def fingerprint(inputs: Sequence[Output], outputs: Sequence[Output], blocks: bool = False) -> str | None:
    """A digest that is equal for graphs of the same operations, whatever their names and locations.

    None if some operations are not from this package: what these compute may change at any time; and if some
    call functions of Python. With *blocks*, graphs that are rewritten in different ways differ, too: those
    whose operations stand in different ``no_gradient`` blocks.
    """
    if outputs and outputs[0].op.graph.acting:
        return None
    digest = hashlib.sha256(_sources().encode())
    ours: set[Any] = set()
    numbers: dict[Any, int] = {}
    for op, line in _lines(inputs, outputs):
        if op is not None:
            if op.definition not in ours:
                if not op.definition.__module__.startswith("stopgrad."):
                    return None
                ours.add(op.definition)
            if blocks and op.graph._hidden:
                line += f" in {numbers.setdefault(op.graph._hidden.get(op), len(numbers))}"
        digest.update(line.encode())
    return digest.hexdigest()


def lines_of(inputs: Sequence[Output], outputs: Sequence[Output]) -> tuple[list[str], Callable[[int], str]]:
    """A line for each operation, to compare with other processes.

    Returns:
        the lines; and a function that returns the text of a line for the user, by its number.
    """
    lines = [*_lines(inputs, outputs)]

    def shown(i: int) -> str:
        op, line = lines[i]
        return line if op is None else _operation_text(op)

    return [line for _, line in lines], shown


def _operation_text(op: Operation) -> str:
    values = [_value_text(value) for value in op.values]
    return f"{describe(op)}, of {', '.join([*[x.name for x in op.inputs], *values]) or 'nothing'}"


def _value_text(value: object) -> str:
    if isinstance(value, Literal):
        array = value.array
        few = repr(array.tolist()) if array.size <= _FEW else digest(array)[:12]
        return f"{array.dtype.name}{list(array.shape)} {few}"
    return "a body" if isinstance(value, Body) else repr(value)


_FEW = 8
"""The most numbers of an array that a user is shown."""


def _lines(inputs: Sequence[Output], outputs: Sequence[Output]) -> Iterator[tuple[Operation | None, str]]:
    """For a graph and the bodies in it: the inputs, the operations in order, and the results."""
    bodies: dict[Body, int] = {}
    heads: dict[Any, str] = {}
    todo: list[tuple[Sequence[Output], Sequence[Output | None]]] = [(inputs, outputs)]
    for parameters, results in todo:  # The list grows with bodies that are found.
        numbers = {x.op: n for n, x in enumerate(parameters)}
        yield None, repr([(_type(x), numbers[x.op]) for x in parameters])
        present = [y for y in results if y is not None]
        for op in present[0].op.graph.subgraph_to(present) if present else ():
            if op not in numbers:
                numbers[op] = len(numbers)
                read = " ".join([f"{numbers[x.op]}:{x.index}" for x in op.inputs])
                yield op, f"{_head(op, heads, bodies)} of {read}"
        yield None, repr([None if y is None else (numbers[y.op], y.index) for y in results])
        todo.extend([(body.inputs, body.outputs) for body in [*bodies][len(todo) - 1 :]])


def _head(op: Operation, heads: dict[Any, str], bodies: dict[Body, int]) -> str:
    """The type, attributes and results of an operation, written once for those that share them."""
    definition = op.definition
    if not definition.merged:
        return _written(op, bodies)
    key = (definition, definition.identity(op.values), *[y.type for y in op.outputs])
    head = heads.get(key)
    if head is None:
        head = heads[key] = _written(op, bodies)
    return head


def _written(op: Operation, bodies: dict[Body, int]) -> str:
    values = [_value(value, bodies) for value in op.values]
    return repr((op.definition.type, values, [_type(y) for y in op.outputs]))


def _type(x: Output) -> tuple[str, tuple[str, ...]]:
    return x.dtype.name, tuple([str(size) for size in x.shape])


def _value(value: object, bodies: dict[Body, int]) -> str:
    if isinstance(value, Body):
        return f"body {bodies.setdefault(value, len(bodies))}"
    if isinstance(value, tuple):
        return f"({','.join([_value(v, bodies) for v in value])})"
    if isinstance(value, Literal):
        array = value.array
        return f"{array.dtype.name}{array.shape} {digest(array)}"
    return value.name if isinstance(value, DType) else repr(value)


def digest(array: NumpyArray) -> str:
    """A digest of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


@functools.lru_cache(1)
def _sources() -> str:
    """A digest of the package's own code, which defines what operations compute."""
    package = Path(__file__).parents[1]
    files = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".cc", ".h"))
    return repr([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files])
