"""Regions of a graph that the vector machine of ``rows.cc`` computes, each in one pass over memory.

A region consists of operations on tensors of R rows and N columns: elementwise ones, reductions of rows, and
what goes with them. Each is computed as its lowering says (:mod:`recording`), so the results are those of the
user's graph, up to the order of sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.errors import StopgradError
from stopgrad.base.namespaces import require
from stopgrad.base.types import DType
from stopgrad.engines.xla.native.recording import (
    FULL,
    NUMBER,
    ROW,
    VECTOR,
    Node,
    Operand,
    Recorder,
    Refused,
    Symbol,
    shape_of,
)
from stopgrad.engines.xla.native.schedule import COSTS, Result, encode, ordered
from stopgrad.graph.graph import Operation, Output, by_id
from stopgrad.graph.interpreter import Region, Types, prepared
from stopgrad.graph.operands import Literal
from stopgrad.ops.elementwise.convert import Cast
from stopgrad.ops.elementwise.powers import Pow
from stopgrad.ops.indexing.gather import OneHot, ScatterAddAlongAxis, TakeAlongAxis
from stopgrad.ops.losses.cross_entropy import SparseSoftmaxCrossEntropyWithLogits
from stopgrad.ops.shapes.ranges import Range
from stopgrad.ops.shapes.reshape import BroadcastTo, Reshape
from stopgrad.ops.structural.sources import Const, Fill

LEAST = 4096
"""The fewest elements of a region. Smaller ones are left to XLA."""
LEAST_COLUMNS, MOST_COLUMNS = 64, 65536
"""The length of rows: XLA is as fast on shorter ones, and longer ones leave the cache between stages."""

LONGEST = 256
"""The most operations of a region: uniting two regions takes time in proportion to their sizes."""

_FREE = frozenset({Const, Fill, Range, Reshape, BroadcastTo, OneHot})
"""Operations that are not worth storing: each region that needs one computes it again."""


class _Namespace:
    """A recorder as a backend of the interpreter."""

    name = "xla"

    def __init__(self, recorder: Recorder) -> None:
        self.namespace = recorder

    def array(self, value: Operand, dtype: np.dtype[Any]) -> Symbol:
        return self.namespace.array(value, dtype)


# ------------------------------------------------------------- operations that rows do in a form of their own


def _cast(xp: Recorder, x: Symbol, dtype: DType) -> Symbol:
    return xp.astype(x, dtype.numpy)


def _range(xp: Recorder, start: float, size: int, delta: float, dtype: DType) -> Symbol:
    if start != 0 or delta != 1:
        raise Refused("a range")
    return xp.arange(size, dtype.numpy)


def _const(xp: Recorder, value: Literal) -> Symbol:
    return xp.number(value.array)


def _hits(xp: Recorder, x: Symbol, indices: Symbol, axis: int) -> Symbol:
    """A mask of the columns that one integer per row names."""
    if axis != x.ndim - 1 or indices.shape != (*x.shape[:-1], 1):
        raise Refused("indices")
    return xp.equal(indices, xp.arange(x.shape[-1], indices.dtype))


def _take(xp: Recorder, x: Symbol, indices: Symbol, axis: int) -> Symbol:
    hits = _hits(xp, x, indices, axis)
    return xp.sum(xp.where(hits, x, xp.zeros((), x.dtype)), axis=axis, keepdims=True)


def _scatter_add(xp: Recorder, x: Symbol, indices: Symbol, updates: Symbol, axis: int) -> Symbol:
    return xp.add(x, xp.where(_hits(xp, x, indices, axis), updates, xp.zeros((), x.dtype)))


def _cross_entropy(xp: Recorder, labels: Symbol, logits: Symbol) -> Symbol:
    """Like the definition's lowering, but comparing labels with column numbers."""
    top = xp.max(logits, axis=-1, keepdims=True)
    total = xp.sum(xp.exp(logits - top), axis=-1, keepdims=True)
    at, axis = xp.expand_dims(labels, -1), logits.ndim - 1
    losses = xp.squeeze(xp.log(total) - (_take(xp, logits, at, axis) - top), -1)
    inside = xp.any(_hits(xp, logits, at, axis), axis=-1)
    return xp.where(inside, losses, xp.full((), math.nan, logits.dtype))


_FORMS: Any = {
    SparseSoftmaxCrossEntropyWithLogits: _cross_entropy,
    Cast: _cast,
    Range: _range,
    Const: _const,
    TakeAlongAxis: _take,
    ScatterAddAlongAxis: _scatter_add,
    Pow: lambda xp, x, y: xp.power(x, y),
}


