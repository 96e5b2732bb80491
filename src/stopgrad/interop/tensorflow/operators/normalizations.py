"""Batch normalisation in training and inference, local response normalisation, biases."""

from __future__ import annotations

from typing import Any

import stopgrad as sg
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import bounded, brought, pulled
from stopgrad.interop.shared.normalizations import batch_normalized, moved, unbiased, with_running
from stopgrad.interop.tensorflow.operators.calling import Call, Table
from stopgrad.interop.tensorflow.operators.spatial import is_channels_first


def _channels(node: Call, x: sg.Output) -> int:
    """The axis of the channels."""
    return 1 if is_channels_first(str(node.attribute("data_format") or "NHWC")) else x.ndim - 1


def _epsilon(node: Call) -> float:
    return float(node.attribute("epsilon", 1e-4))


def batch_normalization(
    node: Call, x: sg.Output, scale: sg.Output, offset: sg.Output, mean: sg.Output, variance: sg.Output
) -> tuple[Tensor, ...]:
    """``FusedBatchNorm``, with the statistics that its gradient needs.

    As in TensorFlow, only the first result passes gradients back, and in inference the statistics get none.
    """
    axis = _channels(node, x)
    if not node.attribute("is_training", True):
        mean, variance = (sg.stop_gradient(s, name="running") for s in (mean, variance))
        y = with_running(x, scale, offset, mean, variance, _epsilon(node), axis)
        return _results(node, y, mean, variance, mean, variance)
    y, *batch, _ = batch_normalized(x, scale, offset, _epsilon(node), axis)
    mean_now, variance_now = (brought(sg.stop_gradient(s, name="batch"), scale.dtype) for s in batch)
    after: list[Any] = [mean_now, unbiased(variance_now, x, axis)]
    share = float(node.attribute("exponential_avg_factor", 1.0))
    if share != 1.0:
        running = (sg.stop_gradient(s, name="running") for s in (mean, variance))
        after = [moved(before, now, 1.0 - share) for before, now in zip(running, after, strict=True)]
    return _results(node, y, *after, mean_now, variance_now)


def _results(node: Call, *results: sg.Output) -> tuple[Tensor, ...]:
    """The results; those of version 3 have another one, which holds nothing."""
    return (*results, sg.zeros([0], results[1].dtype)) if node.op_type in _SIX else results


_SIX = {"FusedBatchNormV3", "_FusedBatchNormEx"}


def _batch_normalization_grad(
    node: Call,
    g: sg.Output,
    x: sg.Output,
    scale: sg.Output,
    mean: sg.Output,
    variance: sg.Output,
    *_: sg.Output,
) -> tuple[object, ...]:
    axis, start = _channels(node, x), sg.zeros_like(scale)

    def forward(x: sg.Output, scale: sg.Output, offset: sg.Output) -> sg.Output:
        if node.attribute("is_training", True):
            return batch_normalized(x, scale, offset, _epsilon(node), axis)[0]
        return with_running(x, scale, offset, mean, variance, _epsilon(node), axis)

    back = pulled(forward, [x, scale, start], [g])
    nothing = sg.zeros([0], scale.dtype)
    return (*back, nothing, nothing)


# ------------------------------------------------------------------------------------------------- biases


def bias_add(node: Call, x: sg.Output, bias: sg.Output) -> sg.Output:
    axis = _channels(node, x)
    return sg.add(x, sg.reshape(bias, [-1] + [1] * (x.ndim - 1 - axis)))


def _bias_add_grad(node: Call, g: sg.Output) -> sg.Output:
    axis = _channels(node, g)
    return sg.reduce_sum(g, tuple(i for i in range(g.ndim) if i != axis))


# --------------------------------------------------------------------------------- neighbouring channels


def _local_response(node: Call, x: sg.Output) -> sg.Output:
    bias, alpha, beta = (float(node.attribute(name, value)) for name, value in _RESPONSE.items())
    radius = int(node.attribute("depth_radius", 5))
    if isinstance(x.shape[-1], int):  # There are no channels further away.
        radius = min(radius, int(x.shape[-1]))
    bounded((2 * radius + 1) * 2**10, "so many neighbouring channels")
    return sg.lrn(x, radius, bias, alpha, beta)


_RESPONSE = {"bias": 1.0, "alpha": 1.0, "beta": 0.5}


def _local_response_grad(node: Call, g: sg.Output, x: sg.Output, y: sg.Output) -> sg.Output:
    (back,) = pulled(lambda z: _local_response(node, z), [x], [g])
    return back


NORMALIZATIONS: Table = {
    "FusedBatchNorm": batch_normalization,
    "FusedBatchNormV2": batch_normalization,
    "FusedBatchNormV3": batch_normalization,
    "FusedBatchNormGrad": _batch_normalization_grad,
    "FusedBatchNormGradV2": _batch_normalization_grad,
    "FusedBatchNormGradV3": _batch_normalization_grad,
    "BiasAdd": bias_add,
    "BiasAddV1": bias_add,
    "BiasAddGrad": _bias_add_grad,
    "LRN": _local_response,
    "LRNGrad": _local_response_grad,
}
