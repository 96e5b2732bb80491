"""Forms for graphs that are divided over devices, where what devices say to each other takes longest.

What two operations need alike, XLA finds within one device; but where each of them asks the other devices
for it, they are asked twice. And an axis that is divided cannot become part of another one without being put
together.
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
from stopgrad.ops.linalg import Einsum, MatMul
from stopgrad.ops.losses import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from stopgrad.ops.powers import Exp, Log
from stopgrad.ops.reduce import Max
from stopgrad.ops.shape import Reshape, Sum
from stopgrad.rewrite.engine import Copying, Rewritten, rewrite
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


def contract_in_place(prepared: Rewritten) -> Rewritten:
    """Sums of products over several axes as they are, not over one that has been made of them.

    For what other forms have made: the gradient of a weight under batch axes, and over all steps of a loop.
    """
    return rewrite(prepared.outputs, prepared.inputs, (_unflattened,))


def _unflattened(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """One sum of products over k axes for ``matmul(reshape(a, [-1, m]), reshape(b, [-1, n]), transpose_a)``.

    Effect: the same terms are added in another order.

    Figure: x [8, 64, 32] divided along its second axis over four devices, w [32, 48]: the gradient's
    all-reduce alone, 9 kB a device, where 123 kB were sent.
    """
    if op.definition is not MatMul or values != (True, False):
        return None
    if any(x.op.definition is not Reshape or x.ndim != 2 for x in inputs):
        return None
    a, b = [x.op.inputs[0] for x in inputs]
    axes = a.shape[:-1]
    kept = [x.shape[-1:] == y.shape[-1:] for x, y in zip((a, b), inputs, strict=True)]
    if not 2 <= len(axes) <= len(_LETTERS) or axes != b.shape[:-1] or not all(kept):
        return None
    summed = _LETTERS[: len(axes)]
    return copying.once(Einsum, (a, b), (f"{summed}y,{summed}z->yz",), op)


_LETTERS = "abcdefghijklmnopqrstuvwx"
