"""Batching whole bodies: each operation is built again, in order, for many examples at once.

The examples are along the first axis of batched tensors. What does not depend on a batched parameter is built
once, without examples. The result is a graph, so it can be differentiated and batched again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from stopgrad.base.types import Size, TensorType, tensor_type
from stopgrad.graph.batch_rules import Flags, Partly, again, repeated
from stopgrad.graph.body import Body, scan_key
from stopgrad.graph.build import close, emit, parameter_of, tracing
from stopgrad.graph.builder import Builder, Inside, current
from stopgrad.graph.copying import copy_operations
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.op import REGISTRY
from stopgrad.graph.selective import named_in


def replay(
    body: Body,
    operands: Sequence[Output],
    batched: Flags,
    size: Size,
    graph: Graph,
    originals: Mapping[Output, Output] | None = None,
) -> tuple[list[Output | None], list[bool]]:
    """Build in *graph* what a body computes, for *size* examples.

    Args:
        body: the body for one example.
        operands: the tensors for its parameters.
        batched: which of these hold examples along their first axis.
        size: the number of examples.
        graph: where to build; the current default graph unless given.
        originals: for parameters whose operand was made of another tensor, that tensor: gates that name the
            parameter name it instead.

    Returns:
        The body's outputs, and which of them are batched.
    """
    outer = current()
    with Inside(graph=graph, place=outer.place):  # Each operation has its own line.
        copy = _Replay(body, operands, batched, size, originals or {}, current(), outer.prefix_in(graph))
        copy_operations(copy.settled(), copy.copies, copy.build)
        outputs = [None if y is None else copy.copies[y] for y in body.outputs]
        return outputs, [y is not None and y in copy.batched for y in body.outputs]


class _Replay:
    """What the tensors of a body have become so far."""

    def __init__(
        self,
        body: Body,
        operands: Sequence[Output],
        batched: Flags,
        size: Size,
        originals: Mapping[Output, Output],
        builder: Builder,
        prefix: str,
    ) -> None:
        self.copies: dict[Output, Output] = dict(zip(body.inputs, operands, strict=True))
        self.batched = {x for x, b in zip(body.inputs, batched, strict=True) if b}
        self.size = size
        self.originals = dict(originals)
        self.builder = builder
        self.prefix = prefix
        self.place = builder.place
        self.origin = builder.origin
        self.origins: dict[Operation, Operation] = {}
        self.operations = body.operations()
        self.united = _united(self.operations)

    def settled(self) -> Iterator[Operation]:
        """The body's operations, each with its operands as they are by then."""
        for op in self.operations:
            op.definition.settle(op)
            yield op

    def build(self, op: Operation, operands: Sequence[Output]) -> Sequence[Output]:
        """Build one operation again, with its line, its name and its forward operation."""
        wider = self.united.get(op)
        if wider is None:
            return self._build_batched(op, operands)
        if wider not in self.origins:
            self.copies.update(zip(wider.outputs, self._build_batched(wider, operands), strict=True))
        return self._parts(op, wider)

    def _build_batched(self, op: Operation, operands: Sequence[Output]) -> Sequence[Output]:
        builder, label = self.builder, op._label
        builder.place = self.place if op._place is None else (op._place, op._instruction)
        builder.prefix = self.prefix + label if label.endswith("/") else self.prefix
        builder.origin = self.origin if op.origin is None else self.origins.get(op.origin, op.origin)
        named, operands = self._named(op, operands)
        flags = [x in self.batched for x in named.inputs]
        if any(flags):
            outputs, which = self._in_batch(named, operands, flags)
        else:
            outputs, which = again(named, operands), [False] * len(op.outputs)
        self.batched.update(y for y, b in zip(op.outputs, which, strict=True) if b)
        if op.definition is REGISTRY["Identity"] and op.inputs[0] in self.originals:
            # A vmap inside makes an identity of each argument: naming that means naming its operand.
            self.originals[op.outputs[0]] = self.originals[op.inputs[0]]
        self.origins[op] = outputs[0].op
        return outputs

    def _parts(self, op: Operation, wider: Operation) -> Sequence[Output]:
        """The outputs of a scan, taken from a wider scan that returns more."""
        places = {y: i for i, y in enumerate(wider.body.outputs)}
        sources = [
            wider.outputs[i if i < op.carries else places[result]] for i, result in enumerate(op.body.outputs)
        ]
        self.batched.update(y for y, x in zip(op.outputs, sources, strict=True) if x in self.batched)
        self.origins[op] = self.origins[wider]
        return [self.copies[x] for x in sources]

    def _named(self, op: Operation, operands: Sequence[Output]) -> tuple[Operation, list[Output]]:
        """The operation and its operands, with gates, also in its bodies, naming originals."""
        operands = list(operands)
        if self.originals and op.definition.selective:
            first = len(op.definition.operands)
            operands[first:] = [self.originals.get(x, self.copies[x]) for x in op.inputs[first:]]
        elif self.originals and op.definition.has_bodies and op.type != "CustomGradient":
            named = named_in(op)
            places = [i for i, x in enumerate(op.inputs) if x in named and x in self.originals]
            if places:
                originals = [self.originals[op.inputs[i]] for i in places]
                return _naming(op, places, originals), [*operands, *originals]
        return op, operands

    def _in_batch(
        self, op: Operation, operands: list[Output], flags: Flags
    ) -> tuple[Sequence[Output], Flags]:
        rule = op.definition.batch
        outputs = None if rule is None else rule(op, operands, flags, self.size)
        if outputs is None:
            outputs = looped(op, operands, flags, self.size)
        return outputs if isinstance(outputs, Partly) else (outputs, [True] * len(outputs))


