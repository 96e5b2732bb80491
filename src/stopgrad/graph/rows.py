"""Which operations compute each row of their results from the same row of their operands.

Rows are counted along the first axis. Whether an operation goes row by row follows from how it is batched: it
does if it is, for the rows, what a batching rule makes of a smaller operation on one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stopgrad.base.errors import StopgradError
from stopgrad.base.types import TensorType, tensor_type
from stopgrad.graph.batch_rules import ALONG, BROADCAST, ELEMENTWISE, ONE_HOT
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.inferred import infer_types
from stopgrad.graph.op import Kind


class Rows(NamedTuple):
    """How an operation goes row by row.

    Attributes:
        extent: how many rows there are.
        cut: for each operand, whether it is cut into rows as well; each row needs the whole of the others.
    """

    extent: int
    cut: Sequence[bool]


def rows_of(op: Operation) -> Rows | None:
    """How an operation goes row by row; None where it does not, or where it is not known to.

    It computes the same numbers then, bit for bit, on some of the rows alone, if its operands lie in memory
    row after row.
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
    return Rows(count, cut) if any(cut) else None


_RULES = (ELEMENTWISE, BROADCAST, ONE_HOT, ALONG)


def repeats(op: Operation) -> bool:
    """Whether each row of the result is the same: one that a broadcast adds."""
    return op.definition.batch is BROADCAST and rows_of(op) is None and op.outputs[0].ndim > 0


def cut_type(type: TensorType, count: int) -> TensorType:
    """The type of that many rows."""
    return tensor_type(type.dtype, (count, *type.shape[1:]))


def cut_values(op: Operation, count: int) -> tuple[Any, ...]:
    """An operation's attributes for that many rows."""
    if op.definition.batch not in (ALONG, BROADCAST):
        return op.values
    kinds = op.definition.kinds.values()
    return tuple([(count, *v[1:]) if k is Kind.SHAPE else v for k, v in zip(kinds, op.values, strict=True)])


def _is_along_rows(op: Operation, count: int) -> bool:
    """Whether :func:`stopgrad.graph.batch_rules.ALONG` makes the operation from one on a single row."""
    definition = op.definition
    if definition.has_bodies or any(not x.ndim or x.shape[0] != count for x in op.inputs):
        return False
    if definition.type in _LOOPS:
        return False
    values = []
    for kind, value in zip(definition.kinds.values(), op.values, strict=True):
        if kind is Kind.PERMUTATION:
            return False  # What it makes does not lie row after row.
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


_LOOPS = frozenset({"LinearRecurrence"})
"""What NumPy computes in a loop of Python's: the fewer times the better."""


def _row(x: Output) -> TensorType:
    return tensor_type(x.dtype, x.shape[1:])
