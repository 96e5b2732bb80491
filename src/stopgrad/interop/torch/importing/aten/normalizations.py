"""Layer, group and batch normalisation, with the statistics that PyTorch returns besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import brought, product
from stopgrad.interop.shared.normalizations import (
    affine,
    batch_normalized,
    by_channel,
    layer_normalized,
    moved,
    statistics,
    wide,
    with_running,
)
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table
from stopgrad.ops.shapes.reshape import reshape


def _layer(
    call: Call,
    x: sg.Output,
    shape: Sequence[Size],
    weight: sg.Output | None,
    bias: sg.Output | None,
    eps: float,
) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    mean = rstd = None
    if call.uses(1) or call.uses(2):
        mean, rstd = (brought(s, x.dtype) for s in statistics(wide(x), axes, eps, True))
    return layer_normalized(x, axes, weight, bias, eps), mean, rstd


def _group(
    call: Call,
    x: sg.Output,
    weight: sg.Output | None,
    bias: sg.Output | None,
    n: Size,
    c: Size,
    hw: Size,
    group: int,
    eps: float,
) -> Any:
    parts = reshape(wide(x), [x.shape[0], group, -1])
    y = reshape(sg.layer_norm(parts, axis=(2,), epsilon=eps), list(x.shape))
    y = affine(y, weight, bias, [-1] + [1] * (x.ndim - 2))
    mean = rstd = None
    if call.uses(1) or call.uses(2):
        mean, rstd = (brought(s, x.dtype) for s in statistics(parts, (2,), eps, False))
    return brought(y, x.dtype), mean, rstd


def _batch(
    call: Call,
    x: sg.Output,
    weight: sg.Output | None,
    bias: sg.Output | None,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The result, the batch's mean and 1 / deviation, and the running statistics after it."""
    if not training:
        y = with_running(x, weight, bias, running_mean, running_var, eps)
        empty = sg.zeros([0], y.dtype)
        return y, empty, empty, running_mean, running_var
    y, mean, var, rstd = batch_normalized(x, weight, bias, eps)
    saved = [mean, rstd] if call.uses(1) or call.uses(2) else [None, None]
    after = [None, None]
    if running_mean is not None and (call.uses(3) or call.uses(4)):
        count = product([size for axis, size in enumerate(x.shape) if axis != 1])
        number = brought(count, mean.dtype, x)
        whole = sg.realdiv(number, sg.subtract(number, brought(1, mean.dtype)))
        after = [
            moved(old, sg.stop_gradient(new), 1.0 - momentum)
            for old, new in zip((running_mean, running_var), (mean, sg.multiply(var, whole)), strict=True)
        ]
    return y, *saved, *after


def _batch_alone(
    call: Call,
    x: sg.Output,
    weight: sg.Output | None,
    bias: sg.Output | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return _batch(call, x, weight, bias, None, None, training, momentum, eps)[:3]


def _batch_resting(
    call: Call,
    x: sg.Output,
    weight: sg.Output | None,
    bias: sg.Output | None,
    mean: sg.Output,
    var: sg.Output,
    momentum: float,
    eps: float,
) -> Any:
    return _batch(call, x, weight, bias, mean, var, False, momentum, eps)[:3]


def _batch_three(call: Call, *arguments: Any) -> Any:
    return _batch(call, *arguments)[:3]


def _layer_gradient(
    call: Call,
    g: sg.Output,
    x: sg.Output,
    shape: Sequence[Size],
    mean: sg.Output,
    rstd: sg.Output,
    weight: sg.Output | None,
    bias: sg.Output | None,
    mask: Sequence[Size],
) -> Any:
    """The gradient of layer normalisation for given statistics, which need not be those of x."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    normal = sg.multiply(sg.subtract(x, mean), rstd)
    inner = g if weight is None else sg.multiply(g, weight)
    outer = tuple(range(x.ndim - len(shape)))
    dx = _through(inner, normal, rstd, axes) if mask[0] else None
    dw = _summed(sg.multiply(g, normal), outer) if mask[1] and weight is not None else None
    db = _summed(g, outer) if mask[2] and bias is not None else None
    return dx, dw, db


def _through(inner: sg.Output, normal: sg.Output, rstd: sg.Output, axes: tuple[int, ...]) -> Any:
    mean = sg.reduce_mean(inner, axis=axes, keepdims=True)
    share = sg.multiply(normal, sg.reduce_mean(sg.multiply(inner, normal), axis=axes, keepdims=True))
    return sg.multiply(sg.subtract(sg.subtract(inner, mean), share), rstd)


def _summed(x: sg.Output, axes: tuple[int, ...]) -> Any:
    return sg.reduce_sum(x, axis=axes) if axes else x


def _group_gradient(
    call: Call,
    g: sg.Output,
    x: sg.Output,
    mean: sg.Output,
    rstd: sg.Output,
    weight: sg.Output | None,
    n: Size,
    c: Size,
    hw: Size,
    group: int,
    mask: Sequence[Size],
) -> Any:
    shape = [x.shape[0], group, -1]
    mean, rstd = sg.expand_dims(mean, -1), sg.expand_dims(rstd, -1)
    normal = sg.multiply(sg.subtract(reshape(x, shape), mean), rstd)
    inner = g if weight is None else sg.multiply(g, reshape(weight, by_channel(x)))
    dx = reshape(_through(reshape(inner, shape), normal, rstd, (2,)), list(x.shape)) if mask[0] else None
    axes = (0, *range(2, x.ndim))
    dw = _summed(sg.multiply(g, reshape(normal, list(x.shape))), axes) if mask[1] else None
    return dx, dw, _summed(g, axes) if mask[2] else None


NORMALIZATIONS: Table = dict(
    table(
        {
            "native_layer_norm": _layer,
            "native_layer_norm_backward": _layer_gradient,
            "native_group_norm": _group,
            "native_group_norm_backward": _group_gradient,
            "_native_batch_norm_legit_functional": _batch,
            "_native_batch_norm_legit native_batch_norm": _batch_three,
            "_native_batch_norm_legit.no_stats": _batch_alone,
            "_native_batch_norm_legit_no_training": _batch_resting,
        }
    )
)
