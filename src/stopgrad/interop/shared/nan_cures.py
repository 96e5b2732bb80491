"""What helps against NaNs and infinities that operations of other frameworks make.

A cure is told only if the values of the operation that made them match its row; never for the operation's
name alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stopgrad.interop.shared.nans import Made, element

Values = Sequence[Any]


class Row(NamedTuple):
    """A cure.

    Attributes:
        name: of the pattern.
        kinds: the operations, by the names that worlds share.
        gradient: whether it is made in the gradient; None for either.
        when: whether the operands' values match, at the element that is bad; NaN where one has none there.
        says: the cure; ``{ns}`` stands for the framework's namespace.
    """

    name: str
    kinds: frozenset[str]
    gradient: bool | None
    when: Callable[[Values], bool]
    says: str


def _row(name: str, kinds: str, gradient: bool | None, when: Callable[[Values], bool], says: str) -> Row:
    return Row(name, frozenset(kinds.split()), gradient, when, says)


def _zero(i: int) -> Callable[[Values], bool]:
    return lambda x: len(x) > i and x[i] == 0


def _below(i: int, limit: float) -> Callable[[Values], bool]:
    return lambda x: len(x) > i and x[i] < limit


def _beyond(i: int, limit: float) -> Callable[[Values], bool]:
    """The operand's size is so large, or larger."""
    return lambda x: len(x) > i and abs(x[i]) >= limit


def _always(_: Values) -> bool:
    return True


ROWS: tuple[Row, ...] = (
    _row(
        "gradient of a root at 0",
        "sqrt",
        True,
        _zero(0),
        "the derivative of the root is infinite at 0: {ns}.sqrt(x + 1e-12); or, where x may be exactly 0, "
        "replace it before: {ns}.sqrt({ns}.where(x > 0, x, 1.0)), and choose afterwards, too",
    ),
    _row(
        "root of a negative number",
        "sqrt rsqrt",
        None,
        _below(0, 0.0),
        "the operand is negative there: keep it at 0 or above, as with {ns}.{clip}",
    ),
    _row(
        "division by 0",
        "rsqrt reciprocal",
        None,
        _zero(0),
        "the operand is 0 there: add a small number, such as 1e-12, before",
    ),
    _row(
        "logarithm of 0",
        "log log2 log10",
        None,
        _zero(0),
        "keep the operand above 0: {log}(x + 1e-12), or take a loss of logits ({logits})",
    ),
    _row(
        "logarithm of a negative number",
        "log log2 log10",
        None,
        _below(0, 0.0),
        "the operand is negative there; keep it above 0",
    ),
    _row("logarithm of 0", "log1p", None, _below(0, -1.0 + 1e-300), "keep the operand above -1"),
    _row("logarithm of 0", "log1p", None, lambda x: bool(x) and x[0] == -1, "keep the operand above -1"),
    _row(
        "0 divided by 0",
        "div",
        None,
        lambda x: len(x) > 1 and x[0] == 0 and x[1] == 0,
        "both are 0 there: divide by {ns}.where(y == 0, 1.0, y), and choose afterwards, too",
    ),
    _row(
        "division by 0",
        "div",
        None,
        _zero(1),
        "the divisor is 0 there: add a small number to it, or divide by {ns}.where(y == 0, 1.0, y)",
    ),
    _row(
        "gradient of a power at 0",
        "pow",
        True,
        _zero(0),
        "the derivative of x ** p at 0 is infinite for p < 1, and takes log(x) for the exponent: "
        "keep x above "
        "0, as with (x + 1e-12) ** p",
    ),
    _row(
        "power of a negative number",
        "pow",
        None,
        _below(0, 0.0),
        "a negative number has no power that is no whole number: take {ns}.abs(x) ** p",
    ),
    _row(
        "negative power of 0",
        "pow integer_pow",
        None,
        _zero(0),
        "a negative power divides by 0 there: keep x away from 0",
    ),
    _row(
        "overflow of exp",
        "exp exp2 expm1 sinh cosh",
        None,
        _beyond(0, 10.0),
        "exp overflows: take the maximum off first, or use {softmax}, which do",
    ),
    _row(
        "edge of the domain",
        "acos asin",
        None,
        _beyond(0, 1.0),
        "the operand is at the edge of -1 .. 1, or beyond, where the derivative is infinite or there is no "
        "value: clip it inside, as with {bounded}(x, -1 + 1e-6, 1 - 1e-6)",
    ),
    _row(
        "edge of the domain",
        "acosh",
        None,
        lambda x: bool(x) and x[0] <= 1,
        "the operand is at 1, the edge of the domain, or below: clip it above 1",
    ),
    _row(
        "edge of the domain",
        "atanh erf_inv erfinv",
        None,
        _beyond(0, 1.0),
        "the operand is at the edge of -1 .. 1, or beyond: clip it inside, as with "
        "{bounded}(x, -1 + 1e-6, 1 - 1e-6)",
    ),
    _row(
        "gradient of an angle at the origin",
        "atan2",
        True,
        lambda x: len(x) > 1 and x[0] == 0 == x[1],
        "the angle of (0, 0) has no derivative: replace the operands there by others before",
    ),
    _row(
        "gradient of a norm at 0",
        "norm",
        True,
        _always,
        "the norm's derivative at 0 is 0 / 0: {ns}.sqrt({sum}(x * x) + 1e-12)",
    ),
    _row(
        "equal eigenvalues",
        "eigh eig svd",
        True,
        _always,
        "the derivative of eigenvectors (of singular vectors) divides by differences of eigenvalues, and two "
        "are equal there: make them distinct by a small perturbation, use the values alone, or stop the "
        "gradient of the vectors",
    ),
    _row(
        "singular matrix",
        "lu triangular_solve custom_linear_solve inverse solve",
        None,
        _always,
        "the matrix is singular: add a small multiple of the identity, x + 1e-6 * {ns}.eye(n)",
    ),
    _row(
        "no positive definite matrix",
        "cholesky",
        None,
        _always,
        "the matrix has an eigenvalue that is not positive: add a small multiple of the identity, "
        "x + 1e-6 * {ns}.eye(n)",
    ),
    _row(
        "an index out of bounds",
        "gather",
        False,
        _always,
        "an index is out of bounds, and JAX fills with NaN what it finds there: check the indices, or say "
        'mode="clip"',
    ),
    _row(
        "gradient of a standard deviation of 0",
        "std",
        True,
        _always,
        "the deviation is 0 (one element, or all alike), where its derivative is infinite: "
        "{ns}.sqrt({var}(x) + 1e-6)",
    ),
    _row(
        "standard deviation of one element",
        "std var",
        False,
        _always,
        "there is one element, and the divisor n - 1 is 0: correction=0, or more elements",
    ),
    _row(
        "mean of nothing",
        "mean",
        False,
        _always,
        "there is nothing to take the mean of: check the shape before",
    ),
)
"""The cures, the most specific first."""

