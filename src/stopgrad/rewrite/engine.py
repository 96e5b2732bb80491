"""Rewriting: copies the live part of a graph, operation by operation, through rules.

A rule gets an operation and its copied inputs, and may return outputs that replace it. Operations that the
wanted outputs do not need are never visited, so dead code is dropped. Bodies are rewritten by the same rules,
each once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from operator import is_not
from typing import Any, TypeVar

from stopgrad.base.errors import StopgradError
from stopgrad.base.garbage import without_gc
from stopgrad.base.types import (
    DType,
    TensorType,
    checking,
    dtype_of,
    sized,
    tensor_type,
)
from stopgrad.graph.body import Body
from stopgrad.graph.copying import copy_operations
from stopgrad.graph.graph import Graph, Operation, Output, describe, needed
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import Op
from stopgrad.graph.operands import Literal
from stopgrad.graph.sharding import Spec
from stopgrad.graph.verify import verify_if_enabled
from stopgrad.ops.structural.sharding import declared_sharding
from stopgrad.ops.structural.sources import Placeholder

Rule = Callable[["Copying", Operation, tuple[Output, ...], tuple[Any, ...]], "Sequence[Output | None] | None"]
"""Maps an old operation, its new inputs and its attributes to the outputs that replace it, or None.

There may be None for an output that nobody uses. Bodies among the attributes are the old ones.
"""

R = TypeVar("R", bound=Rule)


def where(test: Callable[[type[Op]], bool]) -> Callable[[R], R]:
    """A decorator of rules that see only operations whose definitions pass a test. Others see all.

    A rewrite asks once for each definition, not for each operation.
    """

    def mark(rule: R) -> R:
        rule.where = test  # type: ignore[attr-defined]
        return rule

    return mark


def only(*definitions: type[Op]) -> Callable[[R], R]:
    """A decorator of rules that see only operations of these definitions."""
    return where(frozenset(definitions).__contains__)


@dataclass
class Rewritten:
    """A new graph, with the new output for each old one. Several old ones may have become the same.

    *notes* are lines for the user about the rewrite.
    """

    graph: Graph
    inputs: list[Output]
    outputs: list[Output]
    mapping: dict[Output, Output]
    notes: Sequence[str] = ()

    def sources(self) -> dict[Operation, list[Operation]]:
        """For each new operation the old ones that it replaces, with their locations."""
        sources: dict[Operation, list[Operation]] = {}
        for old, new in self.mapping.items():
            sources.setdefault(new.op, []).append(old.op)
        return sources


Pass = Callable[[Rewritten], Rewritten]
"""A rewrite of a whole graph."""


@dataclass
class Copying:
    """The state of a rewrite, for rules: the new graph, known sizes, and the operations still to come.

    Attributes:
        graph: the new graph.
        rules: the rules of this rewrite.
        binding: sizes by name; None if they stay symbolic.
        dtypes: element types that are replaced by others everywhere.
        chosen: for each definition, the rules that see its operations.
        wanted: the wanted outputs, in the old graph.
        coming: the operations to be copied, in order.
        table: a cache for rules, one for each graph.
        bodies: the new bodies for old ones, in all graphs of the rewrite.
    """

    graph: Graph
    rules: Sequence[Rule]
    binding: Mapping[str, int] | None
    wanted: Sequence[Output] = ()
    coming: Sequence[Operation] = ()
    table: dict[Any, Any] = field(default_factory=dict)
    bodies: dict[Body, Body] = field(default_factory=dict)
    dtypes: Mapping[DType, DType] = field(default_factory=dict)
    chosen: dict[type[Op], Sequence[Rule]] = field(default_factory=dict)

    def add(
        self,
        definition: type[Op],
        inputs: tuple[Output, ...],
        values: tuple[Any, ...],
        like: Operation,
        label: str | None = None,
    ) -> tuple[Output, ...]:
        """Add an operation to the new graph, with the line, origin and ``no_gradient`` block of an old one.

        Unless a *label* is given, it also gets the name of that. Its bodies are old ones, and are rewritten.
        """
        if definition.has_bodies:
            values = tuple(map(self._rewritten, values))  # Bodies are nested: as few frames as possible.
        types = infer_types(definition, tuple([x.type for x in inputs]), values)
        return Operation.like(like, self.graph, inputs, types, values, definition, label).outputs

    def input(self, type: TensorType, like: Operation, sharding: Spec = ()) -> Output:
        """Add an input to the new graph."""
        return self.add(Placeholder, (), (type.dtype, type.shape, sharding), like)[0]

    def copy(self, operations: Iterable[Operation], mapping: dict[Output, Output]) -> None:
        """Copy operations to the new graph, and put their new outputs into *mapping*."""
        copy_operations(operations, mapping, self._placed)

    def _placed(self, op: Operation, inputs: tuple[Output, ...]) -> Sequence[Output | None]:
        try:
            values = self.values(op)
            rules = self.chosen.get(op.definition)
            for rule in self._choose(op.definition) if rules is None else rules:
                placed = rule(self, op, inputs, values)
                if placed is not None:
                    return placed
            return self.add(op.definition, inputs, values, op)
        except StopgradError as error:
            raise type(error)(f"{describe(op)}: {error.message}") from None

    def _choose(self, definition: type[Op]) -> Sequence[Rule]:
        """The rules that see operations of a definition."""
        tests = [getattr(rule, "where", None) for rule in self.rules]
        rules = [r for r, test in zip(self.rules, tests, strict=True) if test is None or test(definition)]
        self.chosen[definition] = rules
        return rules

    def inline(self, outputs: Sequence[Output], replacements: Mapping[Output, Output]) -> list[Output]:
        """Outputs of another graph, computed in the new one from given tensors, through the rules."""
        mapping = dict(replacements)
        self.copy(needed(outputs, mapping), mapping)
        return [mapping[y] for y in outputs]

    def once(
        self, definition: type[Op], inputs: tuple[Output, ...], values: tuple[Any, ...], like: Operation
    ) -> tuple[Output, ...]:
        """The same; if the new graph has an equal operation already, that one."""
        key = self.key(definition, inputs, values, like)
        outputs: tuple[Output, ...] | None = self.table.get(key)
        if outputs is None:
            outputs = self.table[key] = self.add(definition, inputs, values, like)
        return outputs

    @staticmethod
    def key(
        definition: type[Op], inputs: tuple[Output, ...], values: tuple[Any, ...], like: Operation
    ) -> Hashable:
        """A key that equal operations share."""
        # Operations in different no_gradient blocks are not equal.
        region = like.graph._hidden.get(like) if like.graph._hidden else None
        return definition, inputs, definition.identity(values), region

    def concrete(self, type: TensorType) -> TensorType:
        """A type with known sizes and the new element type."""
        if self.dtypes and type.dtype in self.dtypes:
            type = tensor_type(self.dtypes[type.dtype], type.shape)
        return type if self.binding is None else sized(type, self.binding)

    def values(self, op: Operation) -> tuple[Any, ...]:
        """An operation's attributes with known sizes and the new element types."""
        values = self._retyped(op) if self.dtypes else op.values
        return values if self.binding is None else op.definition.sized(values, self.binding)

    def _retyped(self, op: Operation) -> tuple[Any, ...]:
        """An operation's attributes with the new element types, also of constants."""
        values = []
        for kind, value in zip(op.definition.kinds.values(), op.values, strict=True):
            if kind is Kind.DTYPE:
                value = self.dtypes.get(value, value)
            elif kind is Kind.ARRAY and dtype_of(value.array.dtype) in self.dtypes:
                value = Literal(value.array.astype(self.dtypes[dtype_of(value.array.dtype)].numpy))
            values.append(value)
        return tuple(values)

    def _rewritten(self, value: object) -> object:
        if isinstance(value, Body):
            return self.body(value)
        if isinstance(value, tuple) and value and isinstance(value[0], Body):
            return tuple(map(self.body, value))
        return value

    def body(self, old: Body) -> Body:
        """The body, rewritten by the same rules."""
        new = self.bodies.get(old)
        if new is None:
            inside = Copying(Graph(), self.rules, self.binding, dtypes=self.dtypes)
            inside.bodies, inside.chosen = self.bodies, self.chosen
            mapping = _copy(inside, old.ends, old.inputs)
            outputs = [None if y is None else mapping[y] for y in old.outputs]
            new = self.bodies[old] = Body(inside.graph, [mapping[x] for x in old.inputs], outputs)
        return new


