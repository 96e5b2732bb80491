"""Normalisation: of layers, groups and batches, with the statistics that PyTorch returns, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.importing.values import brought, product
from stopgrad.ops.shape import reshape
from stopgrad.torch.importing.aten.calling import Call, Table, table
from stopgrad.torch.importing.aten.reductions import variance


def _statistics(x: Any, axes: tuple[int, ...], eps: float, keepdim: bool) -> tuple[Any, Any]:
    """The mean, and one over the standard deviation."""
    mean = sg.reduce_mean(x, axis=axes, keepdims=keepdim)
    spread = sg.add(variance(x, axes, 0, keepdim), brought(eps, x.dtype))
    return mean, sg.rsqrt(spread)


def _affine(y: Any, weight: Any, bias: Any, shape: Sequence[Any] | None = None) -> Any:
    """y · weight + bias, either of which may be None, in y's element type."""
    for function, parameter in ((sg.multiply, weight), (sg.add, bias)):
        if parameter is not None:
            parameter = brought(parameter, y.dtype)
            y = function(y, parameter if shape is None else reshape(parameter, list(shape)))
    return y


def _wide(x: Any) -> Any:
    """In what is computed: 16-bit numbers as float32."""
    return sg.cast(x, sg.float32) if x.dtype.itemsize == 2 else x


def _layer(call: Call, x: Any, shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = _wide(x)
    y = _affine(sg.layer_norm(wide, axis=axes, epsilon=eps), weight, bias)
    mean = rstd = None
    if call.uses(1) or call.uses(2):
        mean, rstd = (brought(s, x.dtype) for s in _statistics(wide, axes, eps, True))
    return brought(y, x.dtype), mean, rstd


def _group(
    call: Call, x: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, group: int, eps: float
) -> Any:
    wide = reshape(_wide(x), [x.shape[0], group, -1])
    y = reshape(sg.layer_norm(wide, axis=(2,), epsilon=eps), list(x.shape))
    y = _affine(y, weight, bias, [-1] + [1] * (x.ndim - 2))
    mean = rstd = None
    if call.uses(1) or call.uses(2):
        mean, rstd = (brought(s, x.dtype) for s in _statistics(wide, (2,), eps, False))
    return brought(y, x.dtype), mean, rstd


def _by_channel(x: Any) -> list[Any]:
    return [1, -1] + [1] * (x.ndim - 2)


def _batch(
    call: Call,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The result, the batch's mean and 1 / deviation, and the running statistics after it."""
    if not training:
        y = _with_running(x, weight, bias, running_mean, running_var, eps)
        empty = sg.zeros([0], y.dtype)
        return y, empty, empty, running_mean, running_var
    axes = (0, *range(2, x.ndim))
    wide = _wide(x)
    mean = sg.reduce_mean(wide, axis=axes, keepdims=True)
    apart = sg.subtract(wide, mean)
    var = sg.reduce_mean(sg.square(apart), axis=axes, keepdims=True)
    rstd = sg.rsqrt(sg.add(var, brought(eps, wide.dtype)))
    y = brought(_affine(sg.multiply(apart, rstd), weight, bias, _by_channel(x)), x.dtype)
    saved = [reshape(s, [-1]) for s in (mean, rstd)] if call.uses(1) or call.uses(2) else [None, None]
    after = [None, None]
    if running_mean is not None and (call.uses(3) or call.uses(4)):
        count = product([x.shape[axis] for axis in axes])
        number = brought(count, wide.dtype, x)
        whole = sg.realdiv(number, sg.subtract(number, brought(1, wide.dtype)))
        batch = (reshape(mean, [-1]), sg.multiply(reshape(var, [-1]), whole))
        after = [
            _moved(old, sg.stop_gradient(new), momentum)
            for old, new in zip((running_mean, running_var), batch, strict=True)
        ]
    return y, *saved, *after


def _moved(old: Any, new: Any, momentum: float) -> Any:
    kept = sg.multiply(old, brought(1.0 - momentum, old.dtype))
    return sg.add(kept, sg.multiply(brought(new, old.dtype), brought(momentum, old.dtype)))


def _with_running(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    wide, shape = _wide(x), _by_channel(x)
    mean, var = (reshape(brought(s, wide.dtype), shape) for s in (mean, var))
    rstd = sg.rsqrt(sg.add(var, brought(eps, wide.dtype)))
    y = _affine(sg.multiply(sg.subtract(wide, mean), rstd), weight, bias, shape)
    return brought(y, x.dtype)


def _batch_alone(
    call: Call, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return _batch(call, x, weight, bias, None, None, training, momentum, eps)[:3]


def _batch_resting(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return _batch(call, x, weight, bias, mean, var, False, momentum, eps)[:3]


def _batch_three(call: Call, *arguments: Any) -> Any:
    return _batch(call, *arguments)[:3]


def _layer_gradient(
    call: Call, g: Any, x: Any, shape: Sequence[Any], mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    """From the statistics that it is given, which need not be those of x."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    normal = sg.multiply(sg.subtract(x, mean), rstd)
    inner = g if weight is None else sg.multiply(g, weight)
    outer = tuple(range(x.ndim - len(shape)))
    dx = _through(inner, normal, rstd, axes) if mask[0] else None
    dw = _summed(sg.multiply(g, normal), outer) if mask[1] and weight is not None else None
    db = _summed(g, outer) if mask[2] and bias is not None else None
    return dx, dw, db


def _through(inner: Any, normal: Any, rstd: Any, axes: tuple[int, ...]) -> Any:
    mean = sg.reduce_mean(inner, axis=axes, keepdims=True)
    share = sg.multiply(normal, sg.reduce_mean(sg.multiply(inner, normal), axis=axes, keepdims=True))
    return sg.multiply(sg.subtract(sg.subtract(inner, mean), share), rstd)


def _summed(x: Any, axes: tuple[int, ...]) -> Any:
    return sg.reduce_sum(x, axis=axes) if axes else x


def _group_gradient(
    call: Call,
    g: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: Any,
    c: Any,
    hw: Any,
    group: int,
    mask: Any,
) -> Any:
    shape = [x.shape[0], group, -1]
    mean, rstd = sg.expand_dims(mean, -1), sg.expand_dims(rstd, -1)
    normal = sg.multiply(sg.subtract(reshape(x, shape), mean), rstd)
    inner = g if weight is None else sg.multiply(g, reshape(weight, _by_channel(x)))
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