def _united(operations: Sequence[Operation]) -> dict[Operation, Operation]:
    """For each group of scans that differ only in what they return, one scan that returns all of it.

    A scan and the one that also returns what its gradient needs share their body's graph, and are therefore
    run as one. If each were batched by itself, they would not share it any more.
    """
    groups: dict[Hashable, list[Operation]] = {}
    for op in operations:
        if op.type == "Scan":
            groups.setdefault(scan_key(op), []).append(op)
    wider = [(scans, _wider(scans)) for scans in groups.values() if len(scans) > 1]
    return {op: united for scans, united in wider for op in scans}


def _wider(scans: Sequence[Operation]) -> Operation:
    """One scan that returns what any of these returns."""
    op = scans[0]
    body: Body = op.body
    handed_out = dict.fromkeys(y for scan in scans for y in scan.body.outputs[op.carries :])
    outputs = (*body.outputs[: op.carries], *handed_out)
    # The same body each time, so that what is memoized for it, and for bodies inside, is reused.
    wider = body.memo.setdefault(("wider", outputs), Body(body.graph, body.inputs, outputs))
    return _changed(op, op.inputs, (wider, *op.values[1:]))


def _naming(op: Operation, places: Sequence[int], originals: Sequence[Output]) -> Operation:
    """The operation with additional operands, which gates in its bodies name instead of those at *places*.

    These are the tensors that are differentiated, before vmap moved an axis.
    """

    def wider(body: Body) -> Body:
        shift = len(op.inputs) - len(body.inputs)
        with tracing("vmap", None) as trace:
            parameters = [parameter_of(trace.graph, x.type, x.op) for x in body.inputs]
            extra = [parameter_of(trace.graph, x.type, x.op) for x in originals]
            names = {body.inputs[i - shift]: x for i, x in zip(places, extra, strict=True)}
            outputs, _ = replay(body, parameters, [False] * len(parameters), 1, trace.graph, names)
            return close(trace, [*parameters, *extra], outputs)

    def widened(value: object) -> object:
        if isinstance(value, tuple) and value and isinstance(value[0], Body):
            return tuple([wider(body) for body in value])
        return wider(value) if isinstance(value, Body) else value

    return _changed(op, (*op.inputs, *originals), tuple([widened(value) for value in op.values]))


def _changed(op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]) -> Operation:
    """A copy of the operation with other operands and attributes, which is read but never run."""
    types = infer_types(op.definition, tuple([x.type for x in inputs]), values)
    return Operation.like(op, op.graph, inputs, types, values)


def batched_body(
    body: Body, batched: Flags, size: Size, wanted: Flags | None = None
) -> tuple[Body, list[bool]]:
    """A body for many examples, which some of its parameters hold along their first axis.

    Args:
        body: the body for one example.
        batched: which parameters hold examples.
        size: the number of examples.
        wanted: outputs that must be batched even if they are equal for all examples.

    Returns:
        The new body, and which of its outputs are batched.
    """
    key = ("batched", tuple(batched), size, None if wanted is None else tuple(wanted))
    cached: tuple[Body, list[bool]] | None = body.memo.get(key)
    if cached is not None:
        return cached
    with tracing("vmap", None) as trace:
        parameters = [
            parameter_of(trace.graph, for_all(x, size) if b else x.type, x.op)
            for x, b in zip(body.inputs, batched, strict=True)
        ]
        outputs, which = replay(body, parameters, batched, size, trace.graph)
        for i, y in enumerate(outputs):
            if y is not None and wanted is not None and wanted[i] and not which[i]:
                outputs[i], which[i] = repeated(y, size), True
        cached = body.memo[key] = close(trace, parameters, outputs), which
    return cached


def for_all(x: Output, size: Size) -> TensorType:
    """The type of a tensor with a first axis of *size* examples."""
    return tensor_type(x.dtype, (size, *x.shape))


def looped(op: Operation, operands: Sequence[Output], batched: Flags, size: Size) -> Sequence[Output]:
    """The fallback: a loop in the graph that runs the operation on one example after the other."""
    flags = list(batched)
    with tracing("vmap", None) as trace:
        parameters = [parameter_of(trace.graph, x.type, x.op) for x in op.inputs]
        copy = emit(op.definition, tuple(parameters), op.values, "")
        ordered = [x for x, b in zip(parameters, flags, strict=True) if b]
        ordered += [x for x, b in zip(parameters, flags, strict=True) if not b]
        step = close(trace, ordered, copy.outputs)
    inputs = [x for x, b in zip(operands, flags, strict=True) if b]
    inputs += [x for x, b in zip(operands, flags, strict=True) if not b]
    return emit(REGISTRY["Scan"], tuple(inputs), (step, 0, sum(flags), size, False, 1), "").outputs