def _record(recorder: Recorder, op: Operation, operands: Sequence[Symbol]) -> Sequence[Symbol]:
    """Record the instructions of an operation."""
    form = _FORMS.get(op.definition)
    if form is not None:
        result = form(recorder, *operands, **dict(zip(op.definition.attributes, op.values, strict=True)))
    else:
        types = Types(tuple([x.type for x in op.inputs]), tuple([y.type for y in op.outputs]))
        result = prepared(op.definition, op.values, types, _Namespace(recorder), lambda: "it")(*operands)
    if len(op.outputs) != 1:
        raise Refused("several results")
    return [recorder.array(result, op.outputs[0].dtype.numpy)]


# ------------------------------------------------------------------------------------------------ a region

# A lowering may use something that symbols do not have.
_DECLINED = (Refused, StopgradError, TypeError, AttributeError, ValueError, LookupError)
_CHAIN = 16
"""The longest chain of free operations that is recorded."""


class _Draft:
    """A region that grows.

    Attributes:
        shape: the number of rows, and their length.
        operations: the operations that belong to it.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.recorder = Recorder(*shape)
        self.operations: list[Operation] = []
        self._symbols: dict[Output, Symbol] = {}

    def take(self, op: Operation) -> bool:
        """Add an operation, if rows can compute it; returns whether it was added."""
        try:
            (symbol,) = _record(self.recorder, op, [self.symbol(x) for x in op.inputs])
        except _DECLINED:
            return False
        if symbol.node is None or symbol.node.kind == VECTOR or symbol.node.op in ("input", "constant"):
            return False
        self._symbols[op.outputs[0]] = symbol
        self.operations.append(op)
        return True

    def symbol(self, x: Output, depth: int = 0) -> Symbol:
        """The symbol of an output. Free operations are recorded, but do not belong to the region."""
        symbol = self._symbols.get(x)
        if symbol is None and x.op.definition in _FREE and depth < _CHAIN:
            try:
                operands = [self.symbol(y, depth + 1) for y in x.op.inputs]
                (symbol,) = _record(self.recorder, x.op, operands)
            except _DECLINED:
                # It cannot be an input: it is computed from the region's results.
                if any(y in self._symbols and y.op in self.operations for y in x.op.inputs):
                    raise Refused("what is free has no form") from None
        if symbol is None:
            symbol = self.recorder.input(x)
        self._symbols[x] = symbol
        return symbol

    def unfolds(self, op: Operation) -> bool:
        """Whether a free operation was recorded, rather than taken as an input."""
        symbol = self._symbols.get(op.outputs[0])
        return symbol is not None and symbol.source is not op.outputs[0]

    def joined(self, other: _Draft) -> _Draft | None:
        """This draft and another as one; None if rows cannot compute that."""
        whole = _Draft(self.shape)
        operations = sorted([*self.operations, *other.operations], key=by_id)
        return whole if all(whole.take(op) for op in operations) else None

    def region(self, used: Callable[[Output], bool], owned: Sequence[Operation]) -> Region | None:
        """The region, if it pays.

        Args:
            used: whether an output is needed outside.
            owned: free operations that only the region uses.
        """
        outputs = [op.outputs[0] for op in self.operations if used(op.outputs[0])]
        places: dict[Node, int] = {}
        results: list[Result] = []
        for y in outputs:
            node = self._symbols[y].node
            assert node is not None
            if node.kind in (ROW, NUMBER) and self.recorder.kind_of(shape_of(y)) == FULL:
                node = self.recorder.spread(node)
            if node not in places:
                places[node] = len(results)
                results.append(Result(y, node))
            self._symbols[y].node = node
        if not _pays(self.shape, results):
            return None
        inputs, program = encode(*self.shape, results)
        order = [places[self._symbols[y].node] for y in outputs]  # type: ignore[index]
        return Region(
            [*self.operations, *owned], inputs, outputs, _function(results, outputs, order, program)
        )


def _function(
    results: Sequence[Result], outputs: Sequence[Output], order: Sequence[int], program: np.ndarray[Any, Any]
) -> Callable[..., Sequence[Any]]:
    jax = require("jax", "the xla engine", "xla")
    ffi = require("jax.ffi", "the xla engine", "xla")
    kinds = [jax.ShapeDtypeStruct(r.output.shape, r.output.dtype.numpy) for r in results]
    call = ffi.ffi_call("stopgrad_rows", kinds)

    def compute(*arrays: Array) -> Sequence[Any]:
        computed = call(*arrays, program=program)
        return [computed[i].reshape(y.shape) for i, y in zip(order, outputs, strict=True)]

    return compute


def _pays(shape: tuple[int, int], results: Sequence[Result]) -> bool:
    """Whether a region is faster than XLA: it computes whole columns, and has a reduction or a function.

    A function such as tanh alone pays between products of matrices: XLA computes these in several threads,
    and then a function of so many numbers in one.
    """
    nodes = ordered([result.node for result in results])
    if not any(x.kind == FULL and x.inputs for x in nodes):
        return False
    if any(x.op in ("RowSum", "RowMax", "RowMin", "Total") for x in nodes):
        return True
    return _DIVIDED <= math.prod(shape) <= _SMALL and any(COSTS.get(x.op, 0) >= _FUNCTION for x in nodes)


_LABELLED = frozenset({SparseSoftmaxCrossEntropyWithLogits, TakeAlongAxis, ScatterAddAlongAxis, OneHot})
_DIVIDED = 1 << 15
"""The fewest elements of a function of a region without reductions."""
_SMALL = 1 << 18
"""The most elements of tensors that stay in the cache between operations of XLA's."""
_FUNCTION = 12
"""The cost from which an instruction is a function, such as exp."""


