"""Row-wise operations: chains of them are computed on some rows at a time, so that pieces stay in the cache.

Operation by operation, a chain reads and writes main memory at each step, and gets new pages from the system.
In pieces, it does so only at its ends. The results are the same, bit for bit: the same functions are applied
to the pieces in the same order, and none adds up across rows.

Rows are along the first axis. An operation is row-wise if its batching rule would make it from a smaller
operation on a single row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.base.errors import StopgradError
from stopgrad.base.memory import keep_memory
from stopgrad.base.threads import most_threads, spread
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.graph.batch_rules import ALONG, BROADCAST, ELEMENTWISE, ONE_HOT
from stopgrad.graph.build import parameter_of
from stopgrad.graph.graph import Graph, Operation, Output
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.interpreter import NUMPY_BACKEND, Region, Run, program
from stopgrad.graph.kinds import Kind
from stopgrad.graph.operands import NumpyArray

PIECE = 2**19
"""Bytes of the largest array in a piece, at least. A few of these fit into the second-level cache, and NumPy
computes in the place of temporary arrays of this size."""
LARGE = 2**21
"""Bytes of an array from which on pieces are faster than the whole."""

_Users = Mapping[Output, Sequence[Operation]]


def regions(operations: Sequence[Operation], wanted: Sequence[Output]) -> list[Region]:
    """The regions of operations that are computed in pieces, for the interpreter."""
    if not any(map(_is_large, {x.type for op in operations for x in (*op.inputs, *op.outputs)})):
        return []
    rows = {op: how for op in operations if (how := _rows_of(op)) is not None}
    users: dict[Output, list[Operation]] = {}
    for op in operations:
        for x in dict.fromkeys(op.inputs):
            users.setdefault(x, []).append(op)
    levels = _levels(operations, rows)
    _sink(operations, rows, levels, users, set(wanted))
    chosen = []
    for group in _connected(operations, rows, levels):
        members = _without_views(group, users)
        types = {x.type for op in members for x in (*op.inputs, *op.outputs)}
        if _is_worth_it(members) and any(map(_is_large, types)):
            chosen.append(_region(members, rows, users, set(wanted)))
    return chosen


def _bytes(type: TensorType) -> int:
    size: Any = type.size
    return int(size) * type.dtype.itemsize


def _is_large(type: TensorType) -> bool:
    return not type.symbolic and _bytes(type) >= LARGE


# ----------------------------------------------------------------------------- what goes row by row


class _Rows(NamedTuple):
    """How an operation is computed row by row.

    Attributes:
        extent: the number of rows.
        cut: for each operand, whether it is cut into rows, too; each row needs the whole of the others.
    """

    extent: int
    cut: Sequence[bool]


def _rows_of(op: Operation) -> _Rows | None:
    """How an operation is computed row by row; None if it is not known to be row-wise.

    On some of the rows, it computes the same numbers, bit for bit, if its operands are stored row after row.
    """
    first, rule = op.outputs[0].type, op.definition.batch
    if rule not in _RULES or any(x.type.symbolic for x in (*op.inputs, *op.outputs)):
        return None
    count: Any = first.shape[0] if first.ndim else 0
    if count < 2 or any(not y.ndim or y.shape[0] != count for y in op.outputs):
        return None
    if rule is ELEMENTWISE or rule is BROADCAST:
        cut = [x.ndim == first.ndim and x.shape[0] == count for x in op.inputs]
    elif rule is ONE_HOT:
        cut = [op.axis > 0, False, False]
    else:
        cut = [_is_along_rows(op, count)] * len(op.inputs)
    return _Rows(count, cut) if any(cut) else None


_RULES = (ELEMENTWISE, BROADCAST, ONE_HOT, ALONG)


def _repeats(op: Operation) -> bool:
    """Whether all rows of the result are equal, because a broadcast adds them."""
    return op.definition.batch is BROADCAST and _rows_of(op) is None and op.outputs[0].ndim > 0


def _cut_type(type: TensorType, count: int) -> TensorType:
    """The type of *count* rows."""
    return tensor_type(type.dtype, (count, *type.shape[1:]))


def _cut_values(op: Operation, count: int) -> tuple[Any, ...]:
    """An operation's attributes for *count* rows."""
    if op.definition.batch not in (ALONG, BROADCAST):
        return op.values
    kinds = op.definition.kinds.values()
    return tuple([(count, *v[1:]) if k is Kind.SHAPE else v for k, v in zip(kinds, op.values, strict=True)])


