"""Selective gates: which of them act depends on the tensors whose gradient is wanted.

They name tensors as operands; a gate in a body names parameters, which stand for tensors outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stopgrad.graph.body import Body
from stopgrad.graph.graph import Operation, Output

Acting = frozenset[Operation]
"""The selective gates that act for the tensors whose gradient is wanted; all others are open."""

NOBODY: Acting = frozenset()

Names = Mapping[Output, Output]
"""The tensors outside for which parameters of bodies stand."""


def by_gates(gates: Sequence[tuple[Operation, Names]], xs: Sequence[Output]) -> dict[Acting, list[Output]]:
    """The xs, grouped by the gates that act for them."""
    groups: dict[Acting, list[Output]] = {}
    for x in xs:
        acting = frozenset(gate for gate, names in gates if acts(gate, x, names))
        groups.setdefault(acting, []).append(x)
    return groups


def selective_gates(
    operations: Iterable[Operation], names: Names | None = None
) -> Iterator[tuple[Operation, Names]]:
    """The selective gates among operations and in their bodies, with the tensors for parameters of these."""
    names = {} if names is None else names
    for op in operations:
        if op.definition.selective:
            yield op, names
        if op.definition.has_bodies:
            for wire in op.definition.wires(op):
                if selective_in(wire.body):
                    inner = dict(names)
                    inner.update(zip(wire.body.inputs, [op.inputs[i] for i in wire.operands], strict=True))
                    yield from selective_gates(wire.body.operations(), inner)


def acts(gate: Operation, x: Output, names: Names) -> bool:
    """Whether a selective gate acts for the gradient with respect to *x*.

    A gate that names nothing does. A gate also names *x* by naming an identity of *x*, such as a transform
    makes of each argument, or a body's parameter for it.
    """
    named = gate.inputs[len(gate.definition.operands) :]
    return not named or any(x is alias for n in named for alias in _aliases(n, names))


def named_in(op: Operation) -> set[Output]:
    """The tensors outside that the selective gates in an operation's bodies name."""
    gates = selective_gates([op])
    return {
        alias
        for gate, names in gates
        for x in gate.inputs[len(gate.definition.operands) :]
        for alias in _aliases(x, names)
    }


def _aliases(x: Output, names: Names) -> Iterator[Output]:
    """The tensor, and those of which it is an identity or for which it stands."""
    yield x
    while True:
        if x.op.type == "Identity":
            x = x.op.inputs[0]
        elif x in names:
            x = names[x]
        else:
            return
        yield x


def selective_in(body: Body) -> frozenset[Operation]:
    """The selective gates in a body and in the bodies inside it."""
    found: frozenset[Operation] | None = body.memo.get("selective")
    if found is None:
        gates: set[Operation] = set()
        for op in body.operations():
            if op.definition.selective:
                gates.add(op)
            for wire in op.definition.wires(op) if op.definition.has_bodies else ():
                gates |= selective_in(wire.body)
        found = body.memo["selective"] = frozenset(gates)
    return found