def kind_of(region: Region) -> str:
    """The kind of a region, for :mod:`paying`: ``functions``, or ``rows`` or ``labels`` by size."""
    if all(op.definition.elementwise or op.definition in _FREE for op in region.operations):
        return "functions"
    labelled = any(op.definition in _LABELLED for op in region.operations)
    tensors = (x for op in region.operations for x in (*op.inputs, *op.outputs))
    small = max(math.prod(x.shape) for x in tensors) <= _SMALL
    return f"{'labels' if labelled else 'rows'}, {'small' if small else 'large'}"


# --------------------------------------------------------------------------------------------- all regions


class _Growing:
    """Finds the regions of a graph, operation by operation, without circular dependences.

    Each draft has a level: its operands are ready at that level, and its results are ready for others one
    level later. So an operation that depends on a draft through others is too late to join it, and drafts of
    the same level do not depend on each other.
    """

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._levels: list[int] = []
        # Whether something outside relies on a draft's level, which must not change any more.
        self._exposed: list[bool] = []
        self._became: dict[int, int] = {}
        # For each operation, the draft that has it, or else the level at which it is ready.
        self._inside: dict[Operation, int] = {}
        self._ready: dict[Operation, int] = {}

    def drafts(self) -> list[_Draft]:
        return [draft for draft in self._drafts if draft.operations]

    def add(self, op: Operation, ours: bool) -> None:
        """Add the next operation of the graph; *ours* says whether it may be part of a region."""
        if not ours or not (self._hands_on(op) if op.definition in _FREE else self._joined(op)):
            self._ready[op] = self._expose(op)

    def _home(self, x: Output) -> int | None:
        """The number of the draft that has an output; None if none does."""
        k = self._inside.get(x.op)
        return None if k is None else self._now(k)

    def _when(self, x: Output) -> int:
        """The level at which an output is ready outside of its draft."""
        k = self._home(x)
        return self._ready.get(x.op, 0) if k is None else self._levels[k] + 1

    def _expose(self, op: Operation) -> int:
        """The level at which all operands of an outside operation are ready; it is now fixed."""
        for x in op.inputs:
            k = self._home(x)
            if k is not None:
                self._exposed[k] = True
        return max(map(self._when, op.inputs), default=0)

    def _hands_on(self, op: Operation) -> bool:
        """Put a free operation into the draft that has its operands, if one draft has them all."""
        homes = {k for x in op.inputs if (k := self._home(x)) is not None}
        if len(homes) != 1:
            return False
        (k,) = homes
        if any(self._home(x) != k and self._when(x) > self._levels[k] for x in op.inputs):
            return False
        self._inside[op] = k
        return True

    def _joined(self, op: Operation) -> bool:
        """Put an operation into an old or new draft; returns whether rows can compute it."""
        shape = _shape_of(op)
        homes = {k for x in op.inputs if (k := self._home(x)) is not None}
        fitting = [k for k in homes if _suits(shape, self._drafts[k].shape)]
        for k in sorted(fitting, key=lambda k: -math.prod(self._drafts[k].shape)):
            for j in fitting:
                k = self._united(k, j)
            if self._takes(k, op):
                return True
        if shape is None:
            return False
        self._drafts.append(_Draft(shape))
        self._levels.append(max(map(self._when, op.inputs), default=0))
        self._exposed.append(False)
        return self._takes(len(self._drafts) - 1, op)

    def _takes(self, k: int, op: Operation) -> bool:
        """Add an operation to a draft, whose level may rise; returns whether that is possible."""
        draft = self._drafts[k]
        level = max([self._levels[k], *[self._when(x) for x in op.inputs if self._home(x) != k]])
        if (level > self._levels[k] and self._exposed[k]) or len(draft.operations) >= LONGEST:
            return False
        if not draft.take(op):
            return False
        for x in op.inputs:
            j = self._home(x)
            if j is not None and j != k:
                self._exposed[j] = True
        self._levels[k] = level
        self._inside[op] = k
        return True

    def unite_readers(self) -> None:
        """Unite drafts that read the same input, so that it is read once."""
        readers: dict[tuple[Output, tuple[int, int]], int] = {}
        for j, draft in enumerate(self._drafts):
            for x in draft.recorder.inputs_in_full() if draft.operations else ():
                k = readers.setdefault((x, draft.shape), j)
                readers[x, draft.shape] = self._united(k, j)

    def _now(self, k: int) -> int:
        """The number of the draft that a draft was united with."""
        while k in self._became:
            k = self._became[k]
        return k

    def _united(self, k: int, j: int) -> int:
        """Unite two drafts if possible. Returns the number of the draft that has the operations of *k*."""
        k, j = self._now(k), self._now(j)
        one, other = self._drafts[k], self._drafts[j]
        early, late = sorted((k, j), key=lambda i: self._levels[i])
        if k == j or one.shape != other.shape or len(one.operations) + len(other.operations) > LONGEST:
            return k
        if self._levels[early] < self._levels[late] and self._exposed[early]:
            return k
        whole = one.joined(other)
        if whole is None:
            return k
        self._drafts[late], self._drafts[early] = whole, _Draft(whole.shape)
        self._exposed[late] |= self._exposed[early]
        self._became[early] = late
        return late


