"""Softmax and what is computed from it: divisions by a row's sum are done last, and once.

The softmax of a row is e / s with e = exp(x - max x) and s = Σ e. As written, by users and by the gradient
generator, each tensor made of it is divided by s at once: for the loss Σ w p and its gradient these are five
tensors of full size. Here the factor 1/s is carried along through products, sums and differences: Σ (w p)
becomes (Σ w e) / s, which the gradient reads again, and the gradient becomes e (w - (Σ w e) / s) / s. That is
the closed form, found by algebra, without a pattern for each loss and each way to write it.

The factor may be taken out of sums because s is between 1 and the length of the row: nothing overflows that
was not within a factor of that length of it, and a row for which s is NaN is NaN before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.elementwise.arithmetic import AddN, AddV2, Mul, Neg, RealDiv, Square, Sub
from stopgrad.ops.elementwise.composite import LayerNorm, LogSoftmax, Softmax
from stopgrad.ops.elementwise.convert import SelectV2
from stopgrad.ops.elementwise.powers import (
    Exp,
    Pow,
    Reciprocal,
    ReciprocalGrad,
    Rsqrt,
    RsqrtGrad,
    Sqrt,
    SqrtGrad,
)
from stopgrad.ops.indexing.slices import StridedSlice, StridedSliceGrad
from stopgrad.ops.reductions.reduce import Max, Mean, Variance
from stopgrad.ops.shapes.reshape import BroadcastTo, Reshape, Sum
from stopgrad.ops.structural.sources import Const
from stopgrad.rewrite.engine import Copying, only
from stopgrad.rewrite.forms.factors import Factor, count_of
from stopgrad.rewrite.forms.maxima import carry_zero, is_zero
from stopgrad.rewrite.forms.tracking import Axes, Rewriting, Rows, Scaled, is_row, unrepeated
from stopgrad.rewrite.passes import is_all

# --------------------------------------------------------------------------------- where factors begin


def _shifted(e: Output) -> tuple[Output, Output] | None:
    """x and m of exp(x - m)."""
    if e.op.definition is not Exp or e.op.inputs[0].op.definition is not Sub:
        return None
    x, m = e.op.inputs[0].op.inputs
    return x, unrepeated(m)


def _sum_of_exponentials(at: Rewriting) -> Output | None:
    """Σ exp(x - max x), the divisor."""
    (e,), (axes, keepdims) = at.inputs, at.values
    shifted = _shifted(e)
    if shifted is None or e.dtype.itemsize < 4:
        return None
    x, m = shifted
    if m.op.definition is not Max or m.op.inputs[0] is not x or m.op.values != (axes, True):
        return None
    if x.type is not e.type or count_of(x.shape[a] for a in axes) < 2:
        return None
    total = at.make(Sum, e, values=(axes, True))
    at.rows.sums[total] = axes
    at.rows.exponentials[e] = total
    at.rows.scaled[total] = Scaled(None, Factor(over=(total,)), axes)
    return total if keepdims else at.make(Reshape, total, values=(at.type.shape,))


def _softmax(at: Rewriting) -> Output | None:
    return _as_quotient(at, at.inputs[0], at.values[0])


def _as_quotient(at: Rewriting, x: Output, axes: Axes) -> Output | None:
    """The softmax of x, from its parts."""
    if x.dtype.itemsize < 4 or count_of(x.shape[a] for a in axes) < 2:
        return None
    e = at.make(Exp, at.make(Sub, x, at.make(Max, x, values=(axes, True))))
    total = at.make(Sum, e, values=(axes, True))
    at.rows.sums[total] = axes
    at.rows.exponentials[e] = total
    at.rows.scaled[total] = Scaled(None, Factor(over=(total,)), axes)
    return at.result(e, Factor(under=(total,)), axes)


def _exp(at: Rewriting) -> Output | None:
    """exp(log_softmax x), which is in the gradient of a log-softmax."""
    softmax = at.inputs[0].op
    if softmax.definition is not LogSoftmax:
        return None
    return _as_quotient(at, softmax.inputs[0], softmax.values[0])


def _root(at: Rewriting) -> Output | None:
    """The square root of a mean square plus a positive number, and its reciprocal."""
    (x,) = at.inputs
    if x.op.definition is not AddV2 or x.dtype.itemsize < 4:
        return None
    for mean, number in (x.op.inputs, x.op.inputs[::-1]):
        epsilon = number.op.values[0].array if number.op.definition is Const else np.zeros(())
        if mean.op.definition is Mean and mean.op.values[1] and epsilon.size == 1 and epsilon.item() > 0:
            axes = mean.op.values[0]
            if mean.type is at.type and _is_square(mean.op.inputs[0]):
                root = at.as_it_is()
                at.rows.sums[root] = axes
                at.rows.scaled[root] = Scaled(None, Factor(over=(root,)), axes)
                return root
    return None


def _is_square(x: Output) -> bool:
    definition, inputs = x.op.definition, x.op.inputs
    return definition is Square or (
        (definition is Mul and inputs[0] is inputs[1])
        or (definition is Pow and inputs[1].op.definition is Const and is_all(inputs[1], 2))
    )


def _sqrt_grad(at: Rewriting) -> Output | None:
    """g / 2y for values of a row."""
    y, g = at.inputs
    scaled = at.rows.scaled.get(y)
    if scaled is None or scaled.core is not None or not is_row(g, at.type.ndim, scaled.axes):
        return None
    half = Factor(over=(at.constant(0.5, y.dtype),))
    whole = at.times(at.times(at.factor_of(unrepeated(g)), half), scaled.factor.inverse())
    return at.row_result(whole, scaled.axes)


def _rsqrt_grad(at: Rewriting) -> Output | None:
    """-g · y³ / 2 for values of a row."""
    y, g = at.inputs
    scaled = at.rows.scaled.get(y)
    if scaled is None or scaled.core is not None or not is_row(g, at.type.ndim, scaled.axes):
        return None
    whole = at.times(at.factor_of(unrepeated(g)), Factor(True, (at.constant(0.5, y.dtype),)))
    for _ in range(3):
        whole = at.times(whole, scaled.factor)
    return at.row_result(whole, scaled.axes)


def _centred(at: Rewriting, x: Output, axes: Axes) -> Output:
    return at.make(Sub, x, at.make(Mean, x, values=(axes, True)))


def _variance(at: Rewriting) -> Output | None:
    (x,), (axes, keepdims) = at.inputs, at.values
    if x.dtype.itemsize < 4:
        return None
    return at.make(Mean, at.make(Square, _centred(at, x, axes)), values=(axes, keepdims))


def _layer_norm(at: Rewriting) -> Output | None:
    (x,), (axes, epsilon) = at.inputs, at.values
    if x.dtype.itemsize < 4 or not epsilon > 0:
        return None
    centred = _centred(at, x, axes)
    variance = at.make(Mean, at.make(Square, centred), values=(axes, True))
    root = at.make(Sqrt, at.make(AddV2, variance, at.constant(epsilon, x.dtype)))
    at.rows.sums[root] = axes
    at.rows.scaled[root] = Scaled(None, Factor(over=(root,)), axes)
    return at.result(centred, Factor(under=(root,)), axes)


def _max(at: Rewriting) -> Output | None:
    axes, keepdims = at.values
    if keepdims or not axes:
        return None
    return at.make(Reshape, at.make(Max, *at.inputs, values=(axes, True)), values=(at.type.shape,))


# ------------------------------------------------------------------------------- how they are handed on


def _mul(at: Rewriting) -> Output | None:
    operands = at.parts()
    if operands is None:
        return None
    (a, b), axes = operands
    factor, rest = at.safe(at.times(a.factor, b.factor))
    if a.core is None and b.core is None:
        return at.row_result(at.times(a.factor, b.factor), axes)
    cores = [core for core in (a.core, b.core) if core is not None]
    core = at.multiply(*cores) if len(cores) == 2 else cores[0]
    return at.result(core if rest.is_one else at.scaled(core, rest), factor, axes)


def _div(at: Rewriting) -> Output | None:
    operands = at.parts()
    if operands is None:
        return None
    (a, b), axes = operands
    if b.core is not None:
        return None  # Divisions by a softmax are left as they are, which is faster.
    whole = at.times(a.factor, b.factor.inverse())
    if a.core is None:
        return at.row_result(whole, axes)
    factor, rest = at.safe(whole)
    return at.result(a.core if rest.is_one else at.scaled(a.core, rest), factor, axes)


def _reciprocal(at: Rewriting) -> Output | None:
    scaled = at.rows.scaled.get(at.inputs[0])
    if scaled is None or scaled.core is not None:
        return None
    return at.row_result(scaled.factor.inverse(), scaled.axes)


def _reciprocal_grad(at: Rewriting) -> Output | None:
    """-g · y² for values of a row."""
    y, g = at.inputs
    scaled = at.rows.scaled.get(y)
    if scaled is None or scaled.core is not None or not is_row(g, at.type.ndim, scaled.axes):
        return None
    square = at.times(scaled.factor, scaled.factor)
    return at.row_result(at.times(square, at.factor_of(unrepeated(g))).negated(), scaled.axes)


def _neg(at: Rewriting) -> Output | None:
    scaled = at.rows.scaled.get(at.inputs[0])
    if scaled is None:
        return None
    if scaled.core is None:
        return at.row_result(scaled.factor.negated(), scaled.axes)
    return at.result(scaled.core, scaled.factor.negated(), scaled.axes)


def _add(at: Rewriting) -> Output | None:
    nonzero = [x for x in at.inputs if x not in at.rows.zeros]
    if len(nonzero) < len(at.inputs) and at.like.definition is not Sub:
        return nonzero[0] if len(nonzero) == 1 and nonzero[0].type is at.type else None
    operands = at.parts()
    if operands is None:
        return None
    parts, axes = operands
    common = min(
        (part.factor for part in parts if part.core is not None and not part.factor.is_one),
        key=lambda factor: len(factor.over) + len(factor.under),
        default=None,
    )
    if common is None:
        return None
    total: Output | None = None
    for i, (core, factor, _) in enumerate(parts):
        rest = at.times(factor, common.inverse())
        if i and at.like.definition is Sub:
            rest = rest.negated()
        if not set(rest.over).isdisjoint(common.under) or not set(rest.under).isdisjoint(common.over):
            return None
        minus = rest.negative and total is not None
        rest = rest.negated() if minus else rest
        if core is None:
            term = at.row(rest, at.type.dtype)
            at.rows.scaled.setdefault(term, Scaled(None, rest, axes))
        else:
            term = _times_row(at, core, rest, axes)
        total = term if total is None else at.make(Sub if minus else AddV2, total, term)
    assert total is not None
    return at.result(total, common, axes)


def _times_row(at: Rewriting, core: Output, factor: Factor, axes: Axes) -> Output:
    """A core times a factor. If the core is a product with a value of the row, these are multiplied first."""
    if core.op.definition is Mul and not factor.is_one:
        for whole, row in (core.op.inputs, core.op.inputs[::-1]):
            if is_row(row, core.ndim, axes) and whole.type is core.type:
                return at.scaled(whole, at.times(factor, at.factor_of(row)))
    return at.scaled(core, factor)


def _sum(at: Rewriting) -> Output | None:
    (x,), (axis, keepdims) = at.inputs, at.values
    scaled = at.rows.scaled.get(x)
    if scaled is None or scaled.core is None or not set(scaled.axes) <= set(axis):
        return None
    factor, axes = scaled.factor, scaled.axes
    core = _without_centred(at, scaled.core, axes)
    vanishes = len(axes) == len(axis) and is_zero(at, core, axes)
    summed = _sum_of_slice(at, core, scaled)
    if summed is None:
        summed = at.make(Sum, core, values=(axes, True))
    result = at.scaled(summed, factor)
    whole = at.times(factor, at.factor_of(summed))
    at.rows.scaled.setdefault(result, Scaled(None, whole, axes))
    if len(axes) < len(axis):
        return at.make(Sum, result, values=(axis, keepdims))
    if vanishes:
        at.rows.zeros[result] = x
    return result if keepdims else at.make(Reshape, result, values=(at.type.shape,))


def _sum_of_slice(at: Rewriting, core: Output, scaled: Scaled) -> Output | None:
    """Σ e g along a row, where g is 0 outside of a slice: the sum over the slice.

    If e is not finite outside of it, neither is s, by which this is divided.
    """
    if core.op.definition is not Mul:
        return None
    for e, g in (core.op.inputs, core.op.inputs[::-1]):
        total = at.rows.exponentials.get(e)
        if total in set(scaled.factor.under) and g.op.definition is StridedSliceGrad:
            (inner,), (shape, spans) = g.op.inputs, g.op.values
            others = [i for i in range(e.ndim) if i not in scaled.axes]
            if shape == e.shape and all(spans[i] == (0, shape[i], 1) for i in others):
                sliced = at.multiply(at.make(StridedSlice, e, values=(spans,)), inner)
                return at.make(Sum, sliced, values=(scaled.axes, True))
    return None


def _without_centred(at: Rewriting, core: Output, axes: Axes) -> Output:
    """A tensor with the same sum along a row, without multiples of x - mean x."""
    if core.op.definition not in (AddV2, Sub):
        return core
    a, b = core.op.inputs
    if _is_centred(b, axes):
        return _without_centred(at, a, axes)
    if _is_centred(a, axes):
        return at.make(Neg, b) if core.op.definition is Sub else b
    return core


def _is_centred(x: Output, axes: Axes) -> bool:
    """Whether a tensor is x - mean x, multiplied or divided by values that are constant along the row."""
    for _ in range(4):
        a, b = x.op.inputs if len(x.op.inputs) == 2 else (x, x)
        if x.op.definition is Sub:
            mean = unrepeated(b)
            return mean.op.definition is Mean and mean.op.inputs[0] is a and mean.op.values == (axes, True)
        if x.op.definition in (Mul, RealDiv) and is_row(unrepeated(b), x.ndim, axes):
            x = a
        elif x.op.definition is Mul and is_row(unrepeated(a), x.ndim, axes):
            x = b
        else:
            return False
    return False


def _sum_that_is_zero(at: Rewriting) -> Output | None:
    (x,), (axis, keepdims) = at.inputs, at.values
    if not keepdims or not at.rows.exponentials or x.op.definition not in (Neg, AddV2, Sub):
        return None
    if not is_zero(at, x, axis):
        return None
    zero = at.as_it_is()
    at.rows.zeros[zero] = x
    return zero


def _mean(at: Rewriting) -> Output | None:
    (x,), (axis, _) = at.inputs, at.values
    scaled = at.rows.scaled.get(x)
    if scaled is None or scaled.core is None or not set(scaled.axes) <= set(axis):
        return None
    total = _sum(at)
    count = count_of(x.shape[a] for a in axis)
    return None if total is None else at.make(RealDiv, total, at.constant(count, x.dtype))


_HANDLERS: dict[Any, Sequence[Callable[[Rewriting], Output | None]]] = {
    AddN: (_add,),
    AddV2: (_add,),
    BroadcastTo: (carry_zero,),
    Exp: (_exp,),
    LayerNorm: (_layer_norm,),
    Max: (_max,),
    Mean: (_mean,),
    Mul: (_mul,),
    Neg: (carry_zero, _neg),
    RealDiv: (carry_zero, _div),
    Reciprocal: (_reciprocal,),
    ReciprocalGrad: (_reciprocal_grad,),
    Reshape: (carry_zero,),
    Rsqrt: (_root,),
    RsqrtGrad: (_rsqrt_grad,),
    SelectV2: (carry_zero,),
    Softmax: (_softmax,),
    Sqrt: (_root,),
    SqrtGrad: (_sqrt_grad,),
    Sub: (_add,),
    Sum: (_sum_of_exponentials, _sum, _sum_that_is_zero),
    Variance: (_variance,),
}
_BEGIN = frozenset({Exp, LayerNorm, Max, Rsqrt, Softmax, Sqrt, Sum, Variance})


@only(*_HANDLERS)
def divide_last(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Divides by the sum of a softmax as late as possible, and only once.

    Recognises e / s and e · (1 / s) with e = exp(x - max x), s = Σ e over the same axes, in users' code or as
    Softmax; and all products, sums and differences of these, in the loss and in its gradient. The gradient
    through a maximum without a stop is 0, and is left out.

    Effect: values and gradients as before up to rounding; NaN and -∞ stay where they were. Terms of a sum are
    larger by at most the length of a row. Not applied to 16-bit floats, to an exponential that is not shifted
    by the maximum over the same axes (it may overflow), or if a row has one element.

    The same for divisions by √(mean x² + ε), or products with its reciprocal: layer norm, RMS norm. There the
    sum of x - mean x counts as 0; so if squares overflow, a NaN of the gradient may become 0.

    Figures, processor time for value and gradient: Σ w · softmax x, 4096 × 1024: 8.8 → 4.5 ms; 256 × 32000:
    15.0 → 7.7; -mean(log softmax(x)[:, 0]), 4096 × 1024: 8.2 → 2.9; RMS norm and tanh: 9.3 → 6.7; layer
    norm, scale, offset and tanh: 15.3 → 14.5.
    """
    if op.outputs[0].type.symbolic or inputs[0].type.symbolic:
        return None
    rows = copying.table.get(Rows)
    if rows is None:
        if op.definition not in _BEGIN:
            return None
        rows = copying.table[Rows] = Rows()
    if op.definition not in _BEGIN and not rows.sums:
        return None
    at = Rewriting(copying, op, inputs, values, rows)
    for handler in _HANDLERS[op.definition]:
        result = handler(at)
        if result is not None:
            return (result,)
    return None


FORMS = (divide_last,)
