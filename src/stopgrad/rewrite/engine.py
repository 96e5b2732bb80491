"""One walk over the live part of a graph that copies it operation by operation, through rules.

A rule sees an operation and its already copied inputs, and may put outputs in its place. What is not needed
for the wanted outputs is never visited, so dead code falls away by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stopgrad.autodiff.reverse import quiet_gc
from stopgrad.errors import StopgradError
from stopgrad.graph import Graph, Operation, Output, describe
from stopgrad.op import infer_types
from stopgrad.ops.data import Placeholder
from stopgrad.types import TensorType, checking, map_sizes, size_value, tensor_type
from stopgrad.verify import verify_if_enabled

Rule = Callable[["Copying", Operation, tuple[Output, ...], tuple[Any, ...]], "Sequence[Output] | None"]
"""From an old operation, its new inputs and its attributes to what takes its place; None where it says nothing."""


@dataclass
class Rewritten:
    """A new graph, and where the old outputs went. Several old ones may have become one new."""

    graph: Graph
    inputs: list[Output]
    outputs: list[Output]
    mapping: dict[Output, Output]

    def sources(self) -> dict[Operation, list[Operation]]:
        """For each new operation the old ones that it stands for, so that their locations are kept."""
        found: dict[Operation, list[Operation]] = {}
        for old, new in self.mapping.items():
            found.setdefault(new.op, []).append(old.op)
        return found


@dataclass
class Copying:
    """What rules work with: the new graph, and the sizes where they are known."""

    graph: Graph
    binding: Mapping[str, int] | None
    table: dict[Any, Any] = field(default_factory=dict)

    def add(self, definition: Any, inputs: tuple[Output, ...], values: tuple[Any, ...], like: Operation) -> tuple[Output, ...]:
        """An operation in the new graph, with the location and origin of an old one."""
        types = infer_types(definition, tuple([x.type for x in inputs]), values)
        return Operation(self.graph, definition, inputs, values, types, like._label, (like._place, like._instruction), like.origin).outputs

    def concrete(self, type: TensorType) -> TensorType:
        if self.binding is None or not type.symbolic:
            return type
        binding = self.binding
        return tensor_type(type.dtype, tuple(size_value(s, binding) for s in type.shape))


def rewrite(outputs: Sequence[Output], inputs: Sequence[Output] = (), rules: Sequence[Rule] = (), binding: Mapping[str, int] | None = None) -> Rewritten:
    """Copy what *outputs* need into a new graph, through the first rule that answers for each operation.

    *inputs* become placeholders, whatever computed them before. With a *binding*, symbolic sizes become numbers,
    and sizes that were assumed equal while building are checked.
    """
    source = (outputs or inputs)[0].op.graph if outputs or inputs else Graph()
    copying = Copying(Graph(), binding)
    mapping: dict[Output, Output] = {}
    with quiet_gc():
        for x in inputs:
            known = copying.concrete(x.type)
            mapping[x] = copying.add(Placeholder, (), (known.dtype, known.shape), x.op)[0]
        for op in _needed(source, outputs, mapping):
            if binding is not None:
                _check_sizes(op, binding)
            new_inputs = tuple([mapping[x] for x in op.inputs])
            try:
                values = op.values if binding is None else tuple([map_sizes(v, lambda d: size_value(d, binding)) for v in op.values])
                placed = _placed(copying, op, new_inputs, values, rules)
            except StopgradError as error:
                raise type(error)(f"{describe(op)}: {error.message}") from None
            for y, new in zip(op.outputs, placed, strict=True):
                mapping.setdefault(y, new)
    verify_if_enabled(copying.graph)
    return Rewritten(copying.graph, [mapping[x] for x in inputs], [mapping[y] for y in outputs], mapping)


def _placed(copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...], rules: Sequence[Rule]) -> Sequence[Output]:
    for rule in rules:
        placed = rule(copying, op, inputs, values)
        if placed is not None:
            return placed
    return copying.add(op.definition, inputs, values, op)


def _needed(graph: Graph, outputs: Sequence[Output], given: Mapping[Output, Output]) -> list[Operation]:
    """The operations to compute, in order, where the given outputs need not be."""
    marks = bytearray(len(graph))
    stack = [y.op for y in outputs if y not in given]
    found = []
    while stack:
        op = stack.pop()
        if not marks[op.id]:
            marks[op.id] = 1
            found.append(op)
            stack.extend([x.op for x in op.inputs if x not in given])
    found.sort(key=lambda op: op.id)
    return found


def _check_sizes(op: Operation, binding: Mapping[str, int]) -> None:
    """Hold the assumptions of an operation's shape rule against the sizes that were fed."""
    if not any(x.type.symbolic for x in op.inputs):
        return
    with checking(binding):
        try:
            op.definition.infer(*[x.type for x in op.inputs], **op.attributes)
        except StopgradError as error:
            fed = ", ".join(f"{name} = {value}" for name, value in binding.items())
            raise type(error)(f"{describe(op)}: {error.message}; fed sizes: {fed}") from None