def _is_along_rows(op: Operation, count: int) -> bool:
    """Whether :func:`stopgrad.graph.batch_rules.ALONG` makes the operation from one on a single row."""
    definition = op.definition
    if definition.has_bodies or any(not x.ndim or x.shape[0] != count for x in op.inputs):
        return False
    if definition.iterates:
        return False
    values = []
    for kind, value in zip(definition.kinds.values(), op.values, strict=True):
        if kind is Kind.PERMUTATION:
            return False  # Its result is not stored row after row.
        if kind is Kind.AXIS:
            value = value - 1
        elif kind is Kind.AXES:
            value = tuple([a - 1 for a in value])
        elif kind is Kind.SHAPE:
            if not value or value[0] != count:
                return False
            value = value[1:]
        if (kind is Kind.AXIS and value < 0) or (kind is Kind.AXES and min(value, default=0) < 0):
            return False
        values.append(value)
    try:
        types = infer_types(definition, tuple([_row(x) for x in op.inputs]), tuple(values))
    except StopgradError:
        return False
    return types == tuple([_row(y) for y in op.outputs])


def _row(x: Output) -> TensorType:
    return tensor_type(x.dtype, x.shape[1:])


# ------------------------------------------------------------------------------- what goes together

# An operation's level counts the steps on the way to it that are not row-wise: between levels, all rows must
# be complete. So no path leaves the operations of one level that share their rows, and comes back to them.


def _meets(x: Output, op: Operation, cut: bool, rows: Mapping[Operation, _Rows]) -> bool:
    """Whether an operand may be computed row by row together with its user."""
    return cut and x.op in rows and rows[x.op].extent == rows[op].extent


def _levels(operations: Iterable[Operation], rows: Mapping[Operation, _Rows]) -> dict[Operation, int]:
    levels: dict[Operation, int] = {}
    for op in operations:
        level, cut = 0, rows[op].cut if op in rows else (False,) * len(op.inputs)
        for x, is_cut in zip(op.inputs, cut, strict=True):
            if x.op in levels:
                apart = x.op in rows and not _meets(x, op, is_cut, rows)
                level = max(level, levels[x.op] + apart)
        levels[op] = level
    return levels


def _sink(
    operations: Sequence[Operation],
    rows: Mapping[Operation, _Rows],
    levels: dict[Operation, int],
    users: _Users,
    wanted: set[Output],
) -> None:
    """Move operations to the level that needs them, if their operands are kept until then anyway."""
    lasting: dict[Operation, int] = {}
    for op in operations:
        if op in rows:
            until = [_there_until(x, op, lasting, levels, users) for x in op.inputs if x not in wanted]
            lasting[op] = min([level for level in until if level is not None], default=len(operations))
    for op in reversed(operations):
        if op in rows and wanted.isdisjoint(op.outputs):
            places = [_latest(y, user, rows, levels) for y in op.outputs for user in users.get(y, ())]
            late = min(places, default=0)
            if levels[op] < late <= lasting[op]:
                levels[op] = late


def _there_until(
    x: Output,
    op: Operation,
    lasting: Mapping[Operation, int],
    levels: Mapping[Operation, int],
    users: _Users,
) -> int | None:
    """The level until which an operand is kept without *op*; None for always."""
    if x.op not in levels or not x.op.inputs or _repeats(x.op):
        return None
    others = [levels[user] for user in users[x] if user is not op]
    # If it has one user only, both can move.
    return max(others) if others else lasting.get(x.op, -1)


def _latest(
    y: Output, user: Operation, rows: Mapping[Operation, _Rows], levels: Mapping[Operation, int]
) -> int:
    """The last level at which *y* can be computed for one of its users."""
    together = user in rows and all(
        _meets(x, user, cut, rows) for x, cut in zip(user.inputs, rows[user].cut, strict=True) if x is y
    )
    return levels[user] - (not together)


def _connected(
    operations: Iterable[Operation], rows: Mapping[Operation, _Rows], levels: Mapping[Operation, int]
) -> list[list[Operation]]:
    """Groups of row-wise operations of one level that are connected, in order."""
    head: dict[Operation, Operation] = {}

    def first(op: Operation) -> Operation:
        while head[op] is not op:
            head[op] = op = head[head[op]]
        return op

    for op in operations:
        if op in rows:
            head[op] = op
            for x, cut in zip(op.inputs, rows[op].cut, strict=True):
                if _meets(x, op, cut, rows) and levels[x.op] == levels[op]:
                    head[first(x.op)] = first(op)
    groups: dict[Operation, list[Operation]] = {}
    for op in head:
        groups.setdefault(first(op), []).append(op)
    return list(groups.values())


