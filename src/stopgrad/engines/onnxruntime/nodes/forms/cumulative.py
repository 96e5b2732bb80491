"""Cumulative operations along an axis: CumSum, CumProd, and Scan for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import highest, lowest, number
from stopgrad.engines.onnxruntime.nodes.kernels import computed_in
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import is_known
from stopgrad.engines.onnxruntime.nodes.reducing import FEW
from stopgrad.graph.op import Op
from stopgrad.ops.reductions.cumulative import Cummax, Cummin, Cumprod, Cumsum, CumulativeLogsumexp
from stopgrad.ops.reductions.recurrence import LinearRecurrence


def scanned(
    xp: Writing,
    step: Callable[..., Sequence[Any]],
    first: Sequence[Any],
    parts: Sequence[Any],
    kinds: Sequence[Any],
    axis: int = 0,
    reverse: bool = False,
) -> list[Any]:
    """A Scan: calls *step* with the carry and a slice of each of the parts along an axis.

    Args:
        step: returns the next carry, and what is stacked along the axis.
        first: the first carry.
        parts: at least one, and of at least one slice.
        kinds: dtypes and shapes of what is stacked.
    """
    first, parts = list(map(xp.value, first)), list(map(xp.value, parts))
    carried = [(x.dtype, x.shape) for x in first]
    slices = [(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :])) for x in parts]
    attributes: dict[str, Any] = {}
    if axis:
        attributes |= {"scan_input_axes": [axis] * len(parts), "scan_output_axes": [axis] * len(kinds)}
    if reverse:
        attributes |= {"scan_input_directions": [1] * len(parts), "scan_output_directions": [1] * len(kinds)}
    if not kinds:
        attributes = {key: value for key, value in attributes.items() if "output" not in key}
    body = xp.body([*carried, *slices], step)
    return xp.write(
        "Scan", [*first, *parts], [*carried, *kinds], body=body, num_scan_inputs=len(parts), **attributes
    )


def _running(xp: Writing, x: Array, axis: int, reverse: bool, join: Callable[..., Any], start: float) -> Any:
    if x.shape[axis] == 0:
        return x
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])

    def step(before: Array, part: Array) -> list[Any]:
        after = join(before, part)
        return [after, after]

    first = xp.full(rest, number(start, x.dtype))
    return scanned(xp, step, [first], [x], [(np.dtype(x.dtype), x.shape)], axis, reverse)[1]


def _by_operator(op_type: str, xp: Writing, x: Array, axis: int, exclusive: bool, reverse: bool) -> Any:
    attributes = {"exclusive": 1} if exclusive else {}
    attributes |= {"reverse": 1} if reverse else {}
    within = computed_in(op_type, x.dtype)
    running = xp.node(op_type, [xp.value(x, within), number(axis, np.int64)], within, x.shape, **attributes)
    return xp.cast(running, x.dtype)


def _cumsum(xp: Writing, x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    """In float64, unless there are few numbers: the runtime adds them one by one."""
    size = x.shape[axis]
    if x.dtype != np.float32 or (is_known([size]) and size <= FEW):
        return _by_operator("CumSum", xp, x, axis, exclusive, reverse)
    return xp.cast(_by_operator("CumSum", xp, xp.value(x, np.float64), axis, exclusive, reverse), x.dtype)


def _cumprod(xp: Writing, x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:
    if xp.opset >= 26:
        return _by_operator("CumProd", xp, x, axis, exclusive, reverse)
    if exclusive and x.shape[axis] != 0:
        rest = (*x.shape[:axis], *x.shape[axis + 1 :])
        step = lambda before, part: [xp.multiply(before, part), before]
        ones = xp.ones(rest, x.dtype)
        return scanned(xp, step, [ones], [x], [(np.dtype(x.dtype), x.shape)], axis, reverse)[1]
    return _running(xp, x, axis, reverse, xp.multiply, 1)


def _extremum(function: str, start: Callable[[Any], Any]) -> Callable[..., Any]:
    def form(xp: Writing, x: Array, *, axis: int, reverse: bool) -> Any:
        return _running(xp, x, axis, reverse, getattr(xp, function), start(x.dtype))

    return form


def _logsumexp(xp: Writing, x: Array, *, axis: int, reverse: bool) -> Any:
    """In float64, since each step rounds a logarithm whose last digit may be more than the step."""
    return xp.cast(_running(xp, xp.value(x, np.float64), axis, reverse, xp.logaddexp, -np.inf), x.dtype)


def _linear(xp: Writing, a: Array, b: Array, *, axis: int, reverse: bool) -> Any:
    """The first factor is replaced by 0: it is multiplied with nothing, even if it is infinite."""
    size = b.shape[axis]
    if size == 0:
        return b
    if size == 1:
        return b
    places = xp.reshape(xp.arange(size), (size, *(1,) * (b.ndim - axis - 1)))
    factors = xp.where(xp.equal(places, size - 1 if reverse else 0), number(0, a.dtype), a)

    def step(before: Array, factor: Array, term: Array) -> list[Any]:
        after = xp.add(xp.multiply(factor, before), term)
        return [after, after]

    first = xp.zeros((*b.shape[:axis], *b.shape[axis + 1 :]), b.dtype)
    return scanned(xp, step, [first], [factors, b], [(np.dtype(b.dtype), b.shape)], axis, reverse)[1]


RUNNING: Mapping[type[Op], Callable[..., Any]] = {
    Cumsum: _cumsum,
    Cumprod: _cumprod,
    Cummax: _extremum("maximum", lowest),
    Cummin: _extremum("minimum", highest),
    CumulativeLogsumexp: _logsumexp,
    LinearRecurrence: _linear,
}
