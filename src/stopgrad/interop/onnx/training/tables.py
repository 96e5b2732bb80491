"""A table's gradient: what arrives by its rows is added into what arrives otherwise, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stopgrad.graph.graph import Operation, Output
from stopgrad.ops.elementwise.arithmetic import AddN, AddV2
from stopgrad.ops.indexing.gather import TensorScatterAdd
from stopgrad.rewrite.engine import Copying, only
from stopgrad.rewrite.passes import is_all


@only(AddN, AddV2)
def added_by_rows(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Adds rows into a tensor of the table's size, where they were added into zeros, and then to it.

    A tied embedding has such a gradient; two tensors of its size are saved. Sums are rounded otherwise.
    """
    if len(inputs) != 2 or inputs[0].type != inputs[1].type:
        return None
    for rows, other in (inputs, inputs[::-1]):
        added = rows.op
        if added.definition is TensorScatterAdd and is_all(added.inputs[0], 0.0):
            return copying.add(TensorScatterAdd, (other, *added.inputs[1:]), added.values, op)
    return None
