"""What helps against a NaN or an infinity: patterns that are found in the graph and in its values.

A cure is told only where the operations around really stand as its row of :data:`PATTERNS` says and the
values at the bad element are those at which it applies; never for the name of an operation alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stopgrad.errors import StopgradError
from stopgrad.flow.nans_case import (
    PLAIN,
    Case,
    choice_behind,
    comes_from,
    forwards,
    is_deviation,
    is_difference_of_means,
    is_norm,
    is_one_minus_sigmoid,
    is_one_plus,
    is_shares,
    is_sigmoid_written,
    is_sum_of_squares,
    is_variance,
    order_of,
    source,
)
from stopgrad.flow.nans_run import Array
from stopgrad.graph import Operation, Output
from stopgrad.immediate import evaluate
from stopgrad.op import Kind


def _limit(x: Output) -> str:
    """The largest number of a dtype, as it is written."""
    known = {"float16": "65504", "bfloat16": "3.4e38", "float32": "3.4e38", "float64": "1.8e308"}
    return known.get(x.dtype.name, "the largest there is")


# --------------------------------------------------------------------------- the branch not taken


def _branch_not_taken(case: Case) -> str | None:
    """A ``where`` that takes the other branch, through whose own the gradient runs nevertheless."""
    if not case.in_gradient and not case.only_backward:
        return None
    for inner in forwards(case.op):
        found = choice_behind(case, inner)
        if found is not None:
            line = f" ({_line(found)})"
            name = _WRITTEN.get(inner.type, inner.type)
            return (
                f"the where{line} takes its other branch here, but the gradient runs through {name} all the "
                f"same, where it is 0 times an infinity, a NaN. Make the operand of {name} safe before it, "
                "too (the double where): safe = sg.where(condition, x, 1.0); sg.where(condition, "
                f"{_shown(inner)}, other)"
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


def _forward(case: Case) -> bool:
    return not case.in_gradient


def _backward(case: Case) -> bool:
    return case.in_gradient


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
    """Whether operations like these use a result, one after the other; moves in between do not count."""
    ahead = list(case.base.outputs)
    for step in steps:
        found: list[Operation] = []
        for _ in range(3):
            users = [user for x in ahead for user in case.users(x)]
            found = [user for user in users if step(user)]
            if found:
                break
            ahead = [y for user in users if user.type in PLAIN for y in user.outputs]
        if not found:
            return False
        ahead = [y for op in found for y in op.outputs]
    return True


def _typed(*types: str) -> Callable[[Operation], bool]:
    return lambda op: op.type in types


def _times_zero(case: Case) -> bool:
    """Whether the logarithm is multiplied by a zero."""
    for user in case.users(case.base.outputs[0]):
        if user.type == "Mul":
            others = [x for x in user.inputs if x is not case.base.outputs[0]]
            if others and case.at(others[0]) == 0:
                return True
    return False


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
    return comes_from(op.inputs[1], "Max") and bool(
        np.isneginf(case.operand(0)) and np.isneginf(case.operand(1))
    )


def _ends_in_logsumexp(case: Case) -> bool:
    """Whether a constant's infinities fill a whole row of a LogSumExp."""
    ahead = [case.base.outputs[0]]
    for _ in range(4):
        users = [user for x in ahead for user in case.users(x)]
        for user in users:
            made = case.value(user.outputs[0]) if user.type == "LogSumExp" else None
            if made is not None and np.isneginf(made.astype(np.float64)).any():
                return True
        ahead = [y for user in users for y in user.outputs]
    return False


def _matrix(case: Case) -> Array | None:
    """The matrix of which the bad element is made."""
    array = case.value(case.base.inputs[0])
    if array is None or array.ndim < 2 or len(case.index) < array.ndim - 2:
        return None
    found: Array = array[case.index[: array.ndim - 2]]
    return found.astype(np.complex128) if found.dtype.kind == "c" else found.astype(np.float64)


def _is_singular(case: Case) -> bool:
    x = _matrix(case)
    return x is not None and bool(np.isfinite(x).all()) and int(np.linalg.matrix_rank(x)) < x.shape[-1]


def _is_indefinite(case: Case) -> bool:
    x = _matrix(case)
    return x is not None and bool(np.isfinite(x).all()) and bool(np.linalg.eigvalsh(x).min() <= 0)


