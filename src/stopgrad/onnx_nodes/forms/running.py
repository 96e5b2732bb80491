"""Results so far, along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.onnx_nodes.kernels import computed_in
from stopgrad.op import Op
from stopgrad.ops.running import CumulativeLogsumexp, Cummax, Cummin, Cumprod, Cumsum


def _sum(xp: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    x = xp.value(x)
    within = computed_in("CumSum", x.dtype)
    given = [xp.cast(x, within), np.array(axis % x.ndim, np.int64)]
    made = xp.node("CumSum", given, within, x.shape, exclusive=int(exclusive), reverse=int(reverse))
    return xp.cast(made, x.dtype)


def _along(xp: Any, x: Any, axis: int, reverse: bool, start: Any, step: Callable[[Any, Any], Any]) -> Any:
    """A scan from *start*: every result is a step from that before it and an element."""
    x = xp.value(x)
    axis %= x.ndim
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    kind = (x.dtype, rest)

    def body(before: Any, element: Any) -> list[Any]:
        found = step(before, element)
        return [found, found]

    return xp.write(
        "Scan",
        [xp.broadcast_to(xp.value(start, x.dtype), rest), x],
        [kind, (x.dtype, x.shape)],
        body=xp.body([kind, kind], body),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[int(reverse)],
        scan_output_axes=[axis],
        scan_output_directions=[int(reverse)],
    )[1]


def _product(xp: Any, x: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    x = xp.value(x)
    one = np.ones((), x.dtype)
    if not exclusive:
        return _along(xp, x, axis, reverse, one, xp.multiply)
    axis %= x.ndim
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    kind = (x.dtype, rest)
    return xp.write(
        "Scan",
        [xp.broadcast_to(xp.value(one), rest), x],
        [kind, (x.dtype, x.shape)],
        body=xp.body([kind, kind], lambda before, element: [before * element, before]),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[int(reverse)],
        scan_output_axes=[axis],
        scan_output_directions=[int(reverse)],
    )[1]


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
