"""What helps against a NaN or an infinity: patterns that are found in the graph and in its values.

A cure is told only where the operations around really stand as its row of :data:`PATTERNS` says and the values at
the bad element are those at which it applies; never for the name of an operation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stopgrad.batch_rules import ELEMENTWISE
from stopgrad.errors import StopgradError
from stopgrad.flow.nans_run import MOVES, Array, Made
from stopgrad.graph import Operation, Output
from stopgrad.immediate import evaluate
from stopgrad.op import Kind

_FAR = 8
"""So many operations away a pattern's parts are looked for."""


def neighbours(op: Operation, users: Mapping[Output, Sequence[Operation]]) -> frozenset[Operation]:
    """The operations whose values a pattern around *op* may ask for."""
    found: dict[Operation, None] = {}
    for start in forwards(op):
        ahead = [start]
        for _ in range(_FAR):
            ahead = [user for one in ahead for y in one.outputs for user in users.get(y, ())][:_FAR]
            found.update(dict.fromkeys(ahead))
        behind = [start, *found]
        for _ in range(_FAR):
            found.update(dict.fromkeys(behind))
            behind = [x.op for one in behind for x in one.inputs if x.op not in found]
    return frozenset(found)


def forwards(op: Operation) -> Iterator[Operation]:
    """An operation, the one for whose gradient it was made, and so on to the user's own."""
    found: Operation | None = op
    while found is not None:
        yield found
        found = found.origin


class Case:
    """An event with what is around it.

    Attributes:
        made: the event.
        op: its operation.
        base: the user's operation: itself, or the one whose gradient it computes.
        index: of the first bad element.
        only_backward: whether what was made reaches gradients, and none of the values.
    """

    def __init__(
        self,
        made: Made,
        seen: Mapping[Operation, tuple[list[Any], list[Any]]],
        users: Mapping[Output, Sequence[Operation]],
        only_backward: bool,
    ) -> None:
        self.made = made
        self.op = made.operation
        self.base = list(forwards(self.op))[-1]
        self.index = made.index
        self.only_backward = only_backward
        self._seen, self._users = seen, users

    @property
    def in_gradient(self) -> bool:
        return self.op is not self.base

    def value(self, x: Output) -> Array | None:
        """The value of an output, if it was kept."""
        seen = self._seen.get(x.op)
        if seen is not None:
            return np.asarray(seen[1][x.index])
        for user in self._users.get(x, ()):  # A parameter of a body.
            if user in self._seen:
                for operand, array in zip(user.inputs, self._seen[user][0], strict=True):
                    if operand is x:
                        return np.asarray(array)
        return None

    def at(self, x: Output, index: tuple[int, ...] | None = None) -> Any:
        """An output's value at the bad element; NaN where it has none there."""
        array, index = self.value(x), self.index if index is None else index
        if array is None or array.ndim > len(index):
            return np.nan
        index = index[len(index) - array.ndim :]
        if any(i >= n and n != 1 for i, n in zip(index, array.shape, strict=True)):
            return np.nan
        return array[tuple([0 if n == 1 else i for i, n in zip(index, array.shape, strict=True)])]

    def operand(self, i: int) -> Any:
        """The value of an operand of the user's operation at the bad element."""
        return self.at(self.base.inputs[i]) if i < len(self.base.inputs) else np.nan

    def users(self, x: Output) -> list[Operation]:
        """The operations of the user's that take an output and may carry a gradient."""
        return [
            user
            for user in self._users.get(x, ())
            if order_of(user) == order_of(x.op)
            and any(y.dtype.is_floating or y.dtype.is_complex for y in user.outputs)
        ]


def order_of(op: Operation) -> int:
    """How many differentiations lie between an operation and the user's own."""
    return sum(1 for one in forwards(op) if one.origin is not None and not _is_again(one))


def _is_again(op: Operation) -> bool:
    """Whether an operation computes its origin again, as the gradient of a branch or checkpoint does."""
    origin = op.origin
    return (
        origin is not None
        and origin.definition is op.definition
        and origin.values == op.values
        and len(origin.inputs) == len(op.inputs)
        and all(
            x.op.origin is y.op or (not x.op.inputs and x.op.type == y.op.type)
            for x, y in zip(op.inputs, origin.inputs, strict=True)
        )
    )


