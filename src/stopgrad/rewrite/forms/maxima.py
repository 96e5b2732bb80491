"""The gradient through the maximum that a softmax subtracts.

A softmax does not depend on that maximum, so this gradient is 0: it is the sum of a row of the logits'
gradient. Users' code without a stop there computes it.
"""

from __future__ import annotations

import numpy as np

from stopgrad.graph.graph import Output
from stopgrad.ops.elementwise.arithmetic import AddV2, Mul, Neg, Sub
from stopgrad.ops.elementwise.compare import Equal
from stopgrad.ops.elementwise.convert import SelectV2
from stopgrad.ops.reductions.reduce import Max
from stopgrad.ops.shapes.reshape import Sum
from stopgrad.ops.structural.sources import Const
from stopgrad.rewrite.forms.factors import Factor
from stopgrad.rewrite.forms.tracking import Axes, Rewriting, is_row, unrepeated

_STEPS = 32
"""The most tensors that are visited to decide whether a sum is 0."""


def is_zero(at: Rewriting, x: Output, axes: Axes) -> bool:
    """Whether a row's sum is known to be 0 for all values, from sums that are known."""
    if not at.rows.exponentials:
        return False
    at.steps = _STEPS
    terms = _terms(at, x, axes)
    if terms is None:
        return False
    unmatched: list[Factor] = []
    for term in terms:
        opposite = next((other for other in unmatched if term.opposes(other)), None)
        if opposite is None:
            unmatched.append(term)
        else:
            unmatched = [other for other in unmatched if other is not opposite]
    return not unmatched


def _terms(at: Rewriting, x: Output, axes: Axes) -> list[Factor] | None:
    """A row's sum as a sum of factors; None if it is not made of sums that exist already."""
    total = at.rows.exponentials.get(x)
    if total is not None and at.rows.sums[total] == axes:
        return [Factor(over=(total,))]
    at.steps -= 1
    if at.steps < 0:
        return None
    scaled, definition = at.rows.scaled.get(x), x.op.definition
    if scaled is not None and scaled.core is not None and scaled.axes == axes:
        return _multiplied(at, _terms(at, scaled.core, axes), scaled.factor)
    existing = _existing(at, x, axes)
    if existing is not None:
        return existing
    if definition is Neg:
        inside = _terms(at, x.op.inputs[0], axes)
        return None if inside is None else [term.negated() for term in inside]
    if definition in (AddV2, Sub):
        a, b = (_terms(at, y, axes) for y in x.op.inputs)
        if a is None or b is None:
            return None
        return a + ([term.negated() for term in b] if definition is Sub else b)
    if definition is Mul:
        for a_, b_ in (x.op.inputs, x.op.inputs[::-1]):
            terms = _terms_of_product(at, x, a_, b_, axes)
            if terms is not None:
                return terms
    return None


def _terms_of_product(at: Rewriting, x: Output, a: Output, b: Output, axes: Axes) -> list[Factor] | None:
    """The terms of a · b if a is constant along the row, or the sum of something and such a tensor."""
    if b.type is not x.type:
        return None
    a = unrepeated(a)
    if is_row(a, b.ndim, axes):
        return _multiplied(at, _terms(at, b, axes), at.factor_of(a))
    if a.op.definition in (AddV2, Sub):
        whole, row = (unrepeated(y) for y in a.op.inputs)
        if is_row(row, b.ndim, axes):
            factor, product_ = at.factor_of(row), at.multiply(whole, b)
            first = _existing(at, product_, axes) if product_.type is x.type else None
            second = _multiplied(
                at, _terms(at, b, axes), factor.negated() if a.op.definition is Sub else factor
            )
            return None if first is None or second is None else first + second
    return None


def _existing(at: Rewriting, x: Output, axes: Axes) -> list[Factor] | None:
    for y, negative in ((x, False), (at.make(Neg, x), True)):
        total = at.existing(Sum, y, values=(axes, True))
        if total is not None:
            factor = at.factor_of(total)
            return [factor.negated() if negative else factor]
    return None


def _multiplied(at: Rewriting, terms: list[Factor] | None, factor: Factor) -> list[Factor] | None:
    return None if terms is None else [at.times(term, factor) for term in terms]


def carry_zero(at: Rewriting) -> Output | None:
    """Carry zeros through operations, up to the sum that leaves them out."""
    because = at.rows.zeros.get(at.inputs[1 if at.like.definition is SelectV2 else 0])
    if because is None:
        return None
    if at.like.definition is SelectV2 and not _chooses_a_maximum(*at.inputs):
        return None
    copy = at.as_it_is()
    at.rows.zeros[copy] = because
    return copy


def _chooses_a_maximum(condition: Output, _: Output, other: Output) -> bool:
    return (
        condition.op.definition is Equal
        and any(unrepeated(y).op.definition is Max for y in condition.op.inputs)
        and other.op.definition is Const
        and not np.any(other.op.values[0].array)
    )
