"""Rules that rewrite a graph before it is written, so that it needs fewer or faster operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.base.types import float32
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.operands import Literal
from stopgrad.ops.elementwise.arithmetic import Sub
from stopgrad.ops.neural.activations import Gelu
from stopgrad.ops.special.gamma import Erf, Erfc
from stopgrad.ops.structural.sources import Const
from stopgrad.rewrite import fold, merge, simplify
from stopgrad.rewrite.engine import Copying, Rule
from stopgrad.rewrite.forms.products import flatten_summed_product
from stopgrad.rewrite.loop_fusion import unite_scans


def erf_in_slopes(
    copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
) -> Sequence[Output] | None:
    """Writes 1 - erf for erfc in the derivative of GELU, as PyTorch does.

    Runtimes have no erfc, and its formula is long. Where the difference has a large relative error, the
    derivative is close to 0.

    Figure: x [4, 128, 256], one encoder layer with its gradient on one thread of onnxruntime: 175 → 76 ms.
    """
    if op.definition is not Erfc or op.outputs[0].dtype is not float32:
        return None
    if op.origin is None or op.origin.definition is not Gelu:
        return None
    one = copying.once(Const, (), (Literal(np.ones((), np.float32)),), op)
    return copying.once(Sub, (*one, *copying.once(Erf, inputs, (), op)), (), op)


RULES: Sequence[Rule] = (unite_scans, flatten_summed_product, erf_in_slopes, simplify, fold, merge)