# ---------------------------------------------------------------------------------------- structure

_PLAIN = (MOVES | {"Cast", "Clip"}) - {"SelectV2", "PadV2", "ConcatV2", "Pack", "OneHot"}


def source(x: Output) -> Operation:
    """The operation that computes a value, behind those that only move or convert it."""
    for _ in range(_FAR):
        if x.op.type not in _PLAIN or not x.op.inputs:
            break
        x = x.op.inputs[0]
    return x.op


def _constant(x: Output) -> Any:
    """The value of a constant that holds one number; NaN for all else."""
    op = source(x)
    array = op.values[0].array if op.type == "Const" else np.empty(0)
    return array.flat[0] if array.size and np.all(array == array.flat[0]) else np.nan


def _is(x: Output, *types: str) -> bool:
    return source(x).type in types


def _is_one_plus(op: Operation, what: str) -> bool:
    """Whether an operation adds 1 to one of this type."""
    if op.type != "AddV2":
        return False
    a, b = op.inputs
    return (_constant(a) == 1 and _is(b, what)) or (_constant(b) == 1 and _is(a, what))


def _is_square(op: Operation) -> bool:
    return op.type == "Square" or (
        op.type == "Mul"
        and op.inputs[0] is op.inputs[1]
        or (op.type == "Pow" and _constant(op.inputs[1]) == 2)
    )


def _unguarded(op: Operation) -> Operation:
    """The operation behind a ``where`` that keeps a zero away, as the library's own functions build it."""
    while op.type == "SelectV2":
        op = source(op.inputs[2])
    return op


def _is_norm(op: Operation) -> bool:
    """Whether an operation is a Euclidean norm, by its function or written out."""
    op = _unguarded(op)
    if op.type == "VectorNorm":
        return True
    return op.type == "Sqrt" and _is_sum_of_squares(_unguarded(source(op.inputs[0])))


def _is_sum_of_squares(op: Operation) -> bool:
    return op.type == "Sum" and _is_square(source(op.inputs[0]))


def _is_deviation(op: Operation) -> bool:
    return op.type == "Sqrt" and _is_variance(source(op.inputs[0]))


def _is_variance(op: Operation) -> bool:
    """Whether an operation is a variance, by its function or as the mean of squared distances."""
    return op.type == "Variance" or (op.type == "Mean" and _is_square(source(op.inputs[0])))


def _exp_shares(op: Operation) -> bool:
    """Whether an operation divides exponentials by their sum."""
    if op.type != "RealDiv":
        return False
    over, under = source(op.inputs[0]), source(op.inputs[1])
    if over.type != "Exp" or under.type != "Sum":
        return False
    summed = source(under.inputs[0])
    return summed is over or (summed.type == "Exp" and source(summed.inputs[0]) is source(over.inputs[0]))


def _limit(x: Output) -> str:
    """The largest number of a dtype, as it is written."""
    known = {"float16": "65504", "bfloat16": "3.4e38", "float32": "3.4e38", "float64": "1.8e308"}
    return known.get(x.dtype.name, "the largest there is")


# ---------------------------------------------------------------------------------------- the branch not taken


def _branch_not_taken(case: Case) -> str | None:
    """A ``where`` that takes the other branch, through whose own the gradient runs nevertheless."""
    if not case.in_gradient and not case.only_backward:
        return None
    for inner in forwards(case.op):
        found = _where_behind(case, inner)
        if found is not None:
            line = f" ({_line(found)})"
            name = _WRITTEN.get(inner.type, inner.type)
            return (
                f"the where{line} takes its other branch here, but the gradient runs through {name} all the same, "
                f"where it is 0 times an infinity, a NaN. Make the operand of {name} safe before it, too (the double "
                f"where): safe = sg.where(condition, x, 1.0); sg.where(condition, {_shown(inner)}, other)"
            )
    return None


