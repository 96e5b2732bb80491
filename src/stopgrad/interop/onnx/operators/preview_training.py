"""The domain ``ai.onnx.preview.training``: gradients, and one step of an optimiser for several tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.graph.build import inline
from stopgrad.interop.onnx.operators.calling import Call, Rule, Table
from stopgrad.interop.shared.conversions import brought


def _attribute(node: Call, name: str, default: float, like: sg.Output) -> sg.Output:
    return brought(float(node.attribute(name, default)), like.dtype)


def _regularized(node: Call, x: sg.Output, g: sg.Output) -> sg.Output:
    """The gradient plus that of the regularisation, half the squared norm."""
    return sg.add(sg.multiply(_attribute(node, "norm_coefficient", 0.0, x), x), g)


def adagrad(
    node: Call, rate: sg.Output, count: sg.Output, x: sg.Output, g: sg.Output, h: sg.Output
) -> tuple[Any, ...]:
    decay = sg.multiply(brought(count, x.dtype), _attribute(node, "decay_factor", 0.0, x))
    rate = sg.realdiv(brought(rate, x.dtype), sg.add(decay, brought(1.0, x.dtype)))
    g = _regularized(node, x, g)
    h = sg.add(h, sg.square(g))
    divisor = sg.add(sg.sqrt(h), _attribute(node, "epsilon", 0.0, x))
    return sg.subtract(x, sg.realdiv(sg.multiply(rate, g), divisor)), h


def adam(
    node: Call, rate: sg.Output, count: sg.Output, x: sg.Output, g: sg.Output, v: sg.Output, h: sg.Output
) -> tuple[Any, ...]:
    alpha, beta = _attribute(node, "alpha", 0.9, x), _attribute(node, "beta", 0.999, x)
    one, steps = brought(1.0, x.dtype), brought(count, x.dtype)
    g = _regularized(node, x, g)
    v = sg.add(sg.multiply(alpha, v), sg.multiply(sg.subtract(one, alpha), g))
    h = sg.add(sg.multiply(beta, h), sg.multiply(sg.subtract(one, beta), sg.square(g)))
    divisor = sg.add(sg.sqrt(h), _attribute(node, "epsilon", 0.0, x))
    begun = sg.greater(count, brought(0, count.dtype))
    later = sg.where(begun, steps, one)  # Avoids a division by 0.
    short, long = (sg.subtract(one, sg.pow(base, later)) for base in (alpha, beta))
    rate = brought(rate, x.dtype)
    rate = sg.where(begun, sg.realdiv(sg.multiply(rate, sg.sqrt(long)), short), rate)
    x = sg.subtract(x, sg.realdiv(sg.multiply(rate, v), divisor))
    shrinkage = sg.subtract(one, _attribute(node, "norm_coefficient_post", 0.0, x))
    return sg.multiply(shrinkage, x), v, h


def momentum(
    node: Call, rate: sg.Output, count: sg.Output, x: sg.Output, g: sg.Output, v: sg.Output
) -> tuple[Any, ...]:
    alpha, beta = _attribute(node, "alpha", 0.0, x), _attribute(node, "beta", 0.0, x)
    g = _regularized(node, x, g)
    first = sg.equal(count, brought(0, count.dtype))
    v = sg.add(sg.multiply(alpha, v), sg.multiply(sg.where(first, brought(1.0, x.dtype), beta), g))
    if str(node.attribute("mode", "standard")) == "nesterov":
        return sg.subtract(x, sg.multiply(brought(rate, x.dtype), sg.add(g, sg.multiply(alpha, v)))), v
    return sg.subtract(x, sg.multiply(brought(rate, x.dtype), v)), v


def _of_several(step: Callable[..., tuple[Any, ...]], state: int) -> Rule:
    """The rule for several tensors, whose operands are grouped: tensors, then gradients, then each state."""

    def rule(node: Call, rate: sg.Output, count: sg.Output, *operands: sg.Output) -> tuple[Any, ...]:
        kinds = 2 + state
        number, rest = divmod(len(operands), kinds)
        if rest or not number:
            node.fail(f"behind rate and count it takes {kinds} operands for each tensor, not {len(operands)}")
        columns: Sequence[tuple[Any, ...]] = [
            step(node, rate, count, *(operands[kind * number + i] for kind in range(kinds)))
            for i in range(number)
        ]
        return tuple(column[kind] for kind in range(1 + state) for column in columns)

    return rule


def gradient(node: Call, *operands: sg.Output) -> tuple[Any, ...]:
    """The derivatives of the tensor that ``y`` names, with respect to those that ``xs`` names.

    The operands are the values of the ``xs`` and then of the ``zs`` at which to differentiate. If they differ
    from those in the graph, the way from there to y is built again.
    """
    xs = [node.named(name) for name in node.attribute("xs")]
    zs = [node.named(name) for name in node.attribute("zs") or ()]
    if len(operands) != len(xs) + len(zs):
        node.fail(f"it has {len(operands)} operands for the {len(xs) + len(zs)} names of its attributes")
    y = node.named(str(node.attribute("y")))
    values = dict(zip([*xs, *zs], operands, strict=True))
    if any(x is not value for x, value in values.items()):
        y = _elsewhere(y, values)
    return tuple(sg.gradients([y], list(operands[: len(xs)]), unconnected_gradients="zero"))


def _elsewhere(y: sg.Output, values: dict[Any, Any]) -> sg.Output:
    """y computed again, with other values for some of the tensors that lead to it."""
    other = {x for x, value in values.items() if x is not value}
    unchanged: dict[Any, Any] = {}
    for op in y.op.graph.subgraph_to([y]):
        if any(x in other for x in op.inputs):
            other.update(op.outputs)
        else:
            unchanged.update((x, x) for x in op.outputs)
    return inline([y], values, unchanged)[0]


PREVIEW_TRAINING: Table = {
    "ai.onnx.preview.training::Gradient": gradient,
    "ai.onnx.preview.training::Adagrad": _of_several(adagrad, 1),
    "ai.onnx.preview.training::Adam": _of_several(adam, 2),
    "ai.onnx.preview.training::Momentum": _of_several(momentum, 1),
}
