"""Cures for NaNs and infinities: patterns in the graph and in its values.

A cure is reported only if the operations around and the values at the bad element match its row of
:data:`PATTERNS`; never for the name of an operation alone. Cures that depend only on an operation's own
operands are in its definition, in the trait ``cures``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stopgrad.flow.nans.case import (
    Case,
    choice_behind,
    forwards,
    is_deviation,
    is_difference_of_means,
    is_norm,
    is_one_minus_sigmoid,
    is_one_plus_exp,
    is_shares,
    is_sigmoid_written,
    is_sum_of_exp,
    is_sum_of_squares,
    is_variance,
)
from stopgrad.flow.nans.signs import (
    all_masked,
    backward,
    divides_exponentials,
    either,
    ends_in_logsumexp,
    every,
    explodes,
    exponent_is_small,
    forward,
    is_count,
    is_empty,
    is_flat,
    is_indefinite,
    is_narrow,
    is_negative,
    is_singular,
    is_zero,
    made_by,
    minus_own_maximum,
    of_type,
    overflows,
    times_zero,
    typed,
    used_by,
)
from stopgrad.flow.source_lines import in_short
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.op import Op
from stopgrad.ops.elementwise.arithmetic import RealDiv, Sub
from stopgrad.ops.elementwise.composite import LayerNorm, LogSoftmax, Softmax
from stopgrad.ops.elementwise.powers import Exp, Log, Log1p, Pow, Rsqrt, Sqrt
from stopgrad.ops.linalg.determinants import LogMatrixDeterminant
from stopgrad.ops.linalg.factorizations import Cholesky
from stopgrad.ops.linalg.solvers import MatrixInverse, MatrixSolve
from stopgrad.ops.losses.cross_entropy import (
    SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits,
)
from stopgrad.ops.neural.activations import Sigmoid
from stopgrad.ops.reductions.reduce import Max, Mean, Min, Prod
from stopgrad.ops.shapes.reshape import Sum
from stopgrad.ops.structural.sources import Const


def _limit(x: Output) -> str:
    """The largest number of a dtype, as text."""
    limits = {"float16": "65504", "bfloat16": "3.4e38", "float32": "3.4e38", "float64": "1.8e308"}
    return limits.get(x.dtype.name, "the largest there is")


# --------------------------------------------------------------------------- the branch not taken


def _branch_not_taken(case: Case) -> str | None:
    """A ``where`` that takes the other branch, while the gradient also runs through this one."""
    if not case.in_gradient and not case.only_backward:
        return None
    for inner in forwards(case.op):
        choice = choice_behind(case, inner)
        if choice is not None:
            line = f" ({_line(choice)})"
            name = _WRITTEN.get(inner.type, inner.type)
            return (
                f"the where{line} takes its other branch here, but the gradient runs through {name} all the "
                f"same, where it is 0 times an infinity, a NaN. Make the operand of {name} safe before it, "
                "too (the double where): safe = sg.where(condition, x, 1.0); sg.where(condition, "
                f"{_example(inner)}, other)"
            )
    return None


_WRITTEN = {"RealDiv": "the division", "Pow": "the power", "VectorNorm": "the norm"}


def _example(inner: Operation) -> str:
    if inner.definition is RealDiv:
        return "y / safe"
    if inner.definition is Pow:
        return "safe ** y"
    return f"sg.{getattr(inner.definition.function, '__name__', 'f')}(safe)"


def _line(op: Operation) -> str:
    """The user's line, in short."""
    location = op.location
    return in_short(location) if location else op.name


# ---------------------------------------------------------------------------------------- patterns


class Pattern(NamedTuple):
    """A pattern, with its cure.

    Attributes:
        name: its name in tests and the documentation.
        types: the types of the user's operation; empty for any.
        holds: whether structure and values match.
        cure: the cure.
    """

    name: str
    types: tuple[type[Op], ...]
    holds: Callable[[Case], Any]
    cure: str


PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "log of softmax",
        (Log,),
        every(is_zero(0), either(of_type(0, Softmax), made_by(0, is_shares))),
        "sg.log_softmax(x) computes log(softmax(x)) without going through the probability that became 0",
    ),
    Pattern(
        "log of sigmoid",
        (Log,),
        every(is_zero(0), either(of_type(0, Sigmoid), made_by(0, is_sigmoid_written))),
        "sg.log_sigmoid(x) computes log(sigmoid(x)) without going through the probability that became 0",
    ),
    Pattern(
        "log of 1 - sigmoid",
        (Log,),
        every(is_zero(0), made_by(0, is_one_minus_sigmoid)),
        "log(1 - sigmoid(x)) is sg.log_sigmoid(-x), or -sg.softplus(x), which stays finite; of a loss, take "
        "sg.sigmoid_cross_entropy_with_logits",
    ),
    Pattern(
        "log of a sum of exponentials",
        (Log,),
        every(is_zero(0), made_by(0, is_sum_of_exp)),
        "sg.reduce_logsumexp(x) computes log(sum(exp(x))) where every exponential has become 0",
    ),
    Pattern(
        "log of a product",
        (Log,),
        every(is_zero(0), of_type(0, Prod)),
        "the product has become 0; take the sum of the logarithms instead: sg.reduce_sum(sg.log(x))",
    ),
    Pattern(
        "0 log 0",
        (Log,),
        every(is_zero(0), times_zero),
        "0 * log(0) is a NaN; sg.xlogy(x, y) computes x * log(y) and is 0 where x is 0",
    ),
    Pattern(
        "variance by difference",
        (Sqrt, Rsqrt),
        every(made_by(0, is_difference_of_means), either(is_zero(0), is_negative(0))),
        "the mean of squares less the square of the mean cancels, and rounding makes it 0 or negative; "
        "sg.reduce_variance(x) does not, and add a small number before the root",
    ),
    Pattern(
        "standard deviation of what is all the same",
        (Sqrt,),
        every(backward, is_zero(0), made_by(0, is_variance)),
        "the variance is 0 there (one element, or all alike), and the derivative of the root at 0 is "
        "infinite; add a small number before the root: sg.sqrt(variance + 1e-6)",
    ),
    Pattern(
        "norm at 0",
        (Sqrt,),
        every(backward, is_zero(0), made_by(0, is_sum_of_squares)),
        "a norm written as a root has an infinite derivative at 0; sg.norm(x), whose gradient there is 0, or "
        "sg.sqrt(sum + 1e-12)",
    ),
    Pattern(
        "gradient of a power at 0",
        (Pow,),
        every(backward, is_zero(0), exponent_is_small),
        "the derivatives of a power at 0 are infinite from the order of its exponent on; keep the base "
        "above 0, as with (x + 1e-12) ** y",
    ),
    Pattern(
        "mean over an empty mask",
        (RealDiv,),
        every(is_zero(1), is_count),
        "the mask is empty there, so that the mean divides by 0; divide by sg.maximum(count, 1.0)",
    ),
    Pattern(
        "division by a standard deviation of 0",
        (RealDiv,),
        every(is_zero(1), made_by(1, is_deviation)),
        "the standard deviation is 0 there (one element, or all alike); add a small number before the root: "
        "sg.sqrt(variance + 1e-6), which also keeps its gradient finite",
    ),
    Pattern(
        "normalisation of 0",
        (RealDiv,),
        every(is_zero(1), made_by(1, is_norm)),
        "the norm is 0 there; sg.l2_normalize(x, epsilon=1e-12) keeps its divisor, and the gradient, away "
        "from it",
    ),
    Pattern(
        "softmax without its shift",
        (RealDiv,),
        divides_exponentials,
        "these are a softmax's shares, written out; sg.softmax(x), which takes the maximum off first, "
        "neither overflows nor divides by 0",
    ),
    Pattern(
        "normalisation of what is all the same",
        (LayerNorm,),
        is_flat,
        "every element of the row is the same, so that it divides by a deviation of 0; "
        "give an epsilon above 0",
    ),
    Pattern(
        "inverse of a singular matrix",
        (MatrixInverse, MatrixSolve, LogMatrixDeterminant),
        is_singular,
        "the matrix is singular; add a small multiple of the identity: x + 1e-6 * sg.eye(n)",
    ),
    Pattern(
        "Cholesky factor of no positive definite matrix",
        (Cholesky,),
        every(forward, is_indefinite),
        "the matrix has an eigenvalue that is not positive; add a small multiple of the identity: "
        "x + 1e-6 * sg.eye(n)",
    ),
    Pattern(
        "mean of nothing",
        (Mean,),
        every(forward, is_empty),
        "there is nothing to take the mean of; the operand is empty. Check its shape before",
    ),
    Pattern(
        "extremum of nothing",
        (Max, Min),
        every(forward, is_empty),
        "there is nothing to take the extremum of, so that it is an infinity; the operand is empty. Check "
        "its shape, or put a smallest value beside it with sg.maximum",
    ),
    Pattern(
        "softmax without its shift",
        (Exp,),
        every(explodes, either(used_by(is_shares), used_by(typed(Sum), is_shares))),
        "exp overflows; this is a softmax written out. sg.softmax(x) takes the maximum off first",
    ),
    Pattern(
        "log of a sum of exponentials",
        (Exp,),
        every(explodes, used_by(typed(Sum, Mean), typed(Log))),
        "exp overflows; sg.reduce_logsumexp(x) computes log(sum(exp(x))) without",
    ),
    Pattern(
        "softplus written out",
        (Exp,),
        every(explodes, either(used_by(typed(Log1p)), used_by(is_one_plus_exp, typed(Log)))),
        "exp overflows; sg.softplus(x) computes log(1 + exp(x)) without",
    ),
    Pattern(
        "sigmoid written out",
        (Exp,),
        every(explodes, used_by(is_one_plus_exp, is_sigmoid_written)),
        "exp overflows; sg.sigmoid(x) computes 1 / (1 + exp(-x)) without, and its gradient",
    ),
    Pattern(
        "all of a row masked",
        (Softmax, LogSoftmax, SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits),
        all_masked,
        "every element of the row is -inf, so that it subtracts infinities; leave one open, or mask with a "
        "large finite number such as -1e9, and choose afterwards: sg.where(any_open, softmax, 0.0)",
    ),
    Pattern(
        "all of a row masked",
        (Sub,),
        minus_own_maximum,
        "every element of the row is -inf, and so is its maximum: -inf - -inf is a NaN. Leave one open, "
        "mask with a large finite number such as -1e9, or take sg.where(sg.is_finite(maximum), maximum, "
        "0.0) off",
    ),
    Pattern(
        "all of a row masked",
        (Const,),
        ends_in_logsumexp,
        "every element of a row is -inf, of which log(sum(exp)) is -inf, too; leave one open, or choose "
        "afterwards: sg.where(any_open, result, 0.0)",
    ),
)
"""Patterns of surroundings, the most specific first."""

