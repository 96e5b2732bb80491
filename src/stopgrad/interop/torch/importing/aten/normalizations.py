"""Layer, group and batch normalisation, with the statistics that PyTorch returns besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared.conversions import brought
from stopgrad.interop.shared.normalizations import (
    affine,
    batch_normalized,
    layer_normalized,
    moved,
    statistics,
    unbiased,
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
) -> tuple[Any, ...]:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    is_used = call.uses(1) or call.uses(2)
    y, *moments = layer_normalized(x, axes, weight, bias, eps, is_used)
    return y, *(brought(s, x.dtype) if is_used else None for s in moments)


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
) -> tuple[sg.Output, sg.Output | None, sg.Output | None]:
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
) -> tuple[Tensor, ...]:
    """The result, the batch's mean and 1 / deviation, and the running statistics after it."""
    if not training:
        y = with_running(x, weight, bias, running_mean, running_var, eps)
        empty = sg.zeros([0], y.dtype)
        return y, empty, empty, running_mean, running_var
    y, mean, var, rstd = batch_normalized(x, weight, bias, eps)
    saved = [mean, rstd] if call.uses(1) or call.uses(2) else [None, None]
    after: list[sg.Output | None] = [None, None]
    if running_mean is not None and (call.uses(3) or call.uses(4)):
        after = [
            moved(old, sg.stop_gradient(new), 1.0 - momentum)
            for old, new in zip((running_mean, running_var), (mean, unbiased(var, x)), strict=True)
        ]
    return y, *saved, *after


def _batch_alone(call: Call, x: Any, weight: Any, bias: Any, *settings: Any) -> tuple[Any, ...]:
    return _batch(call, x, weight, bias, None, None, *settings)[:3]


def _batch_resting(
    call: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *settings: Any
) -> tuple[Any, ...]:
    return _batch(call, x, weight, bias, mean, var, False, *settings)[:3]


def _batch_three(call: Call, *arguments: Any) -> tuple[Any, ...]:
    return _batch(call, *arguments)[:3]


NORMALIZATIONS: Table = dict(
    table(
        {
            "native_layer_norm": _layer,
            "native_group_norm": _group,
            "_native_batch_norm_legit_functional": _batch,
            "_native_batch_norm_legit native_batch_norm": _batch_three,
            "_native_batch_norm_legit.no_stats": _batch_alone,
            "_native_batch_norm_legit_no_training": _batch_resting,
        }
    )
)
