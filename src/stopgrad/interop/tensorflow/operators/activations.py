"""Activation functions, their gradients as operations, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.tensorflow.operators.calling import Call, Known, Table
from stopgrad.interop.tensorflow.operators.elementwise import unary

_ALPHA = 1.6732632423543772848170429916717
_SCALE = 1.0507009873554804934193349852946


def relu(node: Call, x: sg.Output) -> sg.Output:
    return sg.relu(x) if x.dtype.is_floating else sg.maximum(x, brought(0, x.dtype))


def relu6(node: Call, x: sg.Output) -> sg.Output:
    if x.dtype.is_floating:
        return sg.relu6(x)
    return sg.minimum(sg.maximum(x, brought(0, x.dtype)), brought(6, x.dtype))


def leaky_relu(node: Call, x: sg.Output) -> sg.Output:
    return sg.leaky_relu(x, float(node.attribute("alpha", 0.2)))


def _softmax(node: Call, x: sg.Output) -> sg.Output:
    return sg.softmax(x, x.ndim - 1)


def _log_softmax(node: Call, x: sg.Output) -> sg.Output:
    return sg.log_softmax(x, x.ndim - 1)


def is_swish(operands: Sequence[Any]) -> bool:
    """Whether of some values the first is x · sigmoid(beta · x), and the others are x and beta."""
    if len(operands) != 3 or not all(isinstance(x, sg.Output) for x in operands[:2]):
        return False
    y, x, beta = operands
    if y.op.type != "Mul" or y.op.inputs[0] is not x or y.op.inputs[1].op.type != "Sigmoid":
        return False
    (inner,) = y.op.inputs[1].op.inputs
    if inner.op.type != "Mul" or inner.op.inputs[1] is not x:
        return False
    factor = inner.op.inputs[0]
    return factor is (beta.output if isinstance(beta, Known) else beta)


# -------------------------------------------------------------------------------- gradients as operations


def _masked(g: sg.Output, where: sg.Output) -> sg.Output:
    return sg.where(where, g, brought(0, g.dtype))


def _relu_grad(node: Call, g: sg.Output, x: sg.Output) -> sg.Output:
    return _masked(g, sg.greater(x, brought(0, x.dtype)))


def _relu6_grad(node: Call, g: sg.Output, x: sg.Output) -> sg.Output:
    inside = sg.logical_and(sg.greater(x, brought(0, x.dtype)), sg.less(x, brought(6, x.dtype)))
    return _masked(g, inside)


def _leaky_relu_grad(node: Call, g: sg.Output, x: sg.Output) -> sg.Output:
    alpha = brought(float(node.attribute("alpha", 0.2)), g.dtype)
    return sg.where(sg.greater(x, brought(0, x.dtype)), g, sg.multiply(g, alpha))


def _elu_grad(node: Call, g: sg.Output, y: sg.Output) -> sg.Output:
    below = sg.multiply(g, sg.add(y, brought(1, y.dtype)))
    return sg.where(sg.less(y, brought(0, y.dtype)), below, g)


def _selu_grad(node: Call, g: sg.Output, y: sg.Output) -> sg.Output:
    below = sg.multiply(g, sg.add(y, brought(_SCALE * _ALPHA, y.dtype)))
    return sg.where(sg.less(y, brought(0, y.dtype)), below, sg.multiply(g, brought(_SCALE, g.dtype)))


def _softplus_grad(node: Call, g: sg.Output, x: sg.Output) -> sg.Output:
    return sg.multiply(g, sg.sigmoid(x))


def _softsign_grad(node: Call, g: sg.Output, x: sg.Output) -> sg.Output:
    return sg.realdiv(g, sg.square(sg.add(brought(1, x.dtype), sg.abs(x))))


ACTIVATIONS: Table = {
    "Relu": relu,
    "Relu6": relu6,
    "LeakyRelu": leaky_relu,
    "Elu": unary(sg.elu),
    "Selu": unary(sg.selu),
    "Softplus": unary(sg.softplus),
    "Softsign": unary(sg.softsign),
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "ReluGrad": _relu_grad,
    "Relu6Grad": _relu6_grad,
    "LeakyReluGrad": _leaky_relu_grad,
    "EluGrad": _elu_grad,
    "SeluGrad": _selu_grad,
    "SoftplusGrad": _softplus_grad,
    "SoftsignGrad": _softsign_grad,
}
