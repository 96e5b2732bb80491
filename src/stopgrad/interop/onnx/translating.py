"""Walks over a model: each node becomes operations of ours, whose source line shows the node."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.defs import OpSchema

import stopgrad as sg
from stopgrad.base.errors import FileError
from stopgrad.base.source import Location
from stopgrad.base.types import DType
from stopgrad.graph.build import apply, local
from stopgrad.graph.builder import Inside
from stopgrad.graph.op import Op
from stopgrad.interop.onnx.checking import gate_of, gradient_of, is_custom
from stopgrad.interop.onnx.folding import folded
from stopgrad.interop.onnx.large_arrays import Place
from stopgrad.interop.onnx.nodes import called, domain_of, live, text
from stopgrad.interop.onnx.operators import OPERATORS
from stopgrad.interop.onnx.operators.calling import Body, Call, Known, Refused, Rule, Value
from stopgrad.interop.onnx.reading import array_from, attribute_value, dense_from, opsets
from stopgrad.interop.onnx.schemas import body_of, check_against, defaults_of, schema_of
from stopgrad.interop.shared.building import FAILED, Building, label_from, scope_from
from stopgrad.interop.shared.inlining import DEEPEST
from stopgrad.ops.gates.custom import given_gradient

_EXPANDED = 30_000
_EXPANSION = 16
"""The most nodes into which a model may expand by functions and loops, and how many more for each node."""


class Named(NamedTuple):
    """A node as messages name it, and the line that reports show."""

    what: str
    place: Location


class Space:
    """The names that the nodes of a graph or function can see.

    Attributes:
        values: outputs, :class:`Known` values and lists of them, by name.
        versions: of the domains.
        attributes: of the function that is being read, as ``AttributeProto``, by name.
        path: the names of the calls around, each followed by a slash.
        depth: how many calls are around.
        operator: in the body of an operator, the node that messages and reports name instead of those inside.
    """

    __slots__ = ("attributes", "depth", "operator", "path", "values", "versions")

    values: ChainMap[str, Any]
    versions: Mapping[str, int]
    attributes: Mapping[str, Any] | dict[str, Any]
    path: str
    depth: int
    operator: Named | None

    def __init__(
        self,
        values: ChainMap[str, Any],
        versions: Mapping[str, int],
        attributes: Mapping[str, Any] | None = None,
        path: str = "",
        depth: int = 0,
        operator: Named | None = None,
    ) -> None:
        self.values, self.versions, self.attributes = values, versions, attributes or {}
        self.path, self.depth, self.operator = path, depth, operator

    def below(self, names: Mapping[str, Any]) -> Space:
        """The space of a body, with names of its own."""
        values = self.values.new_child(dict(names))
        return Space(values, self.versions, self.attributes, self.path, self.depth, self.operator)


class Translator(Building):
    """Translates a model into the graph that is being built.

    Attributes:
        soft: for tensors of quantised numbers, the numbers before rounding; None if gradients end there.
        maximum_iterations: the most steps of loops that a computed condition ends.
        stored: the names of the model's initializers, by the identity of their values.
        adapted: whether adapters may stand beside matrices of quantised numbers, whose products are then
            computed from floats.
        dequantized: the matrices that are made of quantised initializers, by the names of these.
    """

    def __init__(
        self, functions: Mapping[tuple[str, str, str], Any], folder: str | None, file: str, nodes: int = 0
    ) -> None:
        super().__init__()
        self.functions = functions
        self._folder, self._file = folder, file
        self.soft: dict[sg.Output, sg.Output] | None = None
        self.adapted = False
        self.maximum_iterations: int | None = None
        self.stored: dict[int, str] = {}
        self.dequantized: dict[str, list[sg.Output]] = {}
        self._limit = _EXPANDED + _EXPANSION * nodes
        self._expanded = 0
        self._lines: dict[str, int] = {}
        self._schemas: dict[tuple[str, str, int], OpSchema | None] = {}

    # ------------------------------------------------------------------------------------------ graphs

    def run_nodes(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], space: Space) -> list[Any]:
        """Translate nodes; their results of these names."""
        for node in live(nodes, outputs):
            self._translate(node, space)
        return [space.values.get(name, FAILED) for name in outputs]

    def run_body(self, body: Body, args: Sequence[Any]) -> list[Any]:
        """Translate a body for these values of its inputs; its results."""
        if len(args) != len(body.inputs):
            raise Refused(f"its body takes {len(body.inputs)} inputs and is given {len(args)}")
        space = body.around.below(dict(zip(body.inputs, args, strict=True)))
        self.initializers(body.graph, space.values)
        before = len(self.refusals)
        results = self.run_nodes(body.graph.node, body.outputs, space)
        if any(x is FAILED for x in results):
            reasons = list(dict.fromkeys(map(str, self.refusals[before:])))
            del self.refusals[before:]
            raise Refused("; ".join(["its body cannot be translated", *reasons]))
        return results

    def initializers(self, graph: onnx.GraphProto, values: MutableMapping[str, Any]) -> None:
        """Give the names of a body's initializers their values."""
        for name, array in stored(graph, self._folder):
            values[name] = Known(array)

    # ------------------------------------------------------------------------------------------- nodes

    def _translate(self, node: onnx.NodeProto, space: Space) -> None:
        self._expanded += 1
        if self._expanded > self._limit:
            raise FileError(f"the functions and loops of the model become more than {self._limit} nodes")
        name = space.path + called(node)
        operator = space.operator or self._as_shown(node, name)
        operands = [space.values.get(text(x), FAILED) if x else None for x in node.input]
        results: Any = FAILED
        if not any(x is FAILED for x in operands):
            with Inside(prefix=scope_from(name), place=(operator.place, 0)):
                results = self.attempted(operator.what, lambda: self._named(node, name, operands, space))
        for i, output in enumerate(node.output):
            if output:
                space.values[text(output)] = results if results is FAILED else results[i]

    def _as_shown(self, node: onnx.NodeProto, name: str) -> Named:
        line = self._lines.setdefault(name, len(self._lines) + 1)
        place = Location(self._file, line, source=described(node, name), function=name)
        return Named(f"{node.op_type} {name!r}", place)

    def _named(self, node: onnx.NodeProto, name: str, operands: list[Any], space: Space) -> Sequence[Any]:
        """The results of a node, of which there are as many as it names."""
        results = self._results(node, name, operands, space)
        if any(node.output[len(results) :]):
            raise Refused(f"it has only {len(results)} results here, not {len(node.output)}")
        return results

    def _results(self, node: onnx.NodeProto, name: str, operands: list[Any], space: Space) -> Sequence[Any]:
        node = resolved(node, space.attributes)
        domain, op_type = domain_of(node), text(node.op_type)
        gate = gate_of(domain, op_type)
        if gate is not None:
            inputs = [self.tensor(x) for x in operands]
            return _gated(gate, self._attributes(node, name, space), inputs, name)
        if is_custom(node):
            return self._with_gradient(node, name, operands, space)
        function = self.functions.get((domain, op_type, text(node.overload)))
        if function is not None:
            return self._called(function, node, name, operands, space)
        key = f"{domain}::{op_type}" if domain else op_type
        version = space.versions.get(domain, 1)
        schema = self.schema(op_type, domain, version)
        check_against(schema, node, operands)
        attributes = self._attributes(node, name, space)
        call = Call(node, name, version, attributes, operands, self, schema, space.values)
        rule = OPERATORS.get(key)
        if rule is None:
            if schema is not None and schema.deprecated:
                raise Refused("this operator is deprecated in the model's opset; convert the model")
            body = None if schema is None else body_of(schema, node, version, operands)
            if schema is None or body is None:
                raise Refused("there is no such operator here")
            operator = space.operator or self._as_shown(node, name)
            return self._called(body, node, name, operands, space, defaults_of(schema), operator)
        constants = folded(call, operands, rule)
        if constants is not None:
            return constants
        result = call.ruled(rule)
        results = result if isinstance(result, tuple) else (result,)
        tensors = [x for x in operands if isinstance(x, sg.Output)]
        if key in HANDS_ON and not (self.soft or {}).keys().isdisjoint(tensors):
            self._handed_on(call, rule, results)
        return results

    def _handed_on(self, call: Call, rule: Rule, results: Sequence[Any]) -> None:
        """Remember of which numbers the results are the rounding: those that the operator makes of floats."""
        operands = call.operands
        soft = self.soft or {}
        whole = next(x.dtype for x in operands if isinstance(x, sg.Output) and x in soft)
        floats = [_as_floats(call, x, whole) for x in operands]
        again = Call(
            call.node, call.name, call.opset, call.attributes, floats, self, call.schema, call.around
        ).ruled(rule)
        for hard, soft in zip(results, again if isinstance(again, tuple) else (again,), strict=True):
            if isinstance(hard, sg.Output) and hard.dtype is whole:
                call.soften(hard, soft)

    def _called(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        name: str,
        operands: Sequence[Any],
        space: Space,
        defaults: Sequence[Any] = (),
        operator: Named | None = None,
    ) -> list[Any]:
        """Inline a function in place of the node that calls it; its results."""
        if space.depth >= DEEPEST:
            raise FileError(f"{name}: functions call one another more than {DEEPEST} deep")
        arguments = [*operands, *[None] * (len(function.input) - len(operands))]
        attributes = {text(a.name): a for a in (*defaults, *function.attribute_proto, *node.attribute)}
        inner = Space(
            ChainMap(dict(zip(map(text, function.input), arguments, strict=False))),
            {**space.versions, **opsets(function.opset_import, function.name)},
            attributes,
            f"{name}/",
            space.depth + 1,
            operator or space.operator,
        )
        before = len(self.refusals)
        names = [text(y) for y, result in zip(function.output, node.output, strict=False) if result]
        results = dict(zip(names, self.run_nodes(function.node, names, inner), strict=True))
        if any(x is FAILED for x in results.values()) and len(self.refusals) == before:
            raise Refused(f"the function {function.name} does not compute all of its results")
        return [results.get(text(y), FAILED) for y in function.output]

    def _with_gradient(
        self, node: onnx.NodeProto, name: str, operands: Sequence[Any], space: Space
    ) -> Sequence[Any]:
        """The results of a custom gradient, whose gradient function is a function of the model."""
        custom = custom_of(node, self._attributes(node, name, space), len(operands))
        function = self.functions.get(gradient_of(node))
        if function is None and custom.returned:
            raise Refused(f"the model lacks its gradient function, stopgrad::{custom.gradient}")
        first, last = custom.results, custom.results + len(custom.kept)

        def gradient(*cotangents: object) -> list[Any]:
            parts: list[Any] = [None] * sum(k < custom.asked for k in custom.kept)
            if function is not None and custom.returned:
                call = onnx.NodeProto(output=function.output)
                arguments = _by_number(function, cotangents, operands[first:])
                gradients = self._called(function, call, f"{name}/gradient", arguments, space)
                if len(gradients) != len(custom.returned) or any(y is FAILED for y in gradients):
                    raise Refused(f"its gradient function, stopgrad::{custom.gradient}, cannot be read")
                for i, y in zip(custom.returned, gradients, strict=True):
                    parts[i] = self.tensor(y)
            return parts

        tensors = [local(self.tensor(x)) for x in operands[:last]]
        return given_gradient(tensors[:first], tensors[first:], gradient, custom.asked, custom.kept).outputs

    def _attributes(self, node: onnx.NodeProto, name: str, space: Space) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                attributes[text(a.name)] = Body(a.g, space)
            elif a.type == onnx.AttributeProto.GRAPHS:
                attributes[text(a.name)] = [Body(g, space) for g in a.graphs]
            else:
                attributes[text(a.name)] = attribute_value(
                    a, self._folder, f"the attribute {a.name} of {name!r}"
                )
        return attributes

    def schema(self, op_type: str, domain: str, version: int) -> OpSchema | None:
        """The schema of an operator; None if onnx has none."""
        key = op_type, domain, version
        if key not in self._schemas:
            self._schemas[key] = schema_of(*key)
        return self._schemas[key]

    def next_key(self, seed: float | None) -> sg.Output:
        """A random key: from a seed, or a different one for each node."""
        if seed is not None:
            return sg.constant(np.array([0, np.float32(seed).view(np.uint32)], np.uint32))
        return self.new_key()


