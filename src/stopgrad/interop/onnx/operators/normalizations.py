"""Normalisation, with the statistics that the operators return, and dropout."""

from __future__ import annotations

from typing import Any

import stopgrad as sg
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.onnx.operators.pooling import powers, root
from stopgrad.interop.shared.conversions import axis_of, bounded, brought
from stopgrad.interop.shared.normalizations import (
    batch_normalized,
    layer_normalized,
    moved,
    wide,
    with_running,
)
from stopgrad.interop.shared.slices import padded, part


def _epsilon(node: Call) -> float:
    return float(node.attribute("epsilon", 1e-5))


def batch_normalization(
    node: Call, x: sg.Output, scale: sg.Output, bias: sg.Output, mean: sg.Output, var: sg.Output
) -> sg.Output | tuple[sg.Output, ...]:
    """In training, normalises by the batch's statistics, which update the running ones without a gradient.

    In inference, stored statistics are behind a stop: like PyTorch's buffers, they are never trained.
    """
    training = bool(node.attribute("training_mode", 0)) if node.opset >= 14 else node.wants(1)
    if not training:
        stored = [isinstance(node.raw(s), Known) for s in (mean, var)]
        mean, var = (
            sg.stop_gradient(s, name="running") if is_stored else s
            for s, is_stored in zip((mean, var), stored, strict=True)
        )
        return with_running(x, scale, bias, mean, var, _epsilon(node))
    momentum = float(node.attribute("momentum", 0.9))
    y, *batch, _ = batch_normalized(x, scale, bias, _epsilon(node))
    after = [moved(old, sg.stop_gradient(new), momentum) for old, new in zip((mean, var), batch, strict=True)]
    saved = [brought(new, old.dtype) for old, new in zip((mean, var), batch, strict=True)]
    return y, *after, *saved


def instance_normalization(node: Call, x: sg.Output, scale: sg.Output, bias: sg.Output) -> sg.Output:
    return sg.instance_norm(x, scale, bias, axis=1, epsilon=_epsilon(node))


def layer_normalization(
    node: Call, x: sg.Output, scale: sg.Output, bias: sg.Output | None = None
) -> tuple[sg.Output | None, ...]:
    with_statistics = node.wants(1) or node.wants(2)
    return layer_normalized(x, _from_axis(node, x), scale, bias, _epsilon(node), with_statistics)


def _from_axis(node: Call, x: sg.Output) -> tuple[int, ...]:
    axis = int(node.attribute("axis", -1))
    if not -x.ndim <= axis < x.ndim:
        node.fail(f"axis is {axis}, and its operand has {x.ndim} axes")
    return tuple(range(axis_of(axis, x.ndim), x.ndim))


def rms_normalization(node: Call, x: sg.Output, scale: sg.Output) -> sg.Output:
    return sg.rms_norm(x, scale, _from_axis(node, x), _epsilon(node))


def group_normalization(node: Call, x: sg.Output, scale: sg.Output, bias: sg.Output) -> sg.Output:
    groups = int(node.attribute("num_groups"))
    if node.opset >= 21:  # A number for each channel.
        return sg.group_norm(x, groups, scale, bias, axis=1, epsilon=_epsilon(node))
    shape = list(x.shape)
    split = sg.reshape(x, [shape[0], groups, -1])
    y = sg.layer_norm(wide(split), axis=2, epsilon=_epsilon(node))
    for function, parameter in ((sg.multiply, scale), (sg.add, bias)):
        y = function(y, sg.reshape(brought(parameter, y.dtype), [groups, 1]))
    return sg.reshape(brought(y, x.dtype), shape)


def lp_normalization(node: Call, x: sg.Output) -> sg.Output:
    axis, p = axis_of(int(node.attribute("axis", -1)), x.ndim), int(node.attribute("p", 2))
    norm = root(sg.reduce_sum(powers(x, p), axis=axis, keepdims=True), p)
    return sg.divide_no_nan(x, norm)


def mean_variance_normalization(node: Call, x: sg.Output) -> sg.Output:
    axes = tuple(axis_of(int(axis), x.ndim) for axis in node.attribute("axes") or (0, 2, 3))
    # The operator's body has E[x²] - E[x]², which loses digits and may be negative; so do its relatives here.
    mean, var = sg.moments(x, axes, keepdims=True)
    return sg.realdiv(sg.subtract(x, mean), sg.add(root(var, 2), brought(1e-9, x.dtype)))


def local_response(node: Call, x: sg.Output) -> sg.Output:
    """x / (bias + alpha · mean of the squares of neighbouring channels)^beta."""
    size = int(node.attribute("size"))
    alpha, beta = float(node.attribute("alpha", 1e-4)), float(node.attribute("beta", 0.75))
    before, after = (size - 1) // 2, size // 2
    if isinstance(x.shape[1], int):  # There are no channels further away.
        before, after = min(before, x.shape[1]), min(after, x.shape[1])
    bounded((before + after + 1) * 2**10, "so many neighbouring channels")
    around = padded(sg.square(x), [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = sg.add_n([part(around, 1, i, i + x.shape[1]) for i in range(before + after + 1)])
    spread = sg.add(
        sg.multiply(total, brought(alpha / size, x.dtype)), brought(node.attribute("bias", 1.0), x.dtype)
    )
    return sg.multiply(x, sg.pow(spread, brought(-beta, x.dtype)))


@knows(1, 2)
def dropout(
    node: Call,
    x: sg.Output,
    ratio: sg.Output | Known | None = None,
    training: sg.Output | Known | None = None,
) -> tuple[sg.Output, Tensor | None]:
    """In inference x itself. In training, elements are dropped, with a random key of the node's own."""
    whole = sg.ones(list(x.shape), sg.bool_) if node.wants(1) else None
    if training is None or (node.is_known(training) and not node.known(2, training)):
        return x, whole
    rate: Any = 0.5 if ratio is None else node.known(1, ratio).item() if node.is_known(ratio) else ratio
    if isinstance(rate, float) and rate == 0:
        return x, whole
    mask = sg.random_bernoulli(list(x.shape), node.key(), sg.subtract(1.0, rate))
    if not node.is_known(training):
        drops = node.tensor(training)
        mask = sg.logical_or(mask, sg.logical_not(drops))
        rate = sg.where(drops, rate, 0.0)
    scale = brought(sg.divide_no_nan(1.0, sg.subtract(1.0, rate)), x.dtype)  # The rate may be 1.
    return sg.where(mask, sg.multiply(x, scale), brought(0, x.dtype)), mask


NORMALIZATIONS: Table = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": layer_normalization,
    "GroupNormalization": group_normalization,
    "RMSNormalization": rms_normalization,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "LRN": local_response,
    "Dropout": dropout,
}