def _is_flat(case: Case) -> bool:
    """Whether a row that is normalised is the same everywhere, and nothing keeps its deviation from 0."""
    row = _row(case, case.base.inputs[0])
    return case.base.epsilon == 0 and row is not None and row.size > 0 and bool(np.all(row == row.flat[0]))


def _at_pole(case: Case) -> bool:
    x = case.operand(0)
    return bool(x <= 0 and x == np.floor(x))


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
    op, seen = case.op, case.seen.get(case.op)
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
        _all(_zero(0), lambda c: _of_type(0, "Softmax")(c) or _of(0, is_shares)(c)),
        "sg.log_softmax(x) computes log(softmax(x)) without going through the probability that became 0",
    ),
    Pattern(
        "log of sigmoid",
        "Log",
        _all(_zero(0), lambda c: _of_type(0, "Sigmoid")(c) or _of(0, is_sigmoid_written)(c)),
        "sg.log_sigmoid(x) computes log(sigmoid(x)) without going through the probability that became 0",
    ),
    Pattern(
        "log of 1 - sigmoid",
        "Log",
        _all(_zero(0), _of(0, is_one_minus_sigmoid)),
        "log(1 - sigmoid(x)) is sg.log_sigmoid(-x), or -sg.softplus(x), which stays finite; of a loss, take "
        "sg.sigmoid_cross_entropy_with_logits",
    ),
    Pattern(
        "log of a sum of exponentials",
        "Log",
        _all(_zero(0), _of(0, lambda op: op.type in ("Sum", "Mean") and comes_from(op.inputs[0], "Exp"))),
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
        "the logarithm of 0 is an infinity; keep the operand above 0, as with sg.log(sg.maximum(x, 1e-12)), "
        "or stay in logarithms from the start",
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
        _all(_of(0, is_difference_of_means), lambda c: c.operand(0) <= 0),
        "the mean of squares less the square of the mean cancels, and rounding makes it 0 or negative; "
        "sg.reduce_variance(x) does not, and add a small number before the root",
    ),
    Pattern(
        "root of a negative number",
        "Sqrt Rsqrt",
        _all(_forward, lambda c: c.operand(0) < 0),
        "the operand is negative there, of which no real root exists; if only by rounding, take "
        "sg.maximum(x, 0.0) plus a small number",
    ),
    Pattern(
        "standard deviation of what is all the same",
        "Sqrt",
        _all(_backward, _zero(0), _of(0, is_variance)),
        "the variance is 0 there (one element, or all alike), and the derivative of the root at 0 is "
        "infinite; add a small number before the root: sg.sqrt(variance + 1e-6)",
    ),
    Pattern(
        "norm at 0",
        "Sqrt",
        _all(_backward, _zero(0), _of(0, is_sum_of_squares)),
        "a norm written as a root has an infinite derivative at 0; sg.norm(x), whose gradient there is 0, or "
        "sg.sqrt(sum + 1e-12)",
    ),
    Pattern(
        "root at 0",
        "Sqrt",
        _all(_backward, _zero(0)),
        "the derivative of the root at 0 is infinite; keep the operand above 0, as with sg.sqrt(x + 1e-12), "
        "or replace the zeros before the root: sg.sqrt(sg.where(x > 0, x, 1.0)), and choose the result "
        "afterwards",
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
        "the derivative at -1 and 1 is infinite; clip before: sg.clip_by_value(x, -1 + 1e-6, 1 - 1e-6), or "
        "take an angle from sg.atan2",
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
        "a negative number has no real power that is no whole number; take the power of sg.abs(x), or keep "
        "the base positive",
    ),
    Pattern(
        "gradient of a power at 0",
        "Pow",
        _all(_backward, _zero(0), lambda c: c.operand(1) < max(order_of(c.op), 1)),
        "the derivatives of a power at 0 are infinite from the order of its exponent on; keep the base "
        "above 0, as with (x + 1e-12) ** y",
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
        _all(_zero(1), _of(1, is_deviation)),
        "the standard deviation is 0 there (one element, or all alike); add a small number before the root: "
        "sg.sqrt(variance + 1e-6), which also keeps its gradient finite",
    ),
    Pattern(
        "normalisation of 0",
        "RealDiv",
        _all(_zero(1), _of(1, is_norm)),
        "the norm is 0 there; sg.l2_normalize(x, epsilon=1e-12) keeps its divisor, and the gradient, away "
        "from it",
    ),
    Pattern(
        "softmax without its shift",
        "RealDiv",
        lambda c: is_shares(c.base),
        "these are a softmax's shares, written out; sg.softmax(x), which takes the maximum off first, "
        "neither overflows nor divides by 0",
    ),
    Pattern(
        "division by 0",
        "RealDiv",
        _zero(1),
        "the divisor is 0 there; keep it away from 0, as with sg.maximum(y, 1e-12) where it is positive, or "
        "choose: x / sg.where(y == 0, 1.0, y)",
    ),
    Pattern(
        "inverse of 0",
        "Reciprocal",
        _zero(0),
        "the operand is 0 there; keep it away from 0, or take sg.reciprocal_no_nan",
    ),
    Pattern(
        "normalisation of what is all the same",
        "LayerNorm",
        _is_flat,
        "every element of the row is the same, so that it divides by a deviation of 0; give an epsilon above 0",
    ),
    Pattern(
        "inverse of a singular matrix",
        "MatrixInverse MatrixSolve LogMatrixDeterminant",
        _is_singular,
        "the matrix is singular; add a small multiple of the identity: x + 1e-6 * sg.eye(n)",
    ),
    Pattern(
        "Cholesky factor of no positive definite matrix",
        "Cholesky",
        _all(_forward, _is_indefinite),
        "the matrix has an eigenvalue that is not positive; add a small multiple of the identity: "
        "x + 1e-6 * sg.eye(n)",
    ),
    Pattern(
        "pole of the gamma function",
        "Lgamma Digamma",
        _at_pole,
        "the function is infinite at 0 and at negative whole numbers; keep the operand positive",
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
        "there is nothing to take the extremum of, so that it is an infinity; the operand is empty. Check "
        "its shape, or put a smallest value beside it with sg.maximum",
    ),
    Pattern(
        "softmax without its shift",
        "Exp",
        lambda c: _explodes(c) and (_used(c, is_shares) or _used(c, _typed("Sum"), is_shares)),
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
            and (_used(c, _typed("Log1p")) or _used(c, lambda op: is_one_plus(op, "Exp"), _typed("Log")))
        ),
        "exp overflows; sg.softplus(x) computes log(1 + exp(x)) without",
    ),
    Pattern(
        "sigmoid written out",
        "Exp",
        lambda c: _explodes(c) and _used(c, lambda op: is_one_plus(op, "Exp"), is_sigmoid_written),
        "exp overflows; sg.sigmoid(x) computes 1 / (1 + exp(-x)) without, and its gradient",
    ),
    Pattern(
        "all of a row masked",
        "Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
        _all_masked,
        "every element of the row is -inf, so that it subtracts infinities; leave one open, or mask with a "
        "large finite number such as -1e9, and choose afterwards: sg.where(any_open, softmax, 0.0)",
    ),
    Pattern(
        "all of a row masked",
        "Sub",
        _minus_own_maximum,
        "every element of the row is -inf, and so is its maximum: -inf - -inf is a NaN. Leave one open, "
        "mask with a large finite number such as -1e9, or take sg.where(sg.is_finite(maximum), maximum, "
        "0.0) off",
    ),
    Pattern(
        "all of a row masked",
        "Const",
        _ends_in_logsumexp,
        "every element of a row is -inf, of which log(sum(exp)) is -inf, too; leave one open, or choose "
        "afterwards: sg.where(any_open, result, 0.0)",
    ),
    Pattern(
        "a mask by multiplication",
        "Mul",
        _all(_forward, _zero_times_infinity),
        "0 times an infinity is a NaN: multiplying by 0 does not mask it. Choose with sg.where, or keep the "
        "other factor finite",
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
        "the number is beyond the largest of {dtype}, {limit}: scale it down before (a loss scale, for "
        "gradients), or compute this in float32 with sg.cast",
    ),
    Pattern(
        "overflow of exp",
        "Exp",
        _explodes,
        "exp overflows {dtype} here; keep its operand small, as with sg.minimum(x, 80.0), or stay in "
        "logarithms",
    ),
    Pattern(
        "overflow",
        "",
        _overflows,
        "the number is beyond the largest of {dtype}, {limit}: scale it down before, or compute this in "
        "float64",
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
