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
    alike: dict[tuple[tuple[Output, ...], int], tuple[Names, list[Operation]]] = {}
    for gate, names in gates:  # Gates that name the same are told apart from others, not from one another.
        alike.setdefault((named_by(gate), id(names)), (names, []))[1].append(gate)
    aliased = [(some, _named_through(named, names)) for (named, _), (names, some) in alike.items()]
    closing: dict[tuple[int, ...], list[Output]] = {}
    for x in xs:
        closed = tuple([k for k, (_, aliases) in enumerate(aliased) if aliases is None or x in aliases])
        closing.setdefault(closed, []).append(x)
    groups: dict[Acting, list[Output]] = {}
    for acting, some in closing.items():
        groups.setdefault(frozenset(gate for k in acting for gate in aliased[k][0]), []).extend(some)
    return groups


def named_by(gate: Operation) -> tuple[Output, ...]:
    """The tensors that a selective gate names; none if it acts with respect to all."""
    return gate.inputs[len(gate.definition.operands) :]


def _named_through(named: Sequence[Output], names: Names) -> set[Output] | None:
    """All tensors for which a gate acts that names these; None if it names none, and so acts for all."""
    return {alias for n in named for alias in aliases_of(n, names)} if named else None


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
    through = _named_through(named_by(gate), names)
    return through is None or x in through


def named_in(op: Operation) -> set[Output]:
    """The tensors outside that the selective gates in an operation's bodies name."""
    gates = selective_gates([op])
    return {alias for gate, names in gates for x in named_by(gate) for alias in aliases_of(x, names)}


def aliases_of(x: Output, names: Names) -> Iterator[Output]:
    """The tensor, and those of which it is an identity or for which it stands.

    What the generator builds for tensors stands for them, too: gates, and loops that compute them again.
    """
    while True:
        yield x
        op = x.op
        if op.type == "Identity" or (op.definition.selective and op.origin is not None):
            x = op.inputs[0]
        elif x in names:
            x = names[x]
        elif op.origin is not None and op.definition.has_bodies and (original := _original(x)) is not None:
            x = original
        else:
            return


def _original(x: Output) -> Output | None:
    """The operand whose values inside its bodies an operation returns as *x*; None if it computes others."""
    for wire in x.op.definition.wires(x.op):
        for y, output in zip(wire.body.results, wire.outputs, strict=True):
            if output == x.index:
                inside = {*aliases_of(y, {})}
                for parameter, i in zip(wire.body.inputs, wire.operands, strict=True):
                    if parameter in inside:
                        return x.op.inputs[i]
    return None


def selective_in(body: Body) -> frozenset[Operation]:
    """The selective gates in a body and in the bodies inside it."""
    selective: frozenset[Operation] | None = body.memo.get("selective")
    if selective is None:
        gates: set[Operation] = set()
        for op in body.operations():
            if op.definition.selective:
                gates.add(op)
            for wire in op.definition.wires(op) if op.definition.has_bodies else ():
                gates |= selective_in(wire.body)
        selective = body.memo["selective"] = frozenset(gates)
    return selective
