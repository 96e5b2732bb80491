"""Losses of a model's outputs, built in its graph, with placeholders for labels.

Each is a scalar, a mean, and equal to PyTorch's function of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, DTypeError, ShapeError
from stopgrad.base.types import DType, Shape
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import show_shape
from stopgrad.interop.onnx.training.specs import Spec, function_of

_PROBABILITIES = {"Softmax": "probabilities", "Sigmoid": "probabilities", "LogSoftmax": "log-probabilities"}


class Judged:
    """The operands of a loss: outputs of the model, and labels, which the loss asks for.

    Attributes:
        name: of the loss, for errors.
        outputs: the outputs of the model that the loss reads, by name.
        labels: the labels, by name.
        notes: remarks for the user that are no errors.
    """

    outputs: dict[str, Output]

    def __init__(self, name: str, outputs: Mapping[str, Output], taken: Sequence[str]) -> None:
        self.name = name
        self.outputs = dict(outputs)
        self.labels: dict[str, Output] = {}
        self.notes: list[str] = []
        self._taken = set(taken)

    def output(self) -> tuple[str, Output]:
        """The only output, for a loss that reads one."""
        if len(self.outputs) != 1:
            raise ArgumentError(
                f"the loss {self.name} reads one output, and the model has {', '.join(self.outputs)}; "
                "say which one with outputs= (--outputs)"
            )
        return next(iter(self.outputs.items()))

    def floating(self, name: str) -> Output:
        """An output of floating-point numbers, as float32 or wider."""
        x = self.outputs[name]
        if not x.dtype.is_floating:
            raise DTypeError(
                f"the loss {self.name} does not fit the output {name!r}: {self.name} takes floats, and "
                f"{name!r} is {x.dtype.name}{show_shape(x.shape)}"
            )
        return sg.cast(x, sg.float32) if x.dtype.itemsize < 4 else x

    def logits(self, name: str, takes: str = "logits") -> Output:
        """The same for logits: adds a note if the output has already gone through a softmax."""
        kind = _PROBABILITIES.get(self.outputs[name].op.type)
        if kind is not None:
            self.notes.append(
                f"the output {name!r} holds {kind}, as {self.outputs[name].op.name} gives them; "
                f"{self.name} takes {takes}"
            )
        return self.floating(name)

    def label(self, name: str, dtype: DType, shape: Shape) -> Output:
        """A placeholder for labels, with a name that the model does not have."""
        unique, i = name, 1
        while unique in self._taken:
            unique, i = f"{name}_{i}", i + 1
        self._taken.add(unique)
        self.labels[unique] = sg.placeholder(dtype, shape, name=unique)
        return self.labels[unique]

    def misfit(self, name: str, rule: str) -> ShapeError:
        """The error that an output's shape does not suit the loss."""
        x = self.outputs[name]
        return ShapeError(
            f"the loss {self.name} does not fit the output {name!r}: {rule}, and {name!r} is "
            f"{x.dtype.name}{show_shape(x.shape)}"
        )


def cross_entropy(
    judged: Judged,
    *,
    labels: str = "classes",
    axis: int = -1,
    ignore: int | None = None,
    smoothing: float = 0.0,
) -> Output:
    """Mean of -log softmax(logits)[label], as ``torch.nn.functional.cross_entropy``.

    Args:
        labels: ``classes`` (int64 numbers, of the logits' shape without the axis) or ``soft``
            (probabilities, of the logits' shape).
        axis: the axis of the classes in the logits; in PyTorch, it is 1.
        ignore: a label that does not count; in PyTorch, it is -100.
        smoothing: the part of each label that is spread over all classes.
    """
    if labels not in ("classes", "soft"):
        raise ArgumentError(f"{judged.name}: labels are 'classes' or 'soft', not {labels!r}")
    if labels == "soft" and ignore is not None:
        raise ArgumentError(f"{judged.name}: soft labels have no class that is ignored; leave ignore out")
    if not 0 <= smoothing < 1:
        raise ArgumentError(f"{judged.name}: smoothing is a number from 0 up to 1, not {smoothing!r}")
    name, _ = judged.output()
    x = judged.logits(name)
    if not x.shape:
        raise judged.misfit(name, "it takes logits with an axis of classes")
    if not -len(x.shape) <= axis < len(x.shape):
        raise judged.misfit(name, f"axis {axis} is to be that of the classes")
    if labels == "soft":
        truth = judged.label("labels", x.dtype, x.shape)
        truth = truth * (1 - smoothing) + smoothing / _classes(x, axis) if smoothing else truth
        return sg.reduce_mean(sg.softmax_cross_entropy_with_logits(truth, x, axis=axis), axis=None)
    x = _last(x, axis)
    classes = judged.label("labels", sg.int64, x.shape[:-1])
    counts = None if ignore is None else sg.not_equal(classes, ignore)
    counted = classes if counts is None else sg.where(counts, classes, 0)
    unreduced = sg.sparse_softmax_cross_entropy_with_logits(counted, x)
    if smoothing:
        spread = -sg.reduce_mean(sg.log_softmax(x, -1), axis=-1)
        unreduced = unreduced * (1 - smoothing) + spread * smoothing
    if counts is None:
        return sg.reduce_mean(unreduced, axis=None)
    weights = sg.cast(counts, x.dtype)
    return sg.reduce_sum(sg.where(counts, unreduced, 0.0), axis=None) / sg.maximum(
        sg.reduce_sum(weights, axis=None), 1.0
    )


