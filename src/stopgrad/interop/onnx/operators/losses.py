"""Losses with labels: negative log likelihood and softmax cross entropy.

Their bodies in onnx take an unknown reduction for a mean, and the second's gradient takes twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Table
from stopgrad.interop.shared.conversions import brought


def negative_log_likelihood(
    node: Call, x: sg.Output, labels: sg.Output, weights: sg.Output | None = None
) -> sg.Output:
    def losses(labels: sg.Output) -> sg.Output:
        return sg.negative(sg.squeeze(sg.take_along_axis(x, sg.expand_dims(labels, 1), 1), 1))

    return _reduced(node, losses, labels, weights)


def softmax_cross_entropy(
    node: Call, x: sg.Output, labels: sg.Output, weights: sg.Output | None = None
) -> tuple[sg.Output, sg.Output | None]:
    def losses(labels: sg.Output) -> sg.Output:
        logits = x if x.ndim == 2 else sg.moveaxis(x, 1, -1)
        return sg.sparse_softmax_cross_entropy_with_logits(labels, logits)

    return _reduced(node, losses, labels, weights), sg.log_softmax(x, 1) if node.wants(1) else None


def _reduced(
    node: Call, losses: Callable[[sg.Output], Any], labels: sg.Output, weights: sg.Output | None
) -> sg.Output:
    """The losses of labels, weighted by their classes, and reduced as the operator's attributes say."""
    reduction, ignored_label = str(node.attribute("reduction", "mean")), node.attribute("ignore_index")
    if reduction not in ("none", "mean", "sum"):
        node.fail(f"reduction={reduction!r} is unknown; it is none, mean or sum")
    ignored = None if ignored_label is None else sg.equal(labels, brought(int(ignored_label), labels.dtype))
    if ignored is not None:
        labels = sg.where(ignored, brought(0, labels.dtype), labels)
    unreduced = losses(labels)
    shares = None if weights is None else sg.gather(weights, labels)
    if ignored is not None:
        zero = brought(0, unreduced.dtype)
        unreduced = sg.where(ignored, zero, unreduced)  # These may not be finite.
        shares = sg.where(ignored, zero, brought(1, unreduced.dtype) if shares is None else shares)
    unreduced = unreduced if shares is None else sg.multiply(unreduced, shares)
    if reduction == "none":
        return unreduced
    if reduction == "sum":
        return sg.reduce_sum(unreduced)
    return (
        sg.reduce_mean(unreduced)
        if shares is None
        else sg.realdiv(sg.reduce_sum(unreduced), sg.reduce_sum(shares))
    )


LOSSES: Table = {
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy,
}
