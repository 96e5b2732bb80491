"""The cost of a graph: numbers of operations by type, arithmetic, and bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stopgrad.base.errors import ShapeError
from stopgrad.base.types import TensorType
from stopgrad.graph.body import Body, bodies_in
from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.linalg.contractions import MatMul
from stopgrad.ops.shapes.reshape import Sum
from stopgrad.ops.structural.sources import Const, Placeholder
from stopgrad.rewrite import Rewritten


@dataclass(frozen=True)
class Cost:
    """What one run computes and moves, operation by operation as defined.

    Attributes:
        operations: the number of each type, the most frequent first; each body counts once.
        flops: additions, multiplications and other floating-point operations; a product of matrices
            [m, k] and [k, n] takes 2·m·k·n, an elementwise operation or a reduction one for each element.
            The body of a loop counts as often as it runs; of branches, the most expensive one counts.
        by_type: flops by type, the largest first.
        bytes: the bytes that all operations read and write, if each goes to memory. An engine that fuses
            several moves less.
        argument_bytes: the bytes of the arguments.
        result_bytes: the bytes of the results.
        parameters: the number of elements of each traced argument, by its path.
        unbounded: whether there is a loop whose number of rounds is unknown; it counts once.
    """

    operations: Mapping[str, int]
    flops: int
    by_type: Mapping[str, int]
    bytes: int
    argument_bytes: int
    result_bytes: int
    parameters: Mapping[str, int] = field(default_factory=dict)
    unbounded: bool = False

    def __str__(self) -> str:
        many = ", ".join(f"{count:,} {kind}" for kind, count in self.operations.items())
        work = ", ".join(f"{kind} {100 * n / self.flops:.0f} %" for kind, n in [*self.by_type.items()][:5])
        return "\n".join(
            [
                f"{sum(self.operations.values()):,} operations: {many}",
                f"{self.flops:,} floating-point operations{f': {work}' if work else ''}",
                f"{self.bytes:,} bytes moved; the arguments are {self.argument_bytes:,}, "
                f"the results {self.result_bytes:,}",
                f"{sum(self.parameters.values()):,} elements in {len(self.parameters):,} arguments",
                *(["with a loop that counts once, as nothing bounds it"] if self.unbounded else []),
            ]
        )


class _Count:
    """The counts so far. Each body has counts of its own."""

    def __init__(self) -> None:
        self.operations: Counter[str] = Counter()
        self.flops: Counter[str] = Counter()
        self.bytes = 0
        self.unbounded = False

    def add(self, other: _Count, times: int = 1) -> None:
        self.flops.update({kind: n * times for kind, n in other.flops.items()})
        self.bytes += other.bytes * times
        self.unbounded |= other.unbounded


def cost_of(inputs: Sequence[Output], outputs: Sequence[Output], paths: Sequence[str]) -> Cost:
    """The cost of computing outputs from inputs, which have these paths. All sizes are known."""
    total = _Count()
    if outputs:
        body = Body(outputs[0].op.graph, inputs, outputs)
        total = _counted(body, total.operations, {})
    return Cost(
        dict(total.operations.most_common()),
        sum(total.flops.values()),
        dict(total.flops.most_common()),
        total.bytes,
        sum([_bytes(x.type) for x in inputs]),
        sum([_bytes(y.type) for y in outputs]),
        {path: _elements(x.type) for path, x in zip(paths, inputs, strict=True)},
        total.unbounded,
    )


def _counted(body: Body, operations: Counter[str], counts: dict[Body, _Count]) -> _Count:
    """The cost of one run of a body; its operations are counted once, however often it runs."""
    count = counts.get(body)
    if count is not None:
        return count
    count = counts[body] = _Count()
    count.operations = operations
    for op in body.operations():
        operations[op.type] += 1
        inside = [_counted(inner, operations, counts) for inner in bodies_in(op.values)]
        if inside:
            _add_bodies(count, op, inside)
            continue
        count.bytes += sum([_bytes(x.type) for x in (*op.inputs, *op.outputs)])
        flops = _flops(op)
        if flops:
            count.flops[op.type] += flops
    return count


def _add_bodies(total: _Count, op: Operation, inside: Sequence[_Count]) -> None:
    if op.definition.alternatives:
        total.add(max(inside, key=lambda count: (sum(count.flops.values()), count.bytes)))
        return
    times = op.definition.runs(op)
    bounded = isinstance(times, int) and times >= 0
    total.unbounded |= not bounded
    for count in inside:
        total.add(count, times if bounded else 1)


def _flops(op: Operation) -> int:
    """The floating-point operations of an operation without bodies; 0 if it only moves values."""
    if not op.definition.rounds_once or not op.outputs[0].dtype.is_differentiable:
        return 0
    special = op.definition.flops
    if special is not None:
        return int(special(op))
    return max([_elements(x.type) for x in (*op.inputs, *op.outputs)])


FEW = 512
"""The most elements of all results in a small graph."""


def is_small(prepared: Rewritten, operations: Sequence[Operation]) -> bool:
    """Whether NumPy has computed a graph before a compiled program would have been called.

    To call one with NumPy arrays takes 5 µs, and 2 for each array that goes in or out. NumPy takes 2, and
    half of one for an elementwise operation on few elements (the page on performance).
    """
    calls = [_calls(op) for op in operations]
    arrays = len(prepared.inputs) + len(prepared.outputs)
    return (
        sum(calls) <= 4 + 2 * arrays
        and not any(y.type.symbolic for op in operations for y in op.outputs)
        and sum([_elements(y.type) for op in operations for y in op.outputs]) <= FEW
    )


def _calls(op: Operation) -> float:
    """How long NumPy takes for an operation on few elements, in calls of its quickest functions."""
    definition = op.definition
    if definition in (Const, Placeholder):
        return 0
    if definition in (Sum, MatMul):
        return 2
    return 1 if definition.elementwise or definition.views else math.inf


def _number(size: object) -> int:
    if not isinstance(size, int):
        raise ShapeError(f"the cost of a graph is counted where its sizes are known; {size} is not")
    return size


def _elements(type: TensorType) -> int:
    return math.prod(map(_number, type.shape))


def _bytes(type: TensorType) -> int:
    return _elements(type) * type.dtype.itemsize