_WRITTEN = {"RealDiv": "the division", "Pow": "the power", "VectorNorm": "the norm"}


def _shown(inner: Operation) -> str:
    if inner.type == "RealDiv":
        return "y / safe"
    if inner.type == "Pow":
        return "safe ** y"
    return f"sg.{getattr(inner.definition.function, '__name__', 'f')}(safe)"


def _line(op: Operation) -> str:
    """Where the user's line is, in short."""
    location = op.location
    return f"{location.file.rpartition('/')[2]}:{location.line}" if location else op.name


def _where_behind(case: Case, inner: Operation) -> Operation | None:
    """The ``where`` through which alone *inner* is used, and which takes the other branch at the bad element."""
    if len(inner.outputs) != 1:
        return None
    x, same = inner.outputs[0], True
    for _ in range(_FAR):
        users = case.users(x)
        if len(users) != 1:
            return None
        (user,) = users
        if user.type == "SelectV2" and not any(x is y for y in user.inputs[:1]):
            return user if _is_away(case, inner, user, x, same) else None
        same = same and user.definition.batch is ELEMENTWISE
        if len(user.outputs) != 1:
            return None
        x = user.outputs[0]
    return None


def _is_away(case: Case, inner: Operation, choice: Operation, branch: Output, same: bool) -> bool:
    condition, y = case.value(choice.inputs[0]), case.value(inner.outputs[0])
    result = case.value(choice.outputs[0])
    if condition is None or y is None or result is None:
        return False
    taken = np.broadcast_to(condition if branch is choice.inputs[1] else ~condition, result.shape)
    if not taken.any():
        return True
    index = _index_in(case, inner, y.shape)
    return bool(same and index is not None and y.shape == result.shape and not taken[index])