# --------------------------------------------------------------------------------------------- quantised

HANDS_ON = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat"}
    | {"Gather", "GatherND", "GatherElements", "Expand", "Tile", "Pad", "MaxPool", "Max", "Min", "Clip"}
    | {"Relu", "Where", "DepthToSpace", "SpaceToDepth", "ReduceMax", "ReduceMin"}
    | {"com.microsoft::NhwcMaxPool"}
)
"""Operators whose results are some of the numbers that they are given, and which do the same with floats."""


def _as_floats(call: Call, x: Value, whole: DType) -> Value:
    """An operand with floats in place of whole numbers of a type."""
    if isinstance(x, Known):
        return Known(x.array.astype(np.float32)) if x.dtype is whole else x
    if isinstance(x, sg.Output) and x.dtype is whole:
        return call.floated(x, sg.float32)
    return x


# ------------------------------------------------------------------------------------------------- names


def resolved(node: onnx.NodeProto, attributes: Mapping[str, Any]) -> onnx.NodeProto:
    """A node of a function, with references to the function's attributes replaced by their values."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for a in node.attribute:
        value = attributes.get(text(a.ref_attr_name)) if a.ref_attr_name else a
        if value is not None:
            copy.attribute.add().CopyFrom(value)
            copy.attribute[-1].name = a.name
    return copy


def described(node: onnx.NodeProto, name: str) -> str:
    """A node as messages and reports show it in place of a line."""
    inputs = ", ".join([text(x) or "-" for x in node.input][:8])
    return f"{text(node.op_type)} {name!r} ({inputs}{', ...' if len(node.input) > 8 else ''})"


# ------------------------------------------------------------------------------------------------ graphs


def stored(
    graph: onnx.GraphProto, folder: str | None, places: Mapping[str, Place] = MappingProxyType({})
) -> Iterator[tuple[str, Any]]:
    """The initializers of a graph, each with its name; those left in the file are read from there."""
    for tensor in graph.initializer:
        name = text(tensor.name)
        what = f"the initializer {name!r}"
        yield name, places[name].read(what) if name in places else array_from(tensor, folder, what)
    for sparse in graph.sparse_initializer:
        name = text(sparse.values.name)
        yield name, dense_from(sparse, folder, f"the initializer {name!r}")


# ------------------------------------------------------------------------------------------------- gates


class Custom(NamedTuple):
    """What a call of a custom gradient says.

    Attributes:
        results: how many operands are results.
        asked, kept: as :class:`CustomGradient` has them.
        returned: for which of the arguments there is a gradient.
        gradient: the name of the gradient function.
    """

    results: int
    asked: int
    kept: tuple[int, ...]
    returned: tuple[int, ...]
    gradient: str


def _by_number(function: onnx.FunctionProto, cotangents: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The operands of a gradient function, by the numbers in its inputs' names: tools drop unread ones."""
    operands = []
    for name in map(text, function.input):
        some = {"g": cotangents, "x": others}.get(name[:1], ())
        number = int(name[1:]) if re.fullmatch(r"\d{1,9}", name[1:]) else len(some)
        if number >= len(some):
            raise Refused(f"its gradient function has an input {name!r}, which the call has no operand for")
        operands.append(some[number])
    return operands