def _without_views(group: Sequence[Operation], users: _Users) -> list[Operation]:
    """The operations without views at their end, which would have to be written to memory."""
    inside = set(group)
    for op in reversed(group):
        if op.definition.views and not any(user in inside for y in op.outputs for user in users.get(y, ())):
            inside.discard(op)
    return [op for op in group if op in inside]


def _is_worth_it(members: Sequence[Operation]) -> bool:
    computing = [op for op in members if not op.definition.views]
    # A single one only if it computes in several steps itself.
    return len(computing) > 1 or any(op.definition.batch is ALONG for op in computing)


# ---------------------------------------------------------------------------------------- computing


def _region(
    members: Sequence[Operation], rows: Mapping[Operation, _Rows], users: _Users, wanted: set[Output]
) -> Region:
    inside = set(members)
    inputs: dict[tuple[Output, bool], None] = {}
    for op in members:
        for x, cut in zip(op.inputs, rows[op].cut, strict=True):
            if x.op in inside:
                continue
            if cut and _repeats(x.op):
                inputs[x.op.inputs[0], False] = None
            else:
                inputs[x, cut] = None
    outputs = [
        y for op in members for y in op.outputs if y in wanted or not inside.issuperset(users.get(y, ()))
    ]
    pieces = _Pieces(members, {op: rows[op] for op in members}, list(inputs), outputs)
    return Region(members, [x for x, _ in inputs], outputs, pieces)


class _Pieces:
    """Computes some operations, a number of rows at a time, in several threads."""

    def __init__(
        self,
        members: Sequence[Operation],
        rows: Mapping[Operation, _Rows],
        inputs: Sequence[tuple[Output, bool]],
        outputs: Sequence[Output],
    ) -> None:
        cut = [x for x, is_cut in inputs if is_cut]
        widest = max([_bytes(x.type) for x in (*cut, *[y for op in members for y in op.outputs])])
        self._cut = [is_cut for _, is_cut in inputs]
        self._outputs = outputs
        self._count = rows[members[0]].extent
        self._pieces = max(widest // PIECE, 1)
        # Usually for one number of rows, and for all rows.
        self._program = functools.lru_cache(2)(functools.partial(_compiled, members, rows, inputs, outputs))

    def __call__(self, *arrays: NumpyArray) -> Sequence[Any]:
        count, operands = self._count, list(zip(arrays, self._cut, strict=True))
        if not all(a.flags.c_contiguous or not a.strides[0] for a, cut in operands if cut):
            # If rows are not contiguous, the order of additions could depend on their number.
            return self._program(count)(arrays)
        _memory_is_kept()
        threads = min(most_threads(), self._pieces)
        pieces = min(self._pieces // threads * threads, count)
        step = -(-count // pieces)
        compute = self._program(step)
        results = [np.empty(y.shape, y.dtype.numpy) for y in self._outputs]

        def piece(i: int) -> None:
            # The last one begins earlier, so that all have the same number of rows.
            start = min(i * step, count - step)
            done = i * step - start
            values = compute([a[start : start + step] if cut else a for a, cut in operands])
            for result, value in zip(results, values, strict=True):
                result[start + done : start + step] = value[done:]

        spread(piece, -(-count // step), threads)
        return results


_memory_is_kept = functools.cache(keep_memory)
"""Asks for it once: pieces get and return much memory, page by page."""


def _compiled(
    members: Sequence[Operation],
    rows: Mapping[Operation, _Rows],
    inputs: Sequence[tuple[Output, bool]],
    outputs: Sequence[Output],
    count: int,
) -> Run:
    """Operations on *count* rows, in a graph of their own."""
    graph = Graph()
    copies: dict[tuple[Output, bool], Output] = {}
    for x, cut in inputs:
        copies[x, cut] = parameter_of(graph, _cut_type(x.type, count) if cut else x.type, x.op)
    parameters = list(copies.values())
    for op in members:
        for x, cut in zip(op.inputs, rows[op].cut, strict=True):
            if (x, cut) not in copies:  # All its rows are equal.
                copies[x, cut] = _on_rows(x.op, (copies[x.op.inputs[0], False],), count, graph)[0]
        operands = tuple([copies[key] for key in zip(op.inputs, rows[op].cut, strict=True)])
        copies.update(zip([(y, True) for y in op.outputs], _on_rows(op, operands, count, graph), strict=True))
    return program(parameters, [copies[y, True] for y in outputs], NUMPY_BACKEND)


def _on_rows(op: Operation, inputs: tuple[Output, ...], count: int, graph: Graph) -> tuple[Output, ...]:
    """An operation on *count* rows."""
    values = _cut_values(op, count)
    types = infer_types(op.definition, tuple([x.type for x in inputs]), values)
    return Operation.like(op, graph, inputs, types, values).outputs
