"""Combines products of matrices into fewer, larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stopgrad.base.types import product
from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.linalg.contractions import MatMul
from stopgrad.ops.shapes.reshape import Reshape, Sum
from stopgrad.rewrite.engine import Copying, only


@only(Sum)
def flatten_summed_product(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Replaces a product with batch axes that is summed over all of them by a single product of matrices.

    Recognises ``reduce_sum(matmul(a, b, transpose_a=True), batch axes)`` with a [batch, k, m] and b [batch,
    k, n]: what the generator makes for the weight of ``x @ w`` where x has batch axes. Puts there one product
    over ``batch * k``, of the two operands reshaped, which moves no data.

    Effect: the same terms are added in another order. Not applied if an operand would have to be transposed
    first, if batches are broadcast, or if only some of them are summed.

    Figure: x [8, 128, 256], w [256, 1024], the weight's gradient alone: 19 → 3.5 ms.
    """
    if inputs[0].op.definition is not MatMul:
        return None
    (summed,), (axis, _) = inputs, values
    a, b = summed.op.inputs
    batch = a.shape[:-2]
    if not batch or summed.op.values != (True, False) or batch != b.shape[:-2]:
        return None
    if sorted(axis) != list(range(len(batch))):
        return None
    count = product(a.shape[:-1])
    flat = [copying.once(Reshape, (x,), ((count, x.shape[-1]),), op)[0] for x in (a, b)]
    flat_product = copying.once(MatMul, tuple(flat), (True, False), op)
    shape = (*(1,) * len(batch), *flat_product[0].shape)
    return copying.once(Reshape, flat_product, (shape,), op) if values[1] else flat_product


FORMS = (flatten_summed_product,)
