"""Losses as the operations that they consist of, for graphs that are divided over devices.

What two operations need alike, XLA finds within one device; but where each of them asks the other devices for
it, they are asked twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import Operation, Output
from stopgrad.ops.arithmetic import Mul, Neg, Sub
from stopgrad.ops.compare import Equal, GreaterEqual, Less, LogicalAnd
from stopgrad.ops.convert import SelectV2
from stopgrad.ops.index import TakeAlongAxis
from stopgrad.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from stopgrad.ops.powers import Exp, Log
from stopgrad.ops.reduce import Max
from stopgrad.ops.shape import Reshape, Sum
from stopgrad.rewrite.engine import Copying
from stopgrad.rewrite.forms.factors import Maker


def cross_entropy_in_parts(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """A cross entropy as its maximum, sum of exponentials and logits, which its gradient has, too.

    Recognises both cross entropies of softmax. Puts there what their lowerings compute, as operations, of
    which those that the softmax of the gradient needs as well are built once.

    Effect: none. Not applied to float16 and bfloat16, which are rounded once in the operation as a whole, and
    to no classes at all.

    Figure: value and gradient, classes divided over devices: three all-reduces of a number per row, not five.
    """
    if op.definition not in (SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits):
        return None
    labels, logits = inputs
    (axis,) = values or (logits.ndim - 1,)
    if logits.dtype.itemsize <= 2 or logits.type.symbolic or labels.type.symbolic or not logits.shape[axis]:
        return None
    make = Maker(copying, op)
    top = make.make(Max, logits, values=((axis,), True))
    centred = make.make(Sub, logits, top)
    total = make.make(Log, make.make(Sum, make.make(Exp, centred), values=((axis,), True)))
    if op.definition is SoftmaxCrossEntropyWithLogits:
        zero = make.constant(0.0, logits.dtype)
        terms = make.make(Mul, labels, make.make(Sub, centred, total))
        terms = make.make(SelectV2, make.make(Equal, labels, zero), zero, terms)
        return (make.make(Neg, make.make(Sum, terms, values=((axis,), False))),)
    rows = make.make(Reshape, labels, values=((*labels.shape, 1),))
    chosen = make.make(Sub, make.make(TakeAlongAxis, logits, rows, values=(axis,)), top)
    losses = make.make(Reshape, make.make(Sub, total, chosen), values=(labels.shape,))
    return (make.make(SelectV2, _inside(make, labels, logits.shape[axis]), losses, _nan(make, logits)),)


def _nan(make: Maker, like: Output) -> Output:
    return make.constant(math.nan, like.dtype)


def _inside(make: Maker, labels: Output, size: int) -> Output:
    """Which labels are class numbers. What a narrow dtype cannot hold is no bound of it."""
    inside = make.make(GreaterEqual, labels, make.constant(0, labels.dtype))
    if size > np.iinfo(labels.dtype.numpy).max:
        return inside
    return make.make(LogicalAnd, inside, make.make(Less, labels, make.constant(size, labels.dtype)))


FORMS = (cross_entropy_in_parts,)