GENERAL: tuple[Pattern, ...] = (
    Pattern(
        "overflow of float16",
        (),
        is_narrow,
        "the number is beyond the largest of {dtype}, {limit}: scale it down before (a loss scale, for "
        "gradients), or compute this in float32 with sg.cast",
    ),
    Pattern(
        "overflow of exp",
        (Exp,),
        explodes,
        "exp overflows {dtype} here; keep its operand small, as with sg.minimum(x, 80.0), or stay in "
        "logarithms",
    ),
    Pattern(
        "overflow",
        (),
        overflows,
        "the number is beyond the largest of {dtype}, {limit}: scale it down before, or compute this in "
        "float64",
    ),
)
"""General patterns, for when no specific one matches. First the branch that a ``where`` does not take."""


def cure_of(case: Case) -> tuple[str, str] | None:
    """The name of the pattern that an event matches, and its cure; None if none matches."""
    cure = _branch_not_taken(case)
    if cure is not None:
        return "branch not taken", cure
    return _patterned(case, PATTERNS) or _own(case) or _patterned(case, GENERAL)


def _patterned(case: Case, patterns: Sequence[Pattern]) -> tuple[str, str] | None:
    """The first of these patterns that an event matches."""
    for pattern in patterns:
        if pattern.types and case.base.definition not in pattern.types:
            continue
        if pattern.holds(case):
            x = case.op.outputs[0]
            return pattern.name, pattern.cure.format(dtype=x.dtype.name, limit=_limit(x))
    return None


def _own(case: Case) -> tuple[str, str] | None:
    """The cure in the definition of the user's operation that matches its operands' values."""
    values = [case.operand(i) for i in range(len(case.base.inputs))]
    for cure in case.base.definition.cures:
        if cure.gradient in (None, case.in_gradient) and cure.when(*values):
            return cure.name, cure.says
    return None
