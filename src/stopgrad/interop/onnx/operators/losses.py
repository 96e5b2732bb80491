"""Losses with labels: negative log likelihood and softmax cross entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stopgrad as sg
from stopgrad.base.types import DType
from stopgrad.interop.onnx.operators.calling import Call, Table
from stopgrad.interop.shared.conversions import brought


class Labels:
    """The labels of a loss, those to be ignored, and the weights of the rest.

    Attributes:
        classes: the labels, with 0 in place of ignored ones.
        ignored: which labels are ignored; None if none can be.
        weights: of each label, 0 for ignored ones; None if all count alike.
    """

    reduction: str
    ignored: Any
    classes: Any

    def __init__(self, node: Call, labels: sg.Output, weights: sg.Output | None, dtype: DType) -> None:
        self.reduction = str(node.attribute("reduction", "mean"))
        if self.reduction not in ("none", "mean", "sum"):
            node.fail(f"reduction={self.reduction!r} is unknown; it is none, mean or sum")
        which = node.attribute("ignore_index")
        self.ignored = None if which is None else sg.equal(labels, brought(int(which), labels.dtype))
        self.classes = labels
        zero = brought(0, dtype)
        if self.ignored is not None:
            self.classes = sg.where(self.ignored, brought(0, labels.dtype), labels)
        self.weights = None if weights is None else sg.gather(weights, self.classes)
        if self.ignored is not None:
            kept = sg.ones(list(labels.shape), dtype) if self.weights is None else self.weights
            self.weights = sg.where(self.ignored, zero, kept)

    def of(self, scores: sg.Output) -> Any:
        """The scores of the labels, [batch, ...], out of [batch, classes, ...]."""
        return sg.squeeze(sg.take_along_axis(scores, sg.expand_dims(self.classes, 1), 1), 1)

    def reduced(self, losses: sg.Output) -> Any:
        """The losses of the labels, weighted, and reduced as the operator's attribute says."""
        if self.ignored is not None:  # These may not be finite.
            losses = sg.where(self.ignored, brought(0, losses.dtype), losses)
        if self.weights is None:
            reductions: dict[str, Callable[[sg.Output], sg.Output]]
            reductions = {"none": lambda x: x, "mean": sg.reduce_mean, "sum": sg.reduce_sum}
            return reductions[self.reduction](losses)
        losses = sg.multiply(losses, self.weights)
        if self.reduction == "none":
            return losses
        total = sg.reduce_sum(losses)
        return total if self.reduction == "sum" else sg.realdiv(total, sg.reduce_sum(self.weights))


def negative_log_likelihood(
    node: Call, x: sg.Output, labels: sg.Output, weights: sg.Output | None = None
) -> Any:
    found = Labels(node, labels, weights, x.dtype)
    return found.reduced(sg.negative(found.of(x)))


def softmax_cross_entropy(
    node: Call, x: sg.Output, labels: sg.Output, weights: sg.Output | None = None
) -> Any:
    found = Labels(node, labels, weights, x.dtype)
    if node.wants(1):
        logs = sg.log_softmax(x, 1)
        return found.reduced(sg.negative(found.of(logs))), logs
    behind = x if x.ndim == 2 else sg.moveaxis(x, 1, -1)  # That has its own gradient, over the last axis.
    return found.reduced(sg.sparse_softmax_cross_entropy_with_logits(found.classes, behind))


LOSSES: Table = {
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy,
}
