"""Walks over a graph: each node becomes operations of ours, whose source line shows the node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import stopgrad as sg
from stopgrad.base.errors import FileError
from stopgrad.base.source import Location
from stopgrad.graph.builder import Inside
from stopgrad.interop.shared.building import FAILED, Building, scope_from, stored_parameter
from stopgrad.interop.shared.inlining import DEEPEST
from stopgrad.interop.tensorflow.bundle import Bundle
from stopgrad.interop.tensorflow.capturing import Live
from stopgrad.interop.tensorflow.custom_gradients import called, marked
from stopgrad.interop.tensorflow.evidence import Weights
from stopgrad.interop.tensorflow.folding import folded
from stopgrad.interop.tensorflow.function_library import Library
from stopgrad.interop.tensorflow.nodes import Body, Node, Source
from stopgrad.interop.tensorflow.objects import OUTSIDE
from stopgrad.interop.tensorflow.operators import OPERATORS
from stopgrad.interop.tensorflow.operators.calling import Call, Function, Known, Refused
from stopgrad.interop.tensorflow.operators.drawing import DRAWING
from stopgrad.interop.tensorflow.operators.variables import Variable
from stopgrad.interop.tensorflow.reading import array_from, attribute_value, numpy_type

_EXPANDED = 30_000
_EXPANSION = 16
"""The most nodes into which a graph may expand by functions and loops, and how many more for each node."""
_READS_REFERENCES = frozenset({"Assign", "AssignAdd", "AssignSub"})
_OWN = frozenset({"Const", "Placeholder", "RestoreV2"})
"""The operations that the translator itself knows."""

KNOWN_OPERATIONS = frozenset(OPERATORS) | _OWN


def most_nodes(count: int) -> int:
    """The most nodes into which a graph of so many may expand by functions and loops."""
    return _EXPANDED + _EXPANSION * count


class Space:
    """What the nodes of a graph or function can see.

    Attributes:
        values: the results of nodes, by their names; an argument is a node with one result.
        attributes: the values of attributes that a function leaves open.
        path: the names of the calls around, each followed by a slash.
        depth: how many calls are around.
    """

    __slots__ = ("attributes", "body", "depth", "path", "values")

    body: Body
    values: dict[str, Sequence[Any]]
    attributes: Mapping[str, Any] | dict[str, Any]
    path: str
    depth: int

    def __init__(
        self,
        body: Body,
        values: Mapping[str, Sequence[Any]],
        attributes: Mapping[str, Any] | None = None,
        path: str = "",
        depth: int = 0,
    ) -> None:
        self.body, self.values, self.attributes = body, dict(values), attributes or {}
        self.path, self.depth = path, depth

    def read(self, source: Source) -> Any:
        """A result; ``FAILED`` if its node could not be translated."""
        results: Any = self.values.get(source[0], FAILED)
        if results is FAILED:
            return FAILED
        if source[1] >= len(results):
            raise Refused(f"it reads result {source[1]} of {source[0]!r}, which has only {len(results)} here")
        return results[source[1]]


class Translator(Building):
    """Translates a graph into the graph that is being built.

    Attributes:
        library: its functions.
        parameters: made of constants and variables, by name.
        bundle: the checkpoint that ``RestoreV2`` reads.
        placeholders: the values of placeholders, by name.
        weights: which variables and constants are parameters.
        outermost: what the nodes around all functions can see.
    """

    outermost: Space
    library: Library
    bundle: Bundle | None
    weights: Weights

    def __init__(
        self,
        library: Library,
        file: str,
        count: int,
        weights: Weights,
        bundle: Bundle | None = None,
        live: Live | None = None,
    ) -> None:
        super().__init__()
        self.library, self.bundle = library, bundle
        self.parameters: dict[str, Any] = {}
        self.placeholders: dict[str, Any] = {}
        self.variables: dict[str, Variable] = {}
        self._file, self.weights, self._live = file, weights, live
        self._limit = most_nodes(count)
        self._expanded = 0
        self._lines: dict[str, int] = {}
        self._constants: dict[int, Known] = {}
        self._inside: list[Any] = []  # The steps of the loops around, None for branches.

    # ------------------------------------------------------------------------------------------ graphs

    def run(self, body: Body, wanted: Sequence[Source], space: Space) -> list[Any]:
        """Translate what results need; the results."""
        for node in self.library.order(body, wanted):
            self.translate(node, space)
        return [self._output(space, source) for source in wanted]

    def _output(self, space: Space, source: Source) -> Any:
        """A result; one that its node does not have is noted as a refusal."""
        results = self.attempted(f"the output {source[0]!r}", lambda: (space.read(source),))
        return results if results is FAILED else results[0]

    def call(
        self,
        function: Function,
        args: Sequence[Any],
        path: str,
        depth: int,
        wanted: Sequence[Source] | None = None,
    ) -> list[Any]:
        """Build a function's body for these arguments; its results, or others of its nodes."""
        body = self.library.body(function.name)
        if depth >= DEEPEST:
            raise FileError(f"{self._file}: functions call one another more than {DEEPEST} deep")
        if len(args) != len(body.arguments):
            raise Refused(f"{body.name} takes {len(body.arguments)} arguments and is given {len(args)}")
        arguments = {argument.name: [x] for argument, x in zip(body.arguments, args, strict=True)}
        space = Space(body, arguments, function.attributes, path, depth)
        before = len(self.refusals)
        for node in self.library.order(body, wanted):
            self.translate(node, space)
        results = [space.read(source) for source in (body.outputs if wanted is None else wanted)]
        if any(x is FAILED for x in results):
            reasons = list(dict.fromkeys(map(str, self.refusals[before:])))
            del self.refusals[before:]
            raise Refused("; ".join(["its function cannot be translated", *reasons]))
        return results

    def outside(self, source: Source) -> Any:
        """A variable or constant of the graph around all functions."""
        if source[0] not in self.outermost.values:
            self.translate(self.outermost.body.nodes[source[0]], self.outermost)
        return self.outermost.read(source)

    # ------------------------------------------------------------------------------------------- nodes

    def translate(self, node: Node, space: Space) -> None:
        """Build a node; its results are noted in *space*."""
        self._expanded += 1
        if self._expanded > self._limit:
            raise FileError(f"the functions and loops of {self._file} become more than {self._limit} nodes")
        name = space.path + node.name
        place = self._location(node, name, space)
        with Inside(prefix=scope_from(name), place=(place, 0)):
            results = self.attempted(f"{node.op} {name!r}", lambda: self._results(node, name, space))
        space.values[node.name] = results

    def _location(self, node: Node, name: str, space: Space) -> Location:
        """The user's line that made a node, where it is known; else a line that shows the node."""
        if self._live is not None:
            around = OUTSIDE if space.body is self.outermost.body else space.body.name
            location = self._live.place(around, node.name)
            if location is not None:
                return location
        line = self._lines.setdefault(name, len(self._lines) + 1)
        return Location(self._file, line, source=_described(node, name), function=name)

    def _results(self, node: Node, name: str, space: Space) -> Sequence[Any]:
        operands = [self._operand(node, space.read(source)) for source in node.inputs]
        if any(x is FAILED for x in operands):
            return FAILED  # type: ignore[return-value]
        if node.op in _OWN:
            return self._own(node, name, space, operands)
        call = self._call_of(node, name, space, operands)
        if node.op in self.library:
            return called(call, node.op)
        rule = OPERATORS.get(node.op)
        if rule is None:
            raise Refused("there is no such operation here")
        constants = folded(call, operands, rule) if _is_foldable(call) else None
        if constants is not None:
            return constants
        mark = call.attribute("_gradient_op_type")
        if mark is not None and "f" not in node.attributes:
            return marked(call, rule, mark)
        result = call.ruled(rule)
        return () if result is None else result if isinstance(result, tuple) else (result,)

    def _operand(self, node: Node, x: object) -> Any:
        """An operand; what reads a reference to a variable reads the variable."""
        if isinstance(x, Variable) and x.is_reference and node.op not in _READS_REFERENCES:
            if x.value is None:
                raise Refused(
                    f"it reads the variable {x.name!r}, which has no value: freeze the graph before"
                )
            return x.value
        return x

    def _call_of(self, node: Node, name: str, space: Space, operands: Sequence[Any]) -> Call:
        what = f"of {node.op} {name!r}"
        attributes = {
            key: attribute_value(value, space.attributes, f"the attribute {key} {what}")
            for key, value in node.attributes.items()
            if key != "_class"
        }
        around = {**space.attributes, **node.attributes}
        return Call(node.op, name, node.outputs, attributes, operands, self, around, space.depth, space)

    def _own(self, node: Node, name: str, space: Space, operands: Sequence[Any]) -> Sequence[Any]:
        if node.op == "Const":
            return (self._constant(node, name, space),)
        if node.op == "Placeholder":
            if name not in self.placeholders:
                raise Refused("it is a placeholder that nothing feeds")
            return (self.placeholders[name],)
        return self._restored(node, name, operands)

    def _constant(self, node: Node, name: str, space: Space) -> Known:
        """A constant, or the parameter that is stored as one."""
        if id(node) not in self._constants:
            value = node.attributes.get("value")
            if value is None or value.WhichOneof("value") != "tensor":
                raise Refused("it has no value")
            array = array_from(value.tensor, f"the constant {name!r}")
            constant = Known(array)
            carries = constant.dtype is not None and constant.dtype.is_differentiable and not self._inside
            if carries and self.weights.constant((space.body.name, node.name), name):
                unique = name if name not in self.parameters else f"{name}_{len(self.parameters)}"
                constant = stored_parameter(array, unique, self._file, "Const")
                self.parameters[unique] = constant.output
            self._constants[id(node)] = constant
        return self._constants[id(node)]

    # --------------------------------------------------------------------------------------- variables

    def variable(self, name: str, is_reference: bool) -> Variable:
        """The variable of a name."""
        variable = self.variables.setdefault(name, Variable(name, is_reference))
        if isinstance(variable.value, Stored):
            self._fill(variable, variable.value.read())
        return variable

    def held(self, name: str, array: np.ndarray[Any, Any], is_trained: bool) -> Variable:
        """A variable of a running program."""
        variable = self.variables.setdefault(name, Variable(name))
        self._fill(variable, array, is_trained)
        return variable

    def _fill(self, variable: Variable, array: np.ndarray[Any, Any], is_trained: bool = True) -> None:
        """Give a variable its stored value, which is a parameter if it is trained."""
        value = variable.value = Known(array)
        carries = value.dtype is not None and value.dtype.is_differentiable
        if carries and self.weights.variable(variable.name, is_trained):
            variable.value = stored_parameter(array, variable.name, self._file, "variable")
            self.parameters[variable.name] = variable.value.output

    def write(self, variable: Variable, value: Any) -> None:
        """Give a variable another value."""
        if self._inside:
            raise Refused(f"it writes the variable {variable.name!r} in a loop or branch, which is not read")
        variable.value = value

    def _restored(self, node: Node, name: str, operands: Sequence[Any]) -> Sequence[Any]:
        """The tensors of the checkpoint that a node asks for."""
        names = self.known(operands[1]) if len(operands) == 3 else None
        slices = self.known(operands[2]) if len(operands) == 3 else None
        if self.bundle is None or names is None or slices is None:
            raise Refused("it reads a checkpoint, and there is none")
        if any(slices.array.reshape(-1).tolist()):
            raise Refused("it reads slices of variables")
        types = node.attributes["dtypes"].list.type
        return [
            Stored(self.bundle, key.decode(errors="replace"), number)
            for key, number in zip(names.array.reshape(-1).tolist(), types, strict=True)
        ]

    # ------------------------------------------------------------------------------------------ control

    @contextmanager
    def inside(self, step: Any = None) -> Iterator[None]:
        """A context for the body of a branch, or of a loop at this step."""
        self._inside.append(step)
        try:
            yield
        finally:
            self._inside.pop()

    def next_key(self, seed: int, seed2: int) -> Any:
        """A random key: from seeds, or a different one for each node; and for each step of a loop."""
        if seed or seed2:
            key: Any = sg.constant(np.array([seed & 0xFFFFFFFF, seed2 & 0xFFFFFFFF], np.uint32))
        else:
            key = self.new_key()
        for step in self._inside:
            key = key if step is None else sg.random_fold_in(key, step)
        return key


class Stored:
    """A tensor of a checkpoint that has not been read."""

    __slots__ = ("bundle", "key", "number")

    bundle: Bundle
    key: str
    number: int

    def __init__(self, bundle: Bundle, key: str, number: int) -> None:
        self.bundle, self.key, self.number = bundle, key, number

    def read(self) -> np.ndarray[Any, Any]:
        """The tensor."""
        return self.bundle.read(self.key, numpy_type(self.number, f"the variable {self.key!r}"))


def _is_foldable(call: Call) -> bool:
    return call.op_type not in DRAWING and not any(isinstance(x, Function) for x in call.attributes.values())


def _described(node: Node, name: str) -> str:
    """A node as messages and reports show it in place of a line."""
    inputs = ", ".join([x if not i else f"{x}:{i}" for x, i in node.inputs][:8])
    return f"{node.op} {name!r} ({inputs}{', ...' if len(node.inputs) > 8 else ''})"
