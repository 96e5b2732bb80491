"""The nodes of a graph while it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from stopgrad.base.errors import EngineError
from stopgrad.base.types import Dim, Shape

Kind = tuple[np.dtype[Any], Shape]
"""A dtype and a shape."""


NO_COMPLEX = "runtimes of ONNX compute no complex numbers; write their real and imaginary parts"


class NotInOnnx(EngineError):  # noqa: N818 - a reason, not a mistake of somebody's
    """Something has no form in ONNX.

    Attributes:
        sizes: whether it has one if all sizes are known.
    """

    def __init__(self, message: str, sizes: bool = False) -> None:
        super().__init__(message)
        self.sizes = sizes


class Named(NamedTuple):
    """The name and the type of a value."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape


class Node(NamedTuple):
    """One application of an operator. An empty name of an input stands for one that is left out."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


class Body(NamedTuple):
    """A graph in an attribute of a loop or branch. It can use the values of the graph around it."""

    nodes: Sequence[Node]
    inputs: Sequence[Named]
    outputs: Sequence[Named]


class Function(NamedTuple):
    """A function of the model, in the domain of gates: nodes of its own, which see nothing outside.

    Attributes:
        inputs, outputs: the names of its values; calls may omit the last inputs.
        nodes: in order.
        attributes: the names of those that calls have.
        constants: arrays by name.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: Sequence[Node]
    attributes: Sequence[str] = ()
    constants: Mapping[str, np.ndarray[Any, Any]] = {}


class Nodes:
    """The nodes of a graph or body, in order. Equal nodes are written once.

    Attributes:
        opset: the version of ONNX's operators.
        written: the nodes.
        constants: arrays by name; they belong to the outermost graph.
        types: dtypes and shapes of all values by name, bodies included.
        functions: of the model, by name; those of its functions, too.
        made: the node that makes each value, bodies included.
        here: the names of values that are made in this graph or body itself.
        results: for values that are results of operations, the names of these operations.
        origins: for values that are known, where they come from, or their arrays; see :mod:`known`.
        place: the name of the operation that is being written, with which new names begin.
    """

    place: str

    def __init__(
        self, opset: int, outer: Nodes | None = None, functions: dict[str, Function] | None = None
    ) -> None:
        self.opset = opset
        self.outer = outer
        self.written: list[Node] = []
        self._outputs_of: dict[Any, tuple[str, ...]] = {}
        self.made: dict[str, Node] = {} if outer is None else outer.made
        self.here: set[str] = set()
        if outer is None:
            self.constants: dict[str, np.ndarray[Any, Any]] = {}
            self.types: dict[str, Kind] = {}
            self.functions: dict[str, Function] = {} if functions is None else functions
            self.results: dict[str, str] = {}
            self.origins: dict[str, Any] = {}
            self._arrays: dict[Any, str] = {}
            self._taken: dict[str, int] = {"": 1}
        else:
            self.constants, self.types, self.functions = outer.constants, outer.types, outer.functions
            self.results, self.origins = outer.results, outer.origins
            self._arrays, self._taken = outer._arrays, outer._taken
        self.place = "" if outer is None else outer.place

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """A context in which new names begin with *place*."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def unique(self, name: str) -> str:
        """*name* itself, or with a number behind it if it is taken."""
        while True:
            count = self._taken.get(name, 0)
            self._taken[name] = count + 1
            if count == 0:
                return name
            name = f"{name}_{count}"

    def declare(self, name: str, dtype: npt.DTypeLike, shape: Shape) -> str:
        """Declare a new value of this type, and return its name."""
        unique_name = self.unique(name)
        self.has_type(unique_name, dtype, shape)
        return unique_name

    def has_type(self, name: str, dtype: npt.DTypeLike, shape: Shape) -> None:
        """Record the type of a value."""
        dtype = np.dtype(dtype)
        if dtype.kind == "c":
            raise NotInOnnx(NO_COMPLEX)
        self.types[name] = (dtype, tuple(shape))

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        types: Sequence[Kind],
        domain: str = "",
        /,
        **attributes: object,
    ) -> tuple[str, ...]:
        """Write a node whose outputs have these types, and return their names."""
        key = (op_type, domain, tuple(inputs), len(types), _key(attributes))
        writer: Nodes | None = None if domain else self  # Equal gates are not merged.
        while writer is not None:
            if key in writer._outputs_of:
                return writer._outputs_of[key]
            writer = writer.outer
        outputs = tuple(self.declare(self._scoped(op_type), *kind) for kind in types)
        node = Node(op_type, domain, outputs[0], tuple(inputs), outputs, attributes)
        self.written.append(node)
        self.made.update(dict.fromkeys(outputs, node))
        self.here.update(outputs)
        if key[-1] is not None and not domain:
            self._outputs_of[key] = outputs
        return outputs

    def _scoped(self, op_type: str) -> str:
        return f"{self.place}/{op_type}" if self.place else op_type

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        """The name of a constant; equal arrays share one name."""
        array = np.asarray(array)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        name = self._arrays.get(key)
        if name is None:
            name = self.declare(f"{self.place}/const" if self.place else "const", array.dtype, array.shape)
            self._arrays[key] = name
            self.constants[name] = array
        return name


def _key(attributes: Mapping[str, Any]) -> Any:
    """A key by which attributes are compared; None if there is a body among them."""
    parts = []
    for name, value in sorted(attributes.items()):
        if isinstance(value, Body):
            return None
        if isinstance(value, np.ndarray):
            value = (value.dtype.str, value.dtype.name, value.shape, value.tobytes())
        elif isinstance(value, (list, tuple)):
            value = tuple(map(repr, value))
        parts.append((name, repr(value)))
    return tuple(parts)


def is_known(shape: Sequence[Any]) -> TypeGuard[Sequence[int]]:
    """Whether all sizes are numbers."""
    return not any(isinstance(size, Dim) for size in shape)
