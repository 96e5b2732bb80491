"""Signs of known mistakes: the sources of operands, the users of results, and values at the bad element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.base.errors import StopgradError
from stopgrad.flow.nans.case import Case, comes_from, is_shares, moved_from, order_of, source
from stopgrad.flow.nans.follower import NumpyArray
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.immediate import evaluate
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import Op
from stopgrad.ops.elementwise.arithmetic import Mul
from stopgrad.ops.elementwise.composite import LogSumExp
from stopgrad.ops.elementwise.convert import Cast
from stopgrad.ops.reductions.reduce import Max
from stopgrad.ops.shapes.reshape import Sum

Sign = Callable[[Case], Any]
"""A test of an event."""


def forward(case: Case) -> bool:
    """Whether the user's own operation made it."""
    return not case.in_gradient


def backward(case: Case) -> bool:
    """Whether the gradient of the user's operation made it."""
    return case.in_gradient


def is_zero(i: int) -> Sign:
    """Whether an operand is 0 there."""
    return lambda case: case.operand(i) == 0


def is_negative(i: int) -> Sign:
    """Whether an operand is negative there."""
    return lambda case: case.operand(i) < 0


def every(*signs: Sign) -> Sign:
    """Whether all of these hold."""
    return lambda case: all(sign(case) for sign in signs)


def either(*signs: Sign) -> Sign:
    """Whether one of these holds."""
    return lambda case: any(sign(case) for sign in signs)


def made_by(i: int, test: Callable[[Operation], bool]) -> Sign:
    """Whether a test holds for the operation that computes an operand of the user's operation."""
    return lambda case: test(source(case.base.inputs[i]))


def of_type(i: int, *types: type[Op]) -> Sign:
    """Whether an operand of the user's operation is computed by one of these types."""
    return made_by(i, typed(*types))


def used_by(*steps: Callable[[Operation], bool]) -> Sign:
    """Whether the result is used by a chain of operations like these; moves in between are skipped."""
    return lambda case: _is_used(case, steps)


def _is_used(case: Case, steps: Sequence[Callable[[Operation], bool]]) -> bool:
    ahead = list(case.base.outputs)
    for step in steps:
        matches: list[Operation] = []
        for _ in range(3):
            users = [user for x in ahead for user in case.users(x)]
            matches = [user for user in users if step(user)]
            if matches:
                break
            ahead = [y for user in users for y in user.outputs if moved_from(y) is not None]
        if not matches:
            return False
        ahead = [y for op in matches for y in op.outputs]
    return True


def typed(*types: type[Op]) -> Callable[[Operation], bool]:
    """Whether an operation is of one of these types."""
    return lambda op: op.definition in types


def times_zero(case: Case) -> bool:
    """Whether the logarithm is multiplied by a zero."""
    for user in case.users(case.base.outputs[0]):
        if user.definition is Mul:
            others = [x for x in user.inputs if x is not case.base.outputs[0]]
            if others and case.at(others[0]) == 0:
                return True
    return False


def is_count(case: Case) -> bool:
    """Whether the divisor is a count: a sum of booleans, or of zeros and ones."""
    op = source(case.base.inputs[1])
    if op.definition is not Sum:
        return False
    if op.inputs[0].op.definition is Cast and op.inputs[0].op.inputs[0].dtype.is_bool:
        return True
    array = case.value(op.inputs[0])
    return array is not None and not np.any(array) and is_mask_of(case, op.inputs[0])


def is_mask_of(case: Case, mask: Output) -> bool:
    """Whether the numerator is a sum of products with this mask."""
    over = source(case.base.inputs[0])
    return (
        over.definition is Sum
        and source(over.inputs[0]).definition is Mul
        and any(source(x) is source(mask) for x in source(over.inputs[0]).inputs)
    )


def row_of(case: Case, x: Output) -> NumpyArray | None:
    """The values of x along the axes of the user's operation, at the bad element."""
    array = case.value(x)
    axis = dict(zip(case.base.definition.attributes, case.base.values, strict=True)).get("axis", (-1,))
    if array is None or not array.ndim:
        return None
    axes = {a % array.ndim for a in (axis if isinstance(axis, tuple) else (axis,))}
    if len(case.index) == array.ndim:
        where = case.index
    elif len(case.index) == array.ndim - len(axes):
        rest = iter(case.index)
        where = tuple([0 if a in axes else next(rest) for a in range(array.ndim)])
    else:
        return None
    row: NumpyArray = array[tuple([slice(None) if a in axes else i for a, i in enumerate(where)])]
    return row


