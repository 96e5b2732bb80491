"""The function whose derivative a gradient is: that in which what gates stop keeps its value of one point.

A stopped value counts as a constant for the gradient generator and follows its operands when the graph runs.
So what is compared with finite differences is not the graph but the *frozen function*: there each gate is an
operation whose true derivative is what the gate lets pass. It is not built. One run at the base point keeps
what arrives at each gate, every time that it runs, in loops and branches too; later runs read it back.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stopgrad.base.types import DTYPES, DType, complex128, float64
from stopgrad.flow.asked import Asked
from stopgrad.flow.fed import fed_to
from stopgrad.graph.batch_rules import KEYS
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Graph, Operation, Output, by_id
from stopgrad.graph.interpreter import Observer, Step, computation, interpret
from stopgrad.graph.op import NoGradient, Status
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.selective import NOBODY, Acting, acts, selective_gates
from stopgrad.ops.gates.custom import CustomGradient
from stopgrad.ops.gates.stopping import StopGradient
from stopgrad.ops.structural.sources import Identity
from stopgrad.rewrite import prepare, rewrite
from stopgrad.rewrite.engine import Copying
from stopgrad.run.feeds import sizes_of

WIDE = {d: float64 if d.is_floating else complex128 for d in DTYPES.values() if d.is_differentiable}
"""Every real or complex number in double precision."""

COMPLEX = dict.fromkeys(WIDE, complex128)
"""Every real number complex, for the complex step."""


# ------------------------------------------------------------------------------------------ the problem


@dataclass
class Posed:
    """What is checked, copied into a graph of its own, where sizes are numbers and parameters are fed.

    Attributes:
        graph: the new graph.
        ys: what is differentiated.
        xs: with respect to what; each is the one output of its operation.
        keys: what each of these is called.
        feeds: the value of each placeholder.
        left_out: the operations that no differences can be compared with, as they were.
    """

    graph: Graph
    ys: list[Output]
    xs: list[Output]
    keys: list[Any]
    feeds: dict[Output, NumpyArray]
    left_out: list[Operation]


def pose(what: str, asked: Asked, feed_dict: Mapping[Any, Any] | None) -> Posed:
    """Copy what is asked about into a graph of its own.

    Each x is there the one output of its operation, so that it can be given another value.

    Raises:
        FeedError, ShapeError, DTypeError: as :meth:`Session.run`.
    """
    feeds = fed_to(what, asked, feed_dict)
    leaves = list(feeds)
    sizes = sizes_of(leaves, [array.shape for array in feeds.values()])
    ys = [y for y in asked.ys if y.type.differentiable]
    xs = {key: x for key, x in asked.xs.items() if x.type.differentiable}
    inner = {x for x in xs.values() if x not in feeds}
    left_out: list[Operation] = []
    copied = rewrite([*ys, *xs.values()], leaves, (_posing(inner, left_out),), sizes)
    fed = {copied.mapping[x]: array for x, array in feeds.items()}
    return Posed(copied.graph, copied.outputs[: len(ys)], copied.outputs[len(ys) :], list(xs), fed, left_out)


def _posing(inner: set[Output], left_out: list[Operation]) -> Callable[..., Sequence[Output] | None]:
    """The rule that takes out what cannot be compared, and gives each of these xs an identity of its own."""

    def rule(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op.definition.clips:
            left_out.append(op)
            return copying.add(Identity, inputs[:1], (), op)
        if inner.isdisjoint(op.outputs):
            return None
        outputs = copying.add(op.definition, inputs, values, op)
        return [
            copying.add(Identity, (new,), (), op)[0] if y in inner else new
            for y, new in zip(op.outputs, outputs, strict=True)
        ]

    return rule


def evaluate(outputs: Sequence[Output], feeds: Mapping[Output, NumpyArray]) -> list[NumpyArray]:
    """The values of outputs, by NumPy."""
    prepared = prepare(list(outputs), list(feeds))
    return [
        np.asarray(v)
        for v in interpret(prepared.outputs, dict(zip(prepared.inputs, feeds.values(), strict=True)))
    ]


# -------------------------------------------------------------------------------------- what moves with xs


def moving(ys: Sequence[Output], xs: Sequence[Output]) -> list[Operation]:
    """The operations on the way from xs to ys, stops or not, in order; those of xs are not among them."""
    sources = {x.op for x in xs}
    reached: set[Operation] = set()
    for op in ys[0].op.graph.subgraph_to(ys):
        if any(x.op in reached or x.op in sources for x in op.inputs):
            reached.add(op)
    return sorted(reached, key=by_id)


def _edge(operations: Sequence[Operation], ys: Sequence[Output], xs: Sequence[Output]) -> list[Output]:
    """The outputs that do not move with any x, and that what moves, or whoever asks, reads."""
    moves = {*operations}
    read = [x for op in operations for x in op.inputs]
    read += [x.op.inputs[0] if x.op.inputs and x.op not in moves else x for x in xs]
    inner = {x for x in xs if x.op.inputs}
    return [x for x in dict.fromkeys([*read, *ys]) if x.op not in moves and x not in inner]


def draws(operations: Sequence[Operation]) -> bool:
    """Whether random numbers are among operations and in their bodies: of another dtype they are others."""
    return any(op.definition.batch is KEYS for op in walk(operations))


# ---------------------------------------------------------------------------------------- the frozen graph


def _freeze(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output]:
    """The rule by which everything is copied as it is, but for functions with gradients of their own."""
    copying.table.update(zip(op.inputs, inputs, strict=True))
    placed = _placed(copying, op, inputs, values, copying.table)
    copying.table.update(zip(op.outputs, placed, strict=True))
    return placed


_freeze.erases = True  # type: ignore[attr-defined]


def _placed(
    copying: Copying,
    op: Operation,
    inputs: tuple[Output, ...],
    values: tuple[Any, ...],
    mapping: Mapping[Output, Output],
) -> Sequence[Output]:
    if op.definition is not CustomGradient:
        return copying.add(op.definition, inputs, values, op)
    results, arguments = op.inputs[: op.count], op.inputs[op.count :]
    # Towards an argument for which its gradient function returns None, the function is constant.
    parts = zip(arguments, op.pullback.outputs, op.kept, strict=False)
    cut = [x for x, g, k in parts if g is None and k < op.asked]
    here = {x: copying.add(StopGradient, (mapping[x],), (), op)[0] for x in cut}
    names = ChainMap(here, dict(mapping)) if cut else mapping
    for step in _operations_between(results, cut) if cut else ():
        new_inputs = tuple([names[x] for x in step.inputs])
        new_outputs = _placed(copying, step, new_inputs, copying.values(step), names)
        here.update(zip(step.outputs, new_outputs, strict=True))
    return [names[y] for y in results]


def _operations_between(ys: Sequence[Output], xs: Sequence[Output]) -> list[Operation]:
    """The operations between xs, from which a function starts, and its results ys."""
    first = min(x.op.id for x in xs)
    visited: set[Operation] = set()
    stack = [y.op for y in ys]
    while stack:
        op = stack.pop()
        if op.id > first and op not in visited:
            visited.add(op)
            stack += [x.op for x in op.inputs]
    between: set[Operation] = set()
    starts = {x.op for x in xs}
    for op in sorted(visited, key=by_id):
        if any(x.op in between or x.op in starts for x in op.inputs) and op not in starts:
            between.add(op)
    return sorted(between, key=by_id)


# --------------------------------------------------------------------------------------- keeping and reading


Compute = Callable[[Sequence[NumpyArray]], list[NumpyArray]]
Holding = Callable[[Operation], bool]
"""Whether a gate holds what it stops; the others do nothing."""


class _GateValues(Observer):
    """What arrived at each gate in the run at the base point, and how far this run has read it.

    Attributes:
        holding: whether a gate is held.
        recording: whether this is the run at the base point.
        acting: the selective gates that act in this run.
    """

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.recording = True
        self.acting: Acting = NOBODY
        self._arrived: dict[Operation, list[tuple[NumpyArray, ...]]] = {}
        self._read: dict[Operation, int] = {}

    def again(self, acting: Acting) -> None:
        """From now on, what was kept is read, from its beginning."""
        self.recording, self.acting = False, acting
        self._read.clear()

    def around(self, op: Operation, plain: Callable[[], Step]) -> Step | None:
        """A gate hands on what it does in the frozen function, a draw the numbers of the base point."""
        if op.definition.batch is KEYS:
            compute = plain()
            return lambda *arrays: self.at_base(op, tuple(compute(*arrays)) if self.recording else ())
        if not (holds(op) and self.holding(op)):
            return None
        held, passes = op.definition.held, op.definition.passes
        if held is None:
            return lambda *arrays: [self.at_base(op, arrays)[passes]]
        return lambda *arrays: [held(arrays, self.at_base(op, arrays), op in self.acting)]

    def at_base(self, op: Operation, arrays: tuple[NumpyArray, ...]) -> tuple[NumpyArray, ...]:
        """What arrived there, when it ran for the same time; itself where it ran less often then."""
        if self.recording:
            self._arrived.setdefault(op, []).append(arrays)
            return arrays
        n = self._read.get(op, 0)
        self._read[op] = n + 1
        arrived = self._arrived.get(op, [])
        return arrived[n] if n < len(arrived) else arrays


def holds(op: Operation) -> bool:
    """Whether an operation is another one in the frozen function than when the graph runs."""
    definition = op.definition
    if definition.held is not None:
        return True
    if definition.gate:
        wall = definition.rules[definition.passes]
        return isinstance(wall, NoGradient) and wall.status is Status.STOPPED
    return definition.batch is KEYS  # A draw moves with its parameter by leaps.


class Frozen:
    """The frozen function of ys, in some precision, at a base point.

    Args:
        posed: in which graph, and the base point.
        ys: the results, which need not be those that were posed.
        dtypes: by element type, that in which to compute.
        holding: from a gate to whether what it stops is held; None if no gate does anything.

    Raises:
        StopgradError: something cannot be computed in this precision.
    """

    points: list[NumpyArray]
    moving: list[Operation]
    here: list[NumpyArray]

    def __init__(
        self, posed: Posed, ys: Sequence[Output], dtypes: Mapping[DType, DType], holding: Holding | None
    ) -> None:
        xs = posed.xs
        operations = moving(ys, xs)
        edge = _edge(operations, ys, xs)
        values = evaluate([*edge, *xs], posed.feeds)
        copied = rewrite(ys, edge, (_freeze,), None, dtypes)
        self._ys = copied.outputs
        self._inputs = {
            x: value.astype(x.dtype.numpy, copy=False)
            for x, value in zip(copied.inputs, values, strict=False)
        }
        self._xs = [copied.mapping.get(x) for x in xs]
        self.points = [
            value.astype(dtypes.get(x.dtype, x.dtype).numpy)
            for x, value in zip(xs, values[len(edge) :], strict=True)
        ]
        self.moving = moving(self._ys, [x for x in self._xs if x is not None])
        self._gates = list(selective_gates(copied.graph.subgraph_to(copied.outputs)))
        self._kept = None if holding is None else _GateValues(holding)
        self._from_edge = self._program(None)
        self.here = self._run(self._from_edge, self._inputs)
        self._ways: dict[int, tuple[Compute, Acting]] = {}

    def _program(self, x: Output | None) -> Compute:
        """The computation from what does not move and, where it is computed itself, from x."""
        inputs = [*self._inputs]
        if x is not None and x not in self._inputs:
            inputs.append(x)
        return computation(inputs, self._ys, observer=self._kept)

    def at(self, which: int, value: NumpyArray) -> list[NumpyArray]:
        """The results where one x has another value, and what is stopped the value that it had."""
        x = self._xs[which]
        if x is None:
            return self.here
        if which not in self._ways:
            acting = frozenset(gate for gate, names in self._gates if acts(gate, x, names))
            self._ways[which] = (self._from_edge if x in self._inputs else self._program(x)), acting
        run, acting = self._ways[which]
        if self._kept is not None:
            self._kept.again(acting)
        return self._run(run, self._inputs | {x: np.asarray(value, x.dtype.numpy)})

    @staticmethod
    def _run(run: Compute, inputs: Mapping[Output, NumpyArray]) -> list[NumpyArray]:
        return [np.asarray(v) for v in run(list(inputs.values()))]
