"""Results so far, along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.onnx_nodes.kernels import computed_in
from stopgrad.op import Op
from stopgrad.ops.running import CumulativeLogsumexp, Cummax, Cummin, Cumprod, Cumsum
from stopgrad.types import Dim


def _sum(xp: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    x = xp.value(x)
    within = computed_in("CumSum", x.dtype)
    given = [xp.cast(x, within), np.array(axis % x.ndim, np.int64)]
    made = xp.node("CumSum", given, within, x.shape, exclusive=int(exclusive), reverse=int(reverse))
    return xp.cast(made, x.dtype)


def _scanned(xp: Any, x: Any, axis: int, reverse: bool, start: Any, step: Callable[[Any, Any], Any]) -> Any:
    """From *start*: a step takes what was handed on and an element, and gives what is handed on and a result."""
    x = xp.value(x)
    axis %= x.ndim
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    kind = (x.dtype, rest)
    first = xp.value(start, x.dtype)
    size = x.shape[axis]
    maybe_none = isinstance(size, Dim) or size == 0
    if maybe_none:  # The runtime's Scan takes one element at least: another one comes last, and goes again.
        one = xp.broadcast_to(first, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
        x = xp.concatenate([one, x] if reverse else [x, one], axis)
    made = xp.write(
        "Scan",
        [xp.broadcast_to(first, rest), x],
        [kind, (x.dtype, x.shape)],
        body=xp.body([kind, kind], step),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[int(reverse)],
        scan_output_axes=[axis],
        scan_output_directions=[int(reverse)],
    )[1]
    if not maybe_none:
        return made
    first, last = (1, np.iinfo(np.int64).max) if reverse else (0, -1)
    cut = [np.array([n], np.int64) for n in (first, last, axis)]
    shape = (*rest[:axis], size, *rest[axis:])
    return xp.node("Slice", [made, *cut], made.dtype, shape)


def _along(xp: Any, x: Any, axis: int, reverse: bool, start: Any, step: Callable[[Any, Any], Any]) -> Any:
    """Every result is a step from that before it and an element."""
    return _scanned(xp, x, axis, reverse, start, lambda before, element: [step(before, element)] * 2)


def _product(xp: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    step = lambda before, element: [before * element, before if exclusive else before * element]
    return _scanned(xp, x, axis, reverse, 1, step)


def _lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


RUNNING: Mapping[type[Op], Callable[..., Any]] = {
    Cumsum: _sum,
    Cumprod: _product,
    Cummax: lambda xp, x, *, axis, reverse: _along(xp, x, axis, reverse, _lowest(x.dtype), xp.maximum),
    Cummin: lambda xp, x, *, axis, reverse: _along(xp, x, axis, reverse, _highest(x.dtype), xp.minimum),
    CumulativeLogsumexp: lambda xp, x, *, axis, reverse: _along(
        xp, x, axis, reverse, -np.inf, xp.logaddexp
    ),
}