def _suits(shape: tuple[int, int] | None, region: tuple[int, int]) -> bool:
    """Whether an operation of a shape can belong to a region: on all columns, or with one number per row."""
    return shape is None or shape == region or math.prod(shape) == region[0]


def _shape_of(op: Operation) -> tuple[int, int] | None:
    """Rows and columns of an operation's largest float32 tensor; None if they do not suit a region."""
    best: tuple[int, ...] = ()
    size = LEAST - 1
    for x in (*op.inputs, *op.outputs):
        if x.dtype.numpy == np.float32 and x.ndim and isinstance(x.type.size, int) and x.type.size > size:
            best, size = shape_of(x), x.type.size
    if not best or not LEAST_COLUMNS <= best[-1] <= MOST_COLUMNS:
        return None
    return size // best[-1], best[-1]


def regions(
    operations: Sequence[Operation], wanted: Sequence[Output], taken: Container[Operation] = ()
) -> Sequence[Region]:
    """The regions of a graph, for :func:`stopgrad.graph.interpreter.program`.

    Args:
        operations: those of one graph, in order.
        wanted: the results of the graph.
        taken: operations that other kernels compute.
    """
    growing = _Growing()
    for op in operations:
        growing.add(op, op not in taken)
    growing.unite_readers()
    drafts = growing.drafts()
    if not drafts:
        return ()
    users: dict[Output, list[Operation]] = {}
    for op in operations:
        for x in op.inputs:
            users.setdefault(x, []).append(op)
    results = set(wanted)
    home = {op: draft for draft in drafts for op in draft.operations}
    owned: dict[_Draft, list[Operation]] = {}
    for op in reversed(operations):
        if op.definition in _FREE and op not in taken and not results.intersection(op.outputs):
            readers = {home.get(user) for y in op.outputs for user in users.get(y, ())}
            draft = readers.pop() if len(readers) == 1 else None
            if draft is not None and draft.unfolds(op):
                home[op] = draft
                owned.setdefault(draft, []).append(op)
    chosen = []
    for draft in drafts:

        def used(y: Output, draft: _Draft = draft) -> bool:
            return y in results or any(home.get(user) is not draft for user in users.get(y, ()))

        region = draft.region(used, owned.get(draft, ()))
        if region is not None:
            chosen.append(region)
    return chosen
