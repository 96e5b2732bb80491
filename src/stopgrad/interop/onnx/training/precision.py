"""Mixed precision: products of matrices and convolutions in 16 bits, all else and the weights in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stopgrad.base.garbage import without_gc
from stopgrad.base.types import DType, float32
from stopgrad.graph.graph import Operation, Output
from stopgrad.interop.onnx.training.wiring import Wired
from stopgrad.ops.elementwise.convert import Cast
from stopgrad.ops.linalg.contractions import Einsum, MatMul
from stopgrad.ops.neural.convolution import Conv
from stopgrad.rewrite import Rule, rewrite
from stopgrad.rewrite.engine import Copying

_PRODUCTS = (MatMul, Einsum, Conv)


def lowered(wired: Wired, dtype: DType) -> Wired:
    """A model whose products take and give numbers of 16 bits, for the loss and its gradients.

    The conversions are operations of the graph, so that gradients go through them: what comes back to a
    product is of 16 bits, too, and what arrives at a weight is float32 again.
    """
    old = [
        *wired.outputs.values(),
        *wired.inputs.values(),
        *wired.weights.values(),
        *wired.trained.values(),
        *[adapter.merged for adapter in wired.adapters],
    ]
    done = without_gc(rewrite, old, (), (_lowering(dtype),))
    new = dict(zip(old, done.outputs, strict=True))
    return replace(
        wired,
        graph=done.graph,
        inputs={name: new[x] for name, x in wired.inputs.items()},
        outputs={name: new[x] for name, x in wired.outputs.items()},
        weights={name: new[x] for name, x in wired.weights.items()},
        trained={name: new[x] for name, x in wired.trained.items()},
        adapters=[replace(adapter, merged=new[adapter.merged]) for adapter in wired.adapters],
    )


def _lowering(dtype: DType) -> Rule:
    """A rule that computes products of float32 in another dtype."""

    def rule(
        copying: Copying, op: Operation, inputs: tuple[Output, ...], values: tuple[Any, ...]
    ) -> Sequence[Output] | None:
        if op.definition not in _PRODUCTS or any(x.dtype is not float32 for x in inputs):
            return None
        operands = tuple(copying.add(Cast, (x,), (dtype,), op)[0] for x in inputs)
        results = copying.add(op.definition, operands, values, op)
        return [copying.add(Cast, (y,), (float32,), op)[0] for y in results]

    return rule
