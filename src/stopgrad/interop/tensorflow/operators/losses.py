"""Cross entropies, which also return their gradients."""

from __future__ import annotations

import stopgrad as sg
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.tensorflow.operators.calling import Call, Table


def _softmax_cross_entropy(node: Call, logits: sg.Output, labels: sg.Output) -> tuple[sg.Output, sg.Output]:
    """The loss of each example, and its gradient with respect to the logits.

    That result is TensorFlow's, which takes the labels of an example to add up to 1. The gradient of the loss
    is the true one also where they do not.
    """
    shape = sg.broadcast_static_shape(tuple(logits.shape), tuple(labels.shape))
    logits, labels = (sg.broadcast_to(x, list(shape)) for x in (logits, labels))
    loss = sg.softmax_cross_entropy_with_logits(labels, logits)
    return loss, sg.subtract(sg.softmax(logits), labels)


def _sparse_softmax_cross_entropy(
    node: Call, logits: sg.Output, labels: sg.Output
) -> tuple[sg.Output, sg.Output]:
    loss = sg.sparse_softmax_cross_entropy_with_logits(labels, logits)
    classes = sg.one_hot(brought(labels, sg.int64), logits.shape[-1], dtype=logits.dtype)
    return loss, sg.subtract(sg.softmax(logits), classes)


LOSSES: Table = {
    "SoftmaxCrossEntropyWithLogits": _softmax_cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_softmax_cross_entropy,
}
