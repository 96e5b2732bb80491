"""Checks the invariants of graphs; after each pass and each generated gradient if STOPGRAD_VERIFY=1."""

from __future__ import annotations

import os

from stopgrad.base.errors import GraphError, StopgradError
from stopgrad.graph.body import Body, bodies_in
from stopgrad.graph.graph import Graph, Operation
from stopgrad.graph.inferred import check_canonical
from stopgrad.graph.op import REGISTRY, Op

ENABLED = os.environ.get("STOPGRAD_VERIFY") == "1"


def verify(graph: Graph, start: int = 0, seen: set[Graph] | None = None) -> None:
    """Check the operations from position *start* on, and the graphs of their bodies that are not in *seen*.

    Raises:
        GraphError: names the first operation whose id is not its position, whose operands are not earlier
            operations of the same graph, whose attributes do not fit its definition, or whose types do not
            follow.
    """
    seen = {graph} if seen is None else seen
    for position, op in enumerate(graph._operations[start:], start):
        _verify_operation(graph, position, op)
        for body in bodies_in(op.values):
            _verify_body(body, op, seen)


def verify_if_enabled(graph: Graph, start: int = 0) -> None:
    """:func:`verify`, if the environment asks for it."""
    if ENABLED:
        verify(graph, start)


def _verify_operation(graph: Graph, position: int, op: Operation) -> None:
    def broken(rule: str) -> GraphError:
        # Not describe(op), which may follow what is broken.
        return GraphError(f"broken graph: {rule}: {op.type} at position {position}")

    if op.id != position or op.graph is not graph:
        raise broken("an operation's id is its position in its graph")
    definition: type[Op] = op.definition
    if REGISTRY.get(op.type) is not definition:
        raise broken("an operation's definition is registered")
    for x in op.inputs:
        if x.op.graph is not graph or x.op.id >= position or x.op.outputs[x.index] is not x:
            raise broken("operands are outputs of earlier operations of the same graph")
    if len(op.values) != len(definition.attributes):
        raise broken("attributes are those of the definition")
    if definition.cached:
        check_canonical(definition, op.values)
    if op.origin is not None and op.origin.graph is graph and op.origin.id >= position:
        raise broken(
            "a gradient operation comes after its forward operation, unless that was left in another graph"
        )
    try:
        inferred = definition.infer(*[x.type for x in op.inputs], **op.attributes)
    except StopgradError as error:
        raise broken(f"types follow from the operands: {error}") from None
    types = inferred if isinstance(inferred, tuple) else (inferred,)
    if types != tuple(y.type for y in op.outputs):
        raise broken(f"types follow from the operands: {types}")


def _verify_body(body: Body, op: Operation, seen: set[Graph]) -> None:
    if any(x.op.graph is not body.graph for x in (*body.inputs, *body.results)):
        raise GraphError(f"broken graph: a body's parameters and results are in its graph: {op.type}")
    if body.graph not in seen:
        seen.add(body.graph)
        verify(body.graph, 0, seen)