def custom_of(node: onnx.NodeProto, attributes: Mapping[str, Any], operands: int) -> Custom:
    """What a call of a custom gradient says, after a check."""
    missing = next((key for key in ("asked", "kept", "returned", "gradient") if key not in attributes), None)
    if missing is not None:
        raise Refused(f"the custom gradient lacks {missing}")
    kept, returned = ([int(number) for number in attributes[key].split()] for key in ("kept", "returned"))
    asked, count = int(attributes["asked"]), len(node.output)
    own = sum(k < asked for k in kept)
    in_order = all(sorted({*some}) == some and (not some or some[0] >= 0) for some in (kept, returned))
    if not in_order or not 0 < count <= operands - len(kept) or (returned and returned[-1] >= own):
        raise Refused("what the custom gradient says of its operands does not fit them")
    return Custom(count, asked, tuple(kept), tuple(returned), attributes["gradient"])


def _gated(
    gate: type[Op], attributes: Mapping[str, Any], operands: Sequence[Any], name: str
) -> tuple[Any, ...]:
    """Build a gate under the name of its node; its results."""
    missing = [name for name in gate.attributes if name not in attributes]
    if missing or any(x is None for x in operands):
        raise Refused(f"the gate {gate.type} lacks {missing[0] if missing else 'an operand'}")
    values = gate.canonical([attributes[name] for name in gate.attributes])
    head, _, last = label_from(name).rpartition("/")
    with Inside(prefix=scope_from(head)):
        result = apply(gate, operands, values, last or None)
    return result if isinstance(result, tuple) else (result,)