def rewrite(
    outputs: Sequence[Output],
    inputs: Sequence[Output] = (),
    rules: Sequence[Rule] = (),
    binding: Mapping[str, int] | None = None,
    dtypes: Mapping[DType, DType] | None = None,
) -> Rewritten:
    """Copy what *outputs* need into a new graph, through the first rule that replaces an operation.

    *inputs* become placeholders, whatever computed them before. With a *binding*, symbolic sizes become
    numbers, and sizes that were assumed equal while building are checked. With *dtypes*, element types are
    replaced, also those of constants and in bodies; rules of inference may then raise.
    """
    copying = Copying(Graph(), rules, binding, dtypes=dtypes or {})
    mapping = without_gc(_copy, copying, outputs, inputs)
    verify_if_enabled(copying.graph)
    return Rewritten(copying.graph, [mapping[x] for x in inputs], [mapping[y] for y in outputs], mapping)


def _copy(copying: Copying, outputs: Sequence[Output], inputs: Sequence[Output]) -> dict[Output, Output]:
    """Copy into one graph; returns the new output for each old one."""
    mapping: dict[Output, Output] = {}
    for x in inputs:
        mapping[x] = copying.input(copying.concrete(x.type), x.op, declared_sharding(x))
    coming = needed(outputs, mapping)
    if not any(getattr(rule, "erases", False) for rule in copying.rules):
        before = [op.inputs for op in coming]
        for op in coming:
            op.definition.settle(op)
        if any(map(is_not, before, [op.inputs for op in coming])):
            coming = needed(outputs, mapping)
    copying.wanted, copying.coming = outputs, coming
    if copying.binding is not None:
        check_sizes(coming, copying.binding)
    copy_operations(copying.coming, mapping, copying._placed)
    return mapping


def check_sizes(operations: Iterable[Operation], binding: Mapping[str, int] | None) -> None:
    """Check the assumptions of the operations' shape rules with the sizes that were fed."""
    assert binding is not None
    # In its own context, so that the binding ends with it in any case.
    copy_context().run(_check_sizes, operations, binding)


def _check_sizes(operations: Iterable[Operation], binding: Mapping[str, int]) -> None:
    with checking(binding):
        for op in operations:
            if True in [x.type.symbolic for x in op.inputs]:
                try:
                    op.definition.infer(*[x.type for x in op.inputs], **op.attributes)
                except StopgradError as error:
                    fed = ", ".join(f"{name} = {value}" for name, value in binding.items())
                    raise type(error)(f"{describe(op)}: {error.message}; fed sizes: {fed}") from None
