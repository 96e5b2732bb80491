"""Primitives that sort."""

from __future__ import annotations

from typing import Any

import stopgrad as sg
from stopgrad.graph.build import apply
from stopgrad.graph.graph import Output
from stopgrad.interop.jax.steps import NotOurs, Step, rule
from stopgrad.ops.order.sorting import TopKV2


@rule("sort")
def _sort(step: Step, *xs: Output) -> Output | list[Output]:
    axis, keys = step["dimension"], step["num_keys"]
    if any(x.dtype.is_complex for x in xs[:keys]):
        raise NotOurs("an order of complex numbers")
    if len(xs) == 1:
        return _sorted(xs[0], axis)
    order: Any = None
    for key in reversed(xs[:keys]):  # Sort by the last key first; each sort is stable.
        placed = _comparable(key if order is None else sg.take_along_axis(key, order, axis))
        place = sg.argsort(placed, axis=axis, stable=True)
        order = place if order is None else sg.take_along_axis(order, place, axis)
    return [sg.take_along_axis(x, order, axis) for x in xs]


def _comparable(x: Output) -> Output:
    comparable: Output = sg.cast(x, sg.uint8) if x.dtype.is_bool else x
    return comparable


def _sorted(x: Output, axis: int) -> Output:
    return sg.cast(sg.sort(_comparable(x), axis=axis), x.dtype) if x.dtype.is_bool else sg.sort(x, axis=axis)


@rule("top_k")
def _top_k(step: Step, x: Output) -> list[Any]:
    k, axis = step["k"], step.params.get("axis", x.ndim - 1) % x.ndim
    order = list(range(x.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    turned = sg.transpose(x, order) if axis != x.ndim - 1 else x
    positions = step.results[1].dtype
    largest = apply(TopKV2, (turned,), (k, positions))
    return [sg.transpose(y, order) if axis != x.ndim - 1 else y for y in largest]
