"""Activation functions, elementwise or along an axis."""

from __future__ import annotations

from collections.abc import Callable

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Known, Rule, Table, knows
from stopgrad.interop.shared.conversions import axis_of, brought


def _of_features(function: Callable[..., object]) -> Rule:
    return lambda node, x: function(x)


def _number(node: Call, name: str, default: float) -> float:
    return float(node.attribute(name, default))


def relu(node: Call, x: sg.Output) -> sg.Output:
    return sg.relu(x) if x.dtype.is_floating else sg.maximum(x, brought(0, x.dtype))


def leaky_relu(node: Call, x: sg.Output) -> sg.Output:
    return sg.leaky_relu(x, _number(node, "alpha", 0.01))


def p_relu(node: Call, x: sg.Output, slope: sg.Output) -> sg.Output:
    return sg.where(sg.less(x, brought(0, x.dtype)), sg.multiply(x, slope), x)


def elu(node: Call, x: sg.Output) -> sg.Output:
    alpha = _number(node, "alpha", 1.0)
    return sg.elu(x) if alpha == 1 else bent(x, alpha, 1.0)


def selu(node: Call, x: sg.Output) -> sg.Output:
    gamma = _number(node, "gamma", 1.05070102214813232421875)
    return bent(x, gamma * _number(node, "alpha", 1.67326319217681884765625), gamma)


def bent(x: sg.Output, below: float, above: float) -> sg.Output:
    """x · above where x > 0, else (exp(x) - 1) · below."""
    positive = sg.greater(x, brought(0, x.dtype))
    above_zero = x if above == 1 else sg.multiply(x, brought(above, x.dtype))
    return sg.where(positive, above_zero, sg.multiply(sg.elu(x), brought(below, x.dtype)))


def celu(node: Call, x: sg.Output) -> sg.Output:
    return sg.celu(x, _number(node, "alpha", 1.0))


def gelu(node: Call, x: sg.Output) -> sg.Output:
    return sg.gelu(x, approximate=node.attribute("approximate", "none") == "tanh")


def hard_sigmoid(node: Call, x: sg.Output) -> sg.Output:
    return line(x, _number(node, "alpha", 0.2), _number(node, "beta", 0.5))


def line(x: sg.Output, alpha: float, beta: float) -> sg.Output:
    """alpha · x + beta, clipped to [0, 1]."""
    straight = sg.add(sg.multiply(x, brought(alpha, x.dtype)), brought(beta, x.dtype))
    return sg.clip_by_value(straight, brought(0, x.dtype), brought(1, x.dtype))


def thresholded_relu(node: Call, x: sg.Output) -> sg.Output:
    """The operator has a body in onnx, but not where a fused product names it as its activation."""
    limit = brought(_number(node, "alpha", 1.0), x.dtype)
    return sg.where(sg.greater(x, limit), x, brought(0, x.dtype))


def shrink(node: Call, x: sg.Output) -> sg.Output:
    bias, limit = _number(node, "bias", 0.0), _number(node, "lambd", 0.5)
    # Compared as floats, since 0.5 is no integer; the operator's own body would also negate unsigned ones.
    values = x if x.dtype.is_floating else sg.cast(x, sg.float64)
    high = sg.greater(values, brought(limit, values.dtype))
    low = sg.less(values, brought(-limit, values.dtype))
    up, down = (brought(sg.add(values, brought(b, values.dtype)), x.dtype) for b in (bias, -bias))
    return sg.where(low, up, sg.where(high, down, brought(0, x.dtype)))


@knows(1, 2)
def clip(
    node: Call, x: sg.Output, low: sg.Output | Known | None = None, high: sg.Output | Known | None = None
) -> sg.Output:
    """x clipped to bounds; stored ones are constants and no parameters, since they are not trained."""
    least, most = (
        bound if bound is None else sg.reshape(_constant(node, bound), []) for bound in (low, high)
    )
    return x if least is None and most is None else sg.clip(x, least, most)


def _constant(node: Call, x: sg.Output | Known) -> sg.Output:
    """An operand as an output; a stored value becomes a constant."""
    if isinstance(x, Known) and x.initializer:
        return sg.constant(x.array, x.dtype)
    return node.tensor(x)


def along_axes(node: Call, x: sg.Output) -> tuple[int, ...]:
    """The axes that ``axis`` means: one axis; before opset 13, all axes from there on together."""
    if node.opset >= 13:
        return (axis_of(int(node.attribute("axis", -1)), x.ndim),)
    return tuple(range(axis_of(int(node.attribute("axis", 1)), x.ndim), x.ndim))


def _over_axes(function: Callable[..., object]) -> Rule:
    return lambda node, x: function(x, along_axes(node, x))


# Some of these have bodies in onnx, which are worse: exp overflows in that of Softplus, ∞/∞ stands in the
# gradient of Softsign's, those of Mish and Gelu compute halves in half precision, HardSwish's has 0.16666667.
ACTIVATIONS: Table = {
    "Relu": relu,
    "LeakyRelu": leaky_relu,
    "PRelu": p_relu,
    "Elu": elu,
    "Selu": selu,
    "Celu": celu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": _of_features(sg.hard_swish),
    "Mish": _of_features(sg.mish),
    "Softplus": _of_features(sg.softplus),
    "Softsign": _of_features(sg.softsign),
    "Sigmoid": _of_features(sg.sigmoid),
    "Tanh": _of_features(sg.tanh),
    "ThresholdedRelu": thresholded_relu,
    "Shrink": shrink,
    "Clip": clip,
    "Softmax": _over_axes(sg.softmax),
    "LogSoftmax": _over_axes(sg.log_softmax),
}