def _last(x: Output, axis: int) -> Output:
    """x with an axis moved to the end."""
    ndim = len(x.shape)
    axis %= ndim
    order = [i for i in range(ndim) if i != axis] + [axis]
    return x if axis == ndim - 1 else sg.transpose(x, order)


def _classes(x: Output, axis: int) -> Any:
    size = x.shape[axis]
    return size if isinstance(size, int) else sg.cast(sg.shape(x)[axis], x.dtype)


def binary(judged: Judged) -> Output:
    """Mean binary cross entropy, as ``binary_cross_entropy_with_logits``.

    The labels are probabilities of the logits' shape.
    """
    name, _ = judged.output()
    x = judged.logits(name)
    return sg.reduce_mean(
        sg.sigmoid_cross_entropy_with_logits(judged.label("labels", x.dtype, x.shape), x), axis=None
    )


def mse(judged: Judged) -> Output:
    """Mean of the squared differences to the labels, which have the output's shape."""
    x = judged.floating(judged.output()[0])
    return sg.mean_squared_error(judged.label("labels", x.dtype, x.shape), x, axis=None)


def mae(judged: Judged) -> Output:
    """Mean of the absolute differences to the labels, which have the output's shape."""
    x = judged.floating(judged.output()[0])
    return sg.mean_absolute_error(judged.label("labels", x.dtype, x.shape), x, axis=None)


def huber(judged: Judged, *, delta: float = 1.0) -> Output:
    """Mean of e²/2 where |e| ≤ delta, else delta (|e| - delta/2), of the differences e to the labels."""
    if not delta > 0:
        raise ArgumentError(f"{judged.name}: delta is a number above 0, not {delta!r}")
    x = judged.floating(judged.output()[0])
    return sg.huber(judged.label("labels", x.dtype, x.shape), x, delta, axis=None)


def cosine(judged: Judged, *, axis: int = -1) -> Output:
    """Mean of 1 - cos(output, labels) along an axis, as 1 - ``torch.nn.functional.cosine_similarity``."""
    name, _ = judged.output()
    x = judged.floating(name)
    if not -len(x.shape) <= axis < len(x.shape):
        raise judged.misfit(name, f"axis {axis} is to be that of the vectors")
    y = judged.label("labels", x.dtype, x.shape)
    return sg.reduce_mean(1.0 - sg.reduce_sum(_unit(x, axis) * _unit(y, axis), axis=axis), axis=None)


def _unit(x: Output, axis: int) -> Output:
    """Vectors divided by their lengths, at least 1e-8 as in PyTorch."""
    square = sg.reduce_sum(sg.square(x), axis=axis, keepdims=True)
    return x * sg.rsqrt(sg.maximum(square, 1e-16))


def contrastive(judged: Judged, *, temperature: float = 0.07, symmetric: bool = True) -> Output:
    """InfoNCE: the cross entropy of finding each example's second embedding among those of the batch.

    The embeddings, [batch, size] both, are two outputs of the model, or one output and the labels. With
    ``symmetric`` it is the mean of both directions, as in CLIP.
    """
    if not temperature > 0:
        raise ArgumentError(f"{judged.name}: temperature is a number above 0, not {temperature!r}")
    names = list(judged.outputs)
    if len(names) > 2:
        raise ArgumentError(
            f"the loss {judged.name} reads two outputs, or one and labels, and the model has "
            f"{', '.join(names)}; say which with outputs= (--outputs)"
        )
    for name in names:
        if len(judged.outputs[name].shape) != 2:
            raise judged.misfit(name, "it takes embeddings [batch, size]")
    xs = [judged.floating(name) for name in names]
    if len(xs) == 1:
        xs.append(judged.label("labels", xs[0].dtype, xs[0].shape))
    elif xs[0].shape[1] != xs[1].shape[1]:
        raise judged.misfit(names[1], f"its vectors must be as long as those of {names[0]!r}")
    a, b = (_unit(x, 1) for x in xs)
    near = sg.matmul(a, b, transpose_b=True) / temperature
    own = sg.reduce_sum(a * b, axis=1) / temperature
    ways = [sg.reduce_logsumexp(near, axis=i) - own for i in ((1, 0) if symmetric else (1,))]
    means = [sg.reduce_mean(way, axis=None) for way in ways]
    return means[0] if len(means) == 1 else (means[0] + means[1]) * 0.5


LOSSES: dict[str, Callable[..., Output]] = {
    "cross-entropy": cross_entropy,
    "binary": binary,
    "binary-cross-entropy": binary,
    "mse": mse,
    "mae": mae,
    "huber": huber,
    "cosine": cosine,
    "contrastive": contrastive,
}
"""The losses by name."""


def built(spec: Spec, judged: Judged) -> Output:
    """The loss of a given name.

    Raises:
        ArgumentError: there is no loss of this name, or it lacks such an option.
        DTypeError, ShapeError: it does not fit the output.
    """
    function, options = function_of(spec, LOSSES, "loss")
    return scalar(function(judged, **options), judged.name)


def scalar(loss: object, name: str) -> Output:
    """A loss, after a check that it is a scalar with a gradient."""
    if not isinstance(loss, Output):
        raise ArgumentError(f"the loss {name} must be one output, not {type(loss).__name__}")
    if loss.shape != () or not loss.dtype.is_floating:
        shown = f"{loss.dtype.name}{show_shape(loss.shape)}"
        raise ShapeError(f"the loss {name} must be one number (float32[]), and is {shown}; take its mean")
    return loss