KINDS: frozenset[str] = frozenset([kind for row in ROWS for kind in row.kinds])
"""The operations whose operands the cures ask for."""
_NARROW = {
    "float16": "65504",
    "bfloat16": "3.4e38",
    "float32": "3.4e38",
    "float64": "1.8e308",
}
UNUSED = (
    "what arrives there is 0, since the result is not used there, and 0 times an infinity is a NaN: put a "
    "harmless operand in place of the bad one before the operation, {ns}.where(ok, x, 1.0), "
    "not only behind it"
)
"""The cure for a derivative that is infinite where nothing arrives."""


def words(ns: str, **own: str) -> dict[str, str]:
    """The words of a framework for the texts of cures: its namespace, and what it has elsewhere."""
    return {
        "ns": ns,
        **{name: f"{ns}.{name}" for name in ("log", "sum", "var")},
        "bounded": f"{ns}.clip",
        **own,
    }


def choice_says(kind: str, choice: str, words: dict[str, str]) -> str:
    """The cure for a ``where`` that takes its other branch while a gradient runs through this one."""
    return (
        f"the where{choice} takes its other branch here, but the gradient runs through {kind} all the same, "
        f"where it is 0 times an infinity, a NaN. Make the operand of {kind} safe before it, too (the double "
        "where): safe = {ns}.where(condition, x, 1.0); {ns}.where(condition, f(safe), other)".format_map(
            words
        )
    )


def subject_values(event: Made) -> list[Any]:
    """The operands' elements, of the user's operation, that belong to the bad element; NaN for none."""
    if event.forward is not None:
        shape = None if event.result is None else event.result.shape
        return [_element_value(x, event.index, shape) for x in event.forward.operands]
    return [
        _element_value(x, event.index, None if event.result is None else event.result.shape)
        for x in event.operands
    ]


def _element_value(x: object, index: tuple[int, ...], shape: tuple[int, ...] | None) -> float | None:
    array = np.asarray(x)
    if array.ndim == 0:
        value = array.item()
    else:
        value = element(array, index, shape)
        if value is None and array.dtype.kind == "f" and array.size:  # For those of a vector: any that is 0.
            value = 0.0 if bool((array == 0).all()) else None
    return math.nan if value is None or isinstance(value, complex) else value


def meets_zero(event: Made, divides: bool = False) -> bool:
    """Whether it is 0 times an infinity, in a gradient; or 0 divided by 0, if it *divides*."""
    if not event.gradient or event.kind != "nan":
        return False
    values = [
        _element_value(x, event.index, None if event.result is None else event.result.shape)
        for x in event.operands
    ]
    if any(isinstance(x, float) and math.isinf(x) for x in values):
        return 0 in values
    return divides and values == [0, 0]


def cure_of(event: Made, kind: str, words: dict[str, str]) -> tuple[str, str] | None:
    """The cure of a row that an event matches, or of an overflow.

    Args:
        event: the event that is to be cured.
        kind: the user's operation, by the name that worlds share.
        words: the framework's own, by their names in braces.
    """
    values = subject_values(event)
    for row in ROWS:
        if kind in row.kinds and row.gradient in (None, event.gradient) and row.when(values):
            return row.name, row.says.format_map(words)
    return _overflow(event, words)


def _overflow(event: Made, words: dict[str, str]) -> tuple[str, str] | None:
    if event.kind != "inf" or event.source is not None or event.result is None or not event.operands:
        return None
    name = str(event.result.dtype)
    sizes = [
        float(np.abs(x.astype(np.float64)).max()) for x in event.operands if x.size and x.dtype.kind in "fV"
    ]
    if name not in _NARROW or not sizes:
        return None
    limit = float(_NARROW[name])
    if max(sizes) < min(math.sqrt(limit), limit) / 1e3 or not math.isfinite(max(sizes)):
        return None
    if name == "float16":
        return "overflow of float16", (
            f"the number is beyond the largest of float16, {_NARROW[name]}: scale it down before (a "
            f"loss scale, "
            "for gradients), or compute this in float32"
        )
    return "overflow", (
        f"the number is beyond the largest of {name}, {_NARROW[name]}: scale it down before, or "
        f"compute this in "
        "float64"
    )
