"""Forms for graphs that are divided over devices, where communication takes longest.

XLA shares what two operations have in common on one device; but if both need it from other devices, it is
communicated twice. And a divided axis cannot be merged into another one without being gathered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.elementwise.arithmetic import Mul, Neg, Sub
from stopgrad.ops.elementwise.compare import Equal, GreaterEqual, Less, LogicalAnd
from stopgrad.ops.elementwise.convert import SelectV2
from stopgrad.ops.elementwise.powers import Exp, Log
from stopgrad.ops.indexing.gather import TakeAlongAxis
from stopgrad.ops.linalg.contractions import Einsum, MatMul
from stopgrad.ops.losses.cross_entropy import (
    SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits,
)
from stopgrad.ops.reductions.reduce import Max
from stopgrad.ops.shapes.reshape import Reshape, Sum
from stopgrad.rewrite.engine import Copying, Rewritten, only, rewrite
from stopgrad.rewrite.forms.factors import Maker


@only(SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits)
def cross_entropy_in_parts(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Splits a cross entropy into operations that its gradient shares: maximum, sum of exponentials, logits.

    Recognises both cross entropies of softmax. Puts there the operations that their lowerings compute; those
    that the softmax of the gradient also needs are built once.

    Effect: none. Not applied to float16 and bfloat16, which are rounded once in the operation as a whole, and
    to no classes at all.

    Figure: value and gradient, classes divided over devices: three all-reduces of a number per row, not five.
    """
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
    """Which labels are class numbers. A bound that a narrow dtype cannot hold is left out."""
    inside = make.make(GreaterEqual, labels, make.constant(0, labels.dtype))
    if size > np.iinfo(labels.dtype.numpy).max:
        return inside
    return make.make(LogicalAnd, inside, make.make(Less, labels, make.constant(size, labels.dtype)))


FORMS = (cross_entropy_in_parts,)


def contract_in_place(prepared: Rewritten) -> Rewritten:
    """Sums products over the original axes, and not over a single one that was made of them.

    This also applies to the results of other forms: the gradient of a weight under batch axes, and over all
    steps of a loop.
    """
    return rewrite(prepared.outputs, prepared.inputs, (_in_place,))


def _in_place(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Replaces ``matmul(a, b, transpose_a=True)`` by one sum of products over the original axes.

    Also recognises operands that are ``reshape(x, [-1, m])``, and then sums over the axes of x. On a CPU, the
    product of matrices would copy its first operand, transposed, to be a little faster (by up to 13%); for
    that copy, an operand that other products have gathered would be gathered again.

    Effect: the same terms are added in another order.

    Figure: x [8, 64, 32] divided along its second axis over four devices, w [32, 48]: each device sends only
    the gradient's all-reduce, 9 kB instead of 123 kB.
    """
    if op.definition is not MatMul or values != (True, False) or any(x.ndim != 2 for x in inputs):
        return None
    a, b = _unflattened(*inputs)
    summed = _LETTERS[: a.ndim - 1]
    return copying.once(Einsum, (a, b), (f"{summed}y,{summed}z->yz",), op)


def _unflattened(a: Output, b: Output) -> tuple[Output, Output]:
    """Two matrices before their leading axes, which are equal, were merged."""
    if a.op.definition is not Reshape or b.op.definition is not Reshape:
        return a, b
    x, y = a.op.inputs[0], b.op.inputs[0]
    alike = x.shape[:-1] == y.shape[:-1] and 2 < x.ndim <= len(_LETTERS)
    return (x, y) if alike and (x.shape[-1:], y.shape[-1:]) == (a.shape[1:], b.shape[1:]) else (a, b)


_LETTERS = "abcdefghijklmnopqrstuvwx"
