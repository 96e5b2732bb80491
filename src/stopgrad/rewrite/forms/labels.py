"""What is chosen by labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.graph import Operation, Output
from stopgrad.operands import Literal
from stopgrad.ops.convert import SelectV2
from stopgrad.ops.data import Const
from stopgrad.ops.index import OneHot, ScatterAddAlongAxis
from stopgrad.ops.shape import Reshape
from stopgrad.rewrite.engine import Copying
from stopgrad.rewrite.forms.factors import Maker
from stopgrad.rewrite.passes import is_all


def compare_instead_of_scatter(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """A comparison of positions with labels for a scatter of one element per row into zeros.

    Recognises what the generator makes for ``take_along_axis(x, labels[..., None], axis)``. Puts there
    ``where(one_hot(labels), update, 0)``, which fuses with what reads it; a scatter is a loop over its
    updates.

    Effect: none, -0.0 apart, which stays where a sum with 0.0 would make it 0.0; labels outside of the axis
    hit nothing in both. Not applied where a row has more than one index, which may be equal.

    Figure: -mean(take_along_axis(log_softmax(x), y)) and its gradient.
    """
    if op.definition is not ScatterAddAlongAxis:
        return None
    (x, labels, updates), (axis,) = inputs, values
    if labels.shape[axis] != 1 or x.shape[axis] > np.iinfo(labels.dtype.numpy).max or not is_all(x, 0):
        return None
    make = Maker(copying, op)
    rows = make.make(Reshape, labels, values=(labels.shape[:axis] + labels.shape[axis + 1 :],))
    yes, no = (make.make(Const, values=(Literal(np.array(hit)),)) for hit in (True, False))
    hit = make.make(OneHot, rows, yes, no, values=(x.shape[axis], axis))
    return (make.make(SelectV2, hit, updates, make.constant(0.0, x.dtype)),)


FORMS = (compare_instead_of_scatter,)
