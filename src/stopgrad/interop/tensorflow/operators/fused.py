"""Operations that TensorFlow's optimiser makes of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stopgrad as sg
from stopgrad.interop.tensorflow.operators.activations import relu, relu6
from stopgrad.interop.tensorflow.operators.calling import Call, Rule, Table
from stopgrad.interop.tensorflow.operators.convolutions import convolution, depthwise
from stopgrad.interop.tensorflow.operators.normalizations import batch_normalization, bias_add
from stopgrad.interop.tensorflow.operators.products import matrix_product


def _leaky(node: Call, x: sg.Output) -> sg.Output:
    return sg.leaky_relu(x, float(node.attribute("leakyrelu_alpha", 0.2)))


_LAST: dict[str, Callable[[Call, sg.Output], Any]] = {
    "Relu": relu,
    "Relu6": relu6,
    "LeakyRelu": _leaky,
    "Elu": lambda node, x: sg.elu(x),
    "Tanh": lambda node, x: sg.tanh(x),
    "Sigmoid": lambda node, x: sg.sigmoid(x),
    "GeluExact": lambda node, x: sg.gelu(x),
    "GeluApproximate": lambda node, x: sg.gelu(x, approximate=True),
    "_FusedHardSwish": lambda node, x: sg.hard_swish(x),
}


def _fused(first: Callable[[Call, sg.Output, sg.Output], Any]) -> Rule:
    """An operation, and after it those that the attribute ``fused_ops`` names, with their operands."""

    def rule(node: Call, a: sg.Output, b: sg.Output, *args: sg.Output) -> sg.Output:
        y, rest = first(node, a, b), list(args)
        for name in node.attribute("fused_ops") or ():
            if name == "BiasAdd":
                y = bias_add(node, y, rest.pop(0))
            elif name == "Add":
                y = sg.add(y, rest.pop(0))
            elif name == "FusedBatchNorm":
                y = _normalized(node, y, *[rest.pop(0) for _ in range(4)])
            elif name in _LAST:
                y = _LAST[name](node, y)
            else:
                node.fail(f"the operation {name!r} is fused into it, which is not there")
        return y

    return rule


def _normalized(node: Call, x: sg.Output, *statistics: sg.Output) -> sg.Output:
    """By given statistics: fused normalisation is that of inference."""
    node.attributes.setdefault("is_training", False)
    return batch_normalization(node, x, *statistics)[0]


def _batch_normalization(node: Call, x: sg.Output, *operands: sg.Output) -> tuple[sg.Output, ...]:
    """``_FusedBatchNormEx``: normalisation, a further summand, and an activation."""
    y, *others = batch_normalization(node, x, *operands[:4])
    for side in operands[4:]:
        y = sg.add(y, side)
    mode = str(node.attribute("activation_mode", "Identity"))
    if mode != "Identity":
        y = _LAST[mode](node, y) if mode in _LAST else node.fail(f"its activation {mode!r} is not there")
    return (y, *others)


FUSED: Table = {
    "_FusedConv2D": _fused(convolution),
    "_FusedDepthwiseConv2dNative": _fused(depthwise),
    "_FusedMatMul": _fused(matrix_product),
    "_FusedBatchNormEx": _batch_normalization,
}