def all_masked(case: Case) -> bool:
    """Whether the whole row is a mask's infinity."""
    for x in case.base.inputs[::-1]:
        if x.dtype.is_floating:
            row = row_of(case, x)
            return row is not None and row.size > 0 and bool(np.all(np.isneginf(row.astype(np.float64))))
    return False


def minus_own_maximum(case: Case) -> bool:
    """Whether a row's maximum is subtracted, and both are a mask's infinity."""
    op = case.base
    return comes_from(op.inputs[1], Max) and bool(
        np.isneginf(case.operand(0)) and np.isneginf(case.operand(1))
    )


def ends_in_logsumexp(case: Case) -> bool:
    """Whether a constant's infinities fill a whole row of a LogSumExp."""
    ahead = [case.base.outputs[0]]
    for _ in range(4):
        users = [user for x in ahead for user in case.users(x)]
        for user in users:
            value = case.value(user.outputs[0]) if user.definition is LogSumExp else None
            if value is not None and np.isneginf(value.astype(np.float64)).any():
                return True
        ahead = [y for user in users for y in user.outputs]
    return False


def matrix_of(case: Case) -> NumpyArray | None:
    """The matrix from which the bad element is computed."""
    array = case.value(case.base.inputs[0])
    if array is None or array.ndim < 2 or len(case.index) < array.ndim - 2:
        return None
    matrix: NumpyArray = array[case.index[: array.ndim - 2]]
    return matrix.astype(np.complex128) if matrix.dtype.kind == "c" else matrix.astype(np.float64)


def is_singular(case: Case) -> bool:
    """Whether the matrix has no inverse."""
    x = matrix_of(case)
    return x is not None and bool(np.isfinite(x).all()) and int(np.linalg.matrix_rank(x)) < x.shape[-1]


def is_indefinite(case: Case) -> bool:
    """Whether the matrix has an eigenvalue that is not positive."""
    x = matrix_of(case)
    return x is not None and bool(np.isfinite(x).all()) and bool(np.linalg.eigvalsh(x).min() <= 0)


def is_flat(case: Case) -> bool:
    """Whether a normalised row is constant, and nothing keeps its deviation away from 0."""
    row = row_of(case, case.base.inputs[0])
    return case.base.epsilon == 0 and row is not None and row.size > 0 and bool(np.all(row == row.flat[0]))


def exponent_is_small(case: Case) -> bool:
    """Whether this derivative of the power is infinite at 0."""
    return bool(case.operand(1) < max(order_of(case.op), 1))


def divides_exponentials(case: Case) -> bool:
    """Whether the user's operation divides exponentials by their sum."""
    return is_shares(case.base)


def is_empty(case: Case) -> bool:
    """Whether the operand is empty."""
    array = case.value(case.base.inputs[0])
    return array is not None and array.size == 0


def overflows(case: Case) -> bool:
    """Whether the result would be finite in float64."""
    op, seen = case.op, case.seen.get(case.op)
    x = op.outputs[0]
    if case.event.kind != "inf" or seen is None or x.dtype.name not in ("float16", "bfloat16", "float32"):
        return False
    if op.definition is Cast:
        return bool(np.isfinite(seen[0][0][case.index]))
    if op.definition.has_bodies or Kind.DTYPE in op.definition.kinds.values():
        return False
    wide = [
        a.astype(np.float64) if t.dtype.is_floating else a for a, t in zip(seen[0], op.inputs, strict=True)
    ]
    if not all(np.isfinite(a).all() for a, t in zip(wide, op.inputs, strict=True) if t.dtype.is_floating):
        return False
    try:
        result = evaluate(op.definition, wide, op.values)
    except StopgradError:  # Sizes that are known only when the graph runs.
        return False
    same = np.shape(result) == np.shape(seen[1][0])
    return same and bool(np.isfinite(np.asarray(result)[case.index]))


def is_narrow(case: Case) -> bool:
    """Whether the number is too large for float16 alone; bfloat16 holds what float32 holds."""
    return case.op.outputs[0].dtype.name == "float16" and overflows(case)


def explodes(case: Case) -> bool:
    """Whether a positive finite operand gave an infinity."""
    x = float(np.real(case.operand(0)))
    return case.event.kind == "inf" and bool(np.isfinite(x) and x > 0)