def _index_in(case: Case, inner: Operation, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where the bad element is in the result of *inner*, which may be reduced."""
    index = case.index
    if len(index) == len(shape):
        return index if all(i < n for i, n in zip(index, shape, strict=True)) else None
    axis = dict(zip(inner.definition.attributes, inner.values, strict=True)).get("axis")
    if not isinstance(axis, tuple) or len(index) - len(axis) != len(shape):
        return None
    return tuple([i for a, i in enumerate(index) if a not in axis])


# ---------------------------------------------------------------------------------------- patterns


class Pattern(NamedTuple):
    """A row: where it applies, and what helps.

    Attributes:
        name: what it is called in tests and the documentation.
        types: of the user's operation; none for any.
        holds: whether structure and values are these.
        cure: what helps.
    """

    name: str
    types: str
    holds: Callable[[Case], Any]
    cure: str


@dataclass(frozen=True)
class _Made:
    """Whether the event was made in the values or in the gradient."""

    gradient: bool

    def __call__(self, case: Case) -> bool:
        return case.in_gradient is self.gradient


_forward, _backward = _Made(False), _Made(True)


def _zero(i: int) -> Callable[[Case], bool]:
    return lambda case: case.operand(i) == 0


def _all(*tests: Callable[[Case], Any]) -> Callable[[Case], bool]:
    return lambda case: all(test(case) for test in tests)


def _of(i: int, test: Callable[[Operation], bool]) -> Callable[[Case], bool]:
    """Whether an operand of the user's operation is computed so."""
    return lambda case: test(source(case.base.inputs[i]))


def _of_type(i: int, *types: str) -> Callable[[Case], bool]:
    return _of(i, lambda op: op.type in types)


def _used(case: Case, *steps: Callable[[Operation], bool]) -> bool:
    """Whether, along the operations that use a result, these come after each other; moves in between do not count."""
    ahead = list(case.base.outputs)
    for step in steps:
        found: list[Operation] = []
        for _ in range(3):
            users = [user for x in ahead for user in case.users(x)]
            found = [user for user in users if step(user)]
            if found:
                break
            ahead = [y for user in users if user.type in _PLAIN for y in user.outputs]
        if not found:
            return False
        ahead = [y for op in found for y in op.outputs]
    return True


def _typed(*types: str) -> Callable[[Operation], bool]:
    return lambda op: op.type in types


def _one_minus_sigmoid(op: Operation) -> bool:
    return op.type == "Sub" and _constant(op.inputs[0]) == 1 and _is(op.inputs[1], "Sigmoid")


def _is_sigmoid_written(op: Operation) -> bool:
    """1 / (1 + exp(-x)), written out."""
    under = (
        source(op.inputs[1])
        if op.type == "RealDiv"
        else source(op.inputs[0])
        if op.type == "Reciprocal"
        else op
    )
    return under is not op and _is_one_plus(under, "Exp")


def _times_zero(case: Case) -> bool:
    """Whether the logarithm is multiplied by a zero."""
    for user in case.users(case.base.outputs[0]):
        if user.type == "Mul":
            others = [x for x in user.inputs if x is not case.base.outputs[0]]
            if others and case.at(others[0]) == 0:
                return True
    return False


def _cancels(op: Operation) -> bool:
    """E[x²] - E[x]²."""
    if op.type != "Sub":
        return False
    a, b = source(op.inputs[0]), source(op.inputs[1])
    return a.type == "Mean" and _is_square(source(a.inputs[0])) and _is_square(b) and _is(b.inputs[0], "Mean")


def _is_count(case: Case) -> bool:
    """Whether the divisor is a number of things: a sum of booleans, or of zeros and ones."""
    op = source(case.base.inputs[1])
    if op.type != "Sum":
        return False
    if op.inputs[0].op.type == "Cast" and op.inputs[0].op.inputs[0].dtype.is_bool:
        return True
    array = case.value(op.inputs[0])
    return array is not None and not np.any(array) and _is_mask_of(case, op.inputs[0])


def _is_mask_of(case: Case, mask: Output) -> bool:
    """Whether the numerator is a sum of products with this mask."""
    over = source(case.base.inputs[0])
    return (
        over.type == "Sum"
        and source(over.inputs[0]).type == "Mul"
        and any(source(x) is source(mask) for x in source(over.inputs[0]).inputs)
    )


def _row(case: Case, x: Output) -> Array | None:
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
    found: Array = array[tuple([slice(None) if a in axes else i for a, i in enumerate(where)])]
    return found


def _all_masked(case: Case) -> bool:
    for x in case.base.inputs[::-1]:
        if x.dtype.is_floating:
            row = _row(case, x)
            return row is not None and row.size > 0 and bool(np.all(np.isneginf(row.astype(np.float64))))
    return False


def _minus_own_maximum(case: Case) -> bool:
    op = case.base
    return _is(op.inputs[1], "Max") and bool(np.isneginf(case.operand(0)) and np.isneginf(case.operand(1)))


def _empty(case: Case) -> bool:
    array = case.value(case.base.inputs[0])
    return array is not None and array.size == 0


def _beyond_one(case: Case) -> bool:
    return bool(abs(case.operand(0)) > 1)


def _at_one(case: Case) -> bool:
    return bool(abs(case.operand(0)) == 1)


def _zero_times_infinity(case: Case) -> bool:
    a, b = case.operand(0), case.operand(1)
    return bool((a == 0 and np.isinf(b)) or (b == 0 and np.isinf(a)))


def _opposite(case: Case) -> bool:
    return bool(np.isinf(case.operand(0)) and np.isinf(case.operand(1)))


def _overflows(case: Case) -> bool:
    """Whether the same in float64 is finite."""
    op, seen = case.op, case._seen.get(case.op)
    x = op.outputs[0]
    if case.made.kind != "inf" or seen is None or x.dtype.name not in ("float16", "bfloat16", "float32"):
        return False
    if op.type == "Cast":
        return bool(np.isfinite(seen[0][0][case.index]))
    if op.definition.has_bodies or Kind.DTYPE in op.definition.kinds.values():
        return False
    wide = [
        a.astype(np.float64) if t.dtype.is_floating else a for a, t in zip(seen[0], op.inputs, strict=True)
    ]
    if not all(np.isfinite(a).all() for a, t in zip(wide, op.inputs, strict=True) if t.dtype.is_floating):
        return False
    try:
        made = evaluate(op.definition, wide, op.values)
    except StopgradError:  # Sizes that are known only when the graph runs.
        return False
    return (
        bool(np.isfinite(np.asarray(made)[case.index])) if np.shape(made) == np.shape(seen[1][0]) else False
    )


def _narrow(case: Case) -> bool:
    return case.op.outputs[0].dtype.itemsize == 2 and _overflows(case)


def _explodes(case: Case) -> bool:
    x = float(np.real(case.operand(0)))
    return case.made.kind == "inf" and bool(np.isfinite(x) and x > 0)


PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "log of softmax",
        "Log",
        _all(_zero(0), lambda c: _of_type(0, "Softmax")(c) or _of(0, _exp_shares)(c)),
        "sg.log_softmax(x) computes log(softmax(x)) without going through the probability that became 0",
    ),
    Pattern(
        "log of sigmoid",
        "Log",
        _all(_zero(0), lambda c: _of_type(0, "Sigmoid")(c) or _of(0, _is_sigmoid_written)(c)),
        "sg.log_sigmoid(x) computes log(sigmoid(x)) without going through the probability that became 0",
    ),
    Pattern(
        "log of 1 - sigmoid",
        "Log",
        _all(_zero(0), _of(0, _one_minus_sigmoid)),
        "log(1 - sigmoid(x)) is sg.log_sigmoid(-x), or -sg.softplus(x), which stays finite; of a loss, take "
        "sg.sigmoid_cross_entropy_with_logits",
    ),
    Pattern(
        "log of a sum of exponentials",
        "Log",
        _all(_zero(0), _of(0, lambda op: op.type in ("Sum", "Mean") and _is(op.inputs[0], "Exp"))),
        "sg.reduce_logsumexp(x) computes log(sum(exp(x))) where every exponential has become 0",
    ),
    Pattern(
        "log of a product",
        "Log",
        _all(_zero(0), _of_type(0, "Prod")),
        "the product has become 0; take the sum of the logarithms instead: sg.reduce_sum(sg.log(x))",
    ),
    Pattern(
        "0 log 0",
        "Log",
        _all(_zero(0), _times_zero),
        "0 * log(0) is a NaN; sg.xlogy(x, y) computes x * log(y) and is 0 where x is 0",
    ),
    Pattern(
        "log of 0",
        "Log Log2 Log10",
        _zero(0),
        "the logarithm of 0 is an infinity; keep the operand above 0, as with sg.log(sg.maximum(x, 1e-12)), or stay "
        "in logarithms from the start",
    ),
    Pattern(
        "log of a negative number",
        "Log Log2 Log10",
        _all(_forward, lambda c: c.operand(0) < 0),
        "the operand is negative there, of which no real logarithm exists",
    ),
    Pattern(
        "variance by difference",
        "Sqrt Rsqrt",
        _all(_of(0, _cancels), lambda c: c.operand(0) <= 0),
        "the mean of squares less the square of the mean cancels, and rounding makes it 0 or negative; "
        "sg.reduce_variance(x) does not, and add a small number before the root",
    ),
    Pattern(
        "root of a negative number",
        "Sqrt Rsqrt",
        _all(_forward, lambda c: c.operand(0) < 0),
        "the operand is negative there, of which no real root exists; if only by rounding, take sg.maximum(x, 0.0) "
        "plus a small number",
    ),
    Pattern(
        "standard deviation of what is all the same",
        "Sqrt",
        _all(_backward, _zero(0), _of(0, _is_variance)),
        "the variance is 0 there (one element, or all alike), and the derivative of the root at 0 is infinite; add a "
        "small number before the root: sg.sqrt(variance + 1e-6)",
    ),
    Pattern(
        "norm at 0",
        "Sqrt",
        _all(_backward, _zero(0), _of(0, _is_sum_of_squares)),
        "a norm written as a root has an infinite derivative at 0; sg.norm(x), whose gradient there is 0, or "
        "sg.sqrt(sum + 1e-12)",
    ),
    Pattern(
        "root at 0",
        "Sqrt",
        _all(_backward, _zero(0)),
        "the derivative of the root at 0 is infinite; keep the operand above 0, as with sg.sqrt(x + 1e-12), or "
        "replace the zeros before the root: sg.sqrt(sg.where(x > 0, x, 1.0)), and choose the result afterwards",
    ),
    Pattern(
        "inverse root at 0",
        "Rsqrt",
        _zero(0),
        "the inverse root of 0 is infinite; add a small number: sg.rsqrt(x + 1e-6)",
    ),
    Pattern(
        "cube root at 0",
        "Cbrt",
        _all(_backward, _zero(0)),
        "the derivative of the cube root at 0 is infinite; keep the operand away from 0",
    ),
    Pattern(
        "arc of 1",
        "Asin Acos",
        _all(_backward, _at_one),
        "the derivative at -1 and 1 is infinite; clip before: sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6), or take an "
        "angle from sg.atan2",
    ),
    Pattern(
        "arc beyond 1",
        "Asin Acos Atanh",
        _all(_forward, _beyond_one),
        "the operand is beyond 1 there (a cosine by rounding, perhaps); clip before: "
        "sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6)",
    ),
    Pattern(
        "atanh at 1",
        "Atanh",
        _at_one,
        "atanh and its derivative are infinite at -1 and 1; clip before: "
        "sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6)",
    ),
    Pattern(
        "acosh at 1",
        "Acosh",
        _all(_backward, lambda c: c.operand(0) == 1),
        "the derivative of acosh at 1 is infinite; keep the operand above 1",
    ),
    Pattern(
        "angle of the origin",
        "Atan2",
        _all(_backward, _zero(0), _zero(1)),
        "at (0, 0) there is no angle, and so no gradient; replace such points before: "
        "sg.atan2(y, sg.where(origin, 1.0, x))",
    ),
    Pattern(
        "0 to a negative power",
        "Pow",
        _all(_forward, _zero(0), lambda c: c.operand(1) < 0),
        "0 to a negative power is infinite; keep the base away from 0",
    ),
    Pattern(
        "a negative number to a fraction",
        "Pow",
        _all(_forward, lambda c: c.operand(0) < 0),
        "a negative number has no real power that is no whole number; take the power of sg.abs(x), or keep the base "
        "positive",
    ),
    Pattern(
        "gradient of a power at 0",
        "Pow",
        _all(_backward, _zero(0), lambda c: c.operand(1) < max(order_of(c.op), 1)),
        "the derivatives of a power at 0 are infinite from the order of its exponent on; keep the base above 0, as with "
        "(x + 1e-12) ** y",
    ),
    Pattern(
        "mean over an empty mask",
        "RealDiv",
        _all(_zero(1), _is_count),
        "the mask is empty there, so that the mean divides by 0; divide by sg.maximum(count, 1.0)",
    ),
    Pattern(
        "division by a standard deviation of 0",
        "RealDiv",
        _all(_zero(1), _of(1, _is_deviation)),
        "the standard deviation is 0 there (one element, or all alike); add a small number before the root: "
        "sg.sqrt(variance + 1e-6), which also keeps its gradient finite",
    ),
    Pattern(
        "normalisation of 0",
        "RealDiv",
        _all(_zero(1), _of(1, _is_norm)),
        "the norm is 0 there; sg.l2_normalize(x, epsilon=1e-12) keeps its divisor, and the gradient, away from it",
    ),
    Pattern(
        "softmax without its shift",
        "RealDiv",
        lambda c: _exp_shares(c.base),
        "these are a softmax's shares, written out; sg.softmax(x), which takes the maximum off first, neither "
        "overflows nor divides by 0",
    ),
    Pattern(
        "division by 0",
        "RealDiv",
        _zero(1),
        "the divisor is 0 there; keep it away from 0, as with sg.maximum(y, 1e-12) where it is positive, or choose: "
        "x / sg.where(y == 0, 1.0, y)",
    ),
    Pattern(
        "inverse of 0",
        "Reciprocal",
        _zero(0),
        "the operand is 0 there; keep it away from 0, or take sg.reciprocal_no_nan",
    ),
    Pattern(
        "mean of nothing",
        "Mean",
        _all(_forward, _empty),
        "there is nothing to take the mean of; the operand is empty. Check its shape before",
    ),
    Pattern(
        "extremum of nothing",
        "Max Min",
        _all(_forward, _empty),
        "there is nothing to take the extremum of, so that it is an infinity; the operand is empty. Check its shape, "
        "or put a smallest value beside it with sg.maximum",
    ),
    Pattern(
        "softmax without its shift",
        "Exp",
        lambda c: _explodes(c) and (_used(c, _exp_shares) or _used(c, _typed("Sum"), _exp_shares)),
        "exp overflows; this is a softmax written out. sg.softmax(x) takes the maximum off first",
    ),
    Pattern(
        "log of a sum of exponentials",
        "Exp",
        lambda c: _explodes(c) and _used(c, _typed("Sum", "Mean"), _typed("Log")),
        "exp overflows; sg.reduce_logsumexp(x) computes log(sum(exp(x))) without",
    ),
    Pattern(
        "softplus written out",
        "Exp",
        lambda c: (
            _explodes(c)
            and (_used(c, _typed("Log1p")) or _used(c, lambda op: _is_one_plus(op, "Exp"), _typed("Log")))
        ),
        "exp overflows; sg.softplus(x) computes log(1 + exp(x)) without",
    ),
    Pattern(
        "sigmoid written out",
        "Exp",
        lambda c: _explodes(c) and _used(c, lambda op: _is_one_plus(op, "Exp"), _is_sigmoid_written),
        "exp overflows; sg.sigmoid(x) computes 1 / (1 + exp(-x)) without, and its gradient",
    ),
    Pattern(
        "all of a row masked",
        "Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
        _all_masked,
        "every element of the row is -inf, so that it subtracts infinities; leave one open, or mask with a large "
        "finite number such as -1e9, and choose afterwards: sg.where(any_open, softmax, 0.0)",
    ),
    Pattern(
        "all of a row masked",
        "Sub",
        _minus_own_maximum,
        "every element of the row is -inf, and so is its maximum: -inf - -inf is a NaN. Leave one open, mask with a "
        "large finite number such as -1e9, or take sg.where(sg.is_finite(maximum), maximum, 0.0) off",
    ),
    Pattern(
        "a mask by multiplication",
        "Mul",
        _all(_forward, _zero_times_infinity),
        "0 times an infinity is a NaN: multiplying by 0 does not mask it. Choose with sg.where, or keep the other "
        "factor finite",
    ),
    Pattern(
        "infinities subtracted",
        "Sub",
        _all(_forward, _opposite),
        "the difference of two infinities is a NaN; keep one of them finite",
    ),
    Pattern(
        "overflow of 16 bits",
        "",
        _narrow,
        "the number is beyond the largest of {dtype}, {limit}: scale it down before (a loss scale, for gradients), or "
        "compute this in float32 with sg.cast",
    ),
    Pattern(
        "overflow of exp",
        "Exp",
        _explodes,
        "exp overflows {dtype} here; keep its operand small, as with sg.minimum(x, 80.0), or stay in logarithms",
    ),
    Pattern(
        "overflow",
        "",
        _overflows,
        "the number is beyond the largest of {dtype}, {limit}: scale it down before, or compute this in float64",
    ),
)
"""What is recognised, the more special first. Before all stands the branch that a ``where`` does not take."""


def cure_of(case: Case) -> tuple[str, str] | None:
    """The name of the pattern that an event fits, and what helps; None where none fits."""
    found = _branch_not_taken(case)
    if found is not None:
        return "branch not taken", found
    for pattern in PATTERNS:
        if pattern.types and case.base.type not in pattern.types.split():
            continue
        if pattern.holds(case):
            x = case.op.outputs[0]
            return pattern.name, pattern.cure.format(dtype=x.dtype.name, limit=_limit(x))
    return None
