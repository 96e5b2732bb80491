"""Primitives that move elements without a look at them, and those that reduce axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

import stopgrad as sg
from stopgrad.base.types import dtype_of
from stopgrad.graph.build import apply
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import Tensor
from stopgrad.interop.jax.steps import NotOurs, Step, plain, rule
from stopgrad.ops.indexing.scatters import TensorStridedSliceUpdate
from stopgrad.ops.indexing.slices import StridedSlice, StridedSliceGrad

# ------------------------------------------------------------------------------------------- shapes


@rule("broadcast_in_dim")
def _broadcast_in_dim(step: Step, x: Output, *sizes: Output) -> Output:
    if sizes:
        raise NotOurs("a size that is computed")
    shape, places = step["shape"], step["broadcast_dimensions"]
    order = sorted(range(x.ndim), key=lambda axis: places[axis])
    if order != list(range(x.ndim)):
        x, places = sg.transpose(x, order), sorted(places)
    spread: list[Any] = [1] * len(shape)
    for axis, place in enumerate(places):
        spread[place] = x.shape[axis]
    aligned = x if tuple(spread[len(spread) - x.ndim :]) == tuple(x.shape) else sg.reshape(x, spread)
    return sg.identity(x) if tuple(x.shape) == tuple(shape) else sg.broadcast_to(aligned, shape)


@rule("reshape")
def _reshape(step: Step, x: Output, *sizes: Output) -> Output:
    if sizes:
        raise NotOurs("a reshape with computed sizes")
    order = step["dimensions"]
    x = x if order is None else sg.transpose(x, list(order))
    return sg.reshape(x, step["new_sizes"])


@rule("squeeze")
def _squeeze(step: Step, x: Output) -> Output:
    return sg.reshape(x, step.result.shape)


@rule("transpose")
def _transpose(step: Step, x: Output) -> Output:
    return sg.transpose(x, step["permutation"])


@rule("rev")
def _rev(step: Step, x: Output) -> Output:
    return sg.reverse(x, step["dimensions"]) if step["dimensions"] else sg.identity(x)


@rule("concatenate")
def _concatenate(step: Step, *xs: Output) -> Output:
    return sg.concat(xs, step["dimension"])


@rule("split")
def _split(step: Step, x: Output) -> tuple[Output, ...]:
    return sg.split(x, list(step["sizes"]), step["axis"])


@rule("tile")
def _tile(step: Step, x: Output) -> Output:
    return sg.tile(x, step["reps"])


@rule("stack")
def _stack(step: Step, *xs: Output) -> Output:
    return sg.stack(list(xs), axis=step["axis"])


@rule("unstack")
def _unstack(step: Step, x: Output) -> list[Output]:
    return sg.unstack(x, axis=step["axis"])


@rule("iota")
def _iota(step: Step, *sizes: Output) -> Output:
    if sizes:
        raise NotOurs("a size that is computed")
    shape, axis, dtype = step["shape"], step["dimension"], dtype_of(step["dtype"])
    if not dtype.is_integer and not dtype.is_floating:
        numbers = sg.cast(sg.range(shape[axis], dtype=sg.int32), dtype)
    else:
        numbers = sg.range(0, shape[axis], dtype=dtype)
    line = [1] * len(shape)
    line[axis] = shape[axis]
    return sg.broadcast_to(sg.reshape(numbers, line), shape)


@rule("empty", "empty2")
def _empty(step: Step) -> Tensor:
    return sg.zeros(step.result.shape, step.result.dtype)


def cut(x: Output, spans: Sequence[tuple[Any, Any, int]]) -> Output:
    """Strided slices: for each axis the start, the number of elements, and the step."""
    if all(span == (0, size, 1) for span, size in zip(spans, x.shape, strict=True)):
        return x
    part: Output = apply(StridedSlice, (x,), StridedSlice.canonical((tuple(spans),)))
    return part


@rule("slice")
def _slice(step: Step, x: Output) -> Output:
    steps = step["strides"] or (1,) * x.ndim
    spans = [
        (low, -(-(high - low) // stride) if high > low else 0, stride)
        for low, high, stride in zip(step["start_indices"], step["limit_indices"], steps, strict=True)
    ]
    return sg.identity(x) if cut(x, spans) is x else cut(x, spans)


@rule("pad")
def _pad(step: Step, x: Output, value: Output) -> Output:
    return padded(x, step["padding_config"], value)


def padded(
    x: Output, config: Sequence[tuple[int, int, int]], value: sg.Output | int | np.ndarray[Any, Any]
) -> Output:
    """``lax.pad``: elements added before, after and between those of each axis; negative numbers cut."""
    config = [(int(low), int(high), int(between)) for low, high, between in config]
    if any(between for _, _, between in config):
        sizes = [max(n + (n - 1) * between, 0) for n, (_, _, between) in zip(x.shape, config, strict=True)]
        spans = tuple((0, n, between + 1) for n, (_, _, between) in zip(x.shape, config, strict=True))
        if _is_zero(value):
            x = apply(StridedSliceGrad, (x,), (tuple(sizes), spans))
        else:
            x = apply(TensorStridedSliceUpdate, (sg.fill(sizes, value), x), (spans,))
    around = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    if any(map(any, around)):
        x = sg.pad(x, around, constant_values=value)
    sizes = [
        max(n + min(low, 0) + min(high, 0), 0) for n, (low, high, _) in zip(x.shape, config, strict=True)
    ]
    spans = tuple((max(-low, 0) if n else 0, n, 1) for n, (low, _, _) in zip(sizes, config, strict=True))
    return cut(x, spans)


def _is_zero(value: Output | int | np.ndarray[Any, Any]) -> bool:
    if isinstance(value, Output):
        return value.op.type == "Const" and not value.op.value.array.any()
    return not np.any(value)


# ---------------------------------------------------------------------------------------- reductions


def _reduces(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A rule that reduces over the axes of an equation."""

    def reduce(step: Step, x: Output) -> Output:
        axes = tuple(step["axes"])
        return function(x, axes) if axes else sg.identity(x)

    return reduce


def _extreme(
    numbers: Callable[..., Tensor], truths: Callable[..., Tensor]
) -> Callable[[Output, Sequence[int]], Any]:
    def reduce(x: Output, axes: Sequence[int]) -> Output:
        if x.dtype.is_complex:
            raise NotOurs("the largest of complex numbers")
        return truths(x, axes) if x.dtype.is_bool else numbers(x, axes)

    return reduce


def _bits(
    truths: Callable[..., Tensor] | None, bits: Callable[..., Tensor], neutral: int
) -> Callable[..., Tensor]:
    def reduce(x: Output, axes: Sequence[int]) -> sg.Output:
        if truths is not None and x.dtype.is_bool:
            return truths(x, axes)
        function = sg.logical_xor if x.dtype.is_bool else bits
        return folded(
            [x], axes, lambda a, b: [function(a[0], b[0])], [np.asarray(neutral).astype(x.dtype.numpy)]
        )[0]

    return reduce


def folded(
    xs: Sequence[Output], axes: Sequence[int], function: Callable[..., Tensor], neutral: Sequence[Any]
) -> list[Output]:
    """A reduction by a function of pairs, which halves the axes until one element is left."""
    others = [axis for axis in range(xs[0].ndim) if axis not in axes]
    shape = [xs[0].shape[axis] for axis in others]
    count = math.prod(int(xs[0].shape[axis]) for axis in axes)
    rows = [sg.reshape(sg.transpose(x, [*axes, *others]), [count, *shape]) for x in xs]
    if not count:
        return [sg.fill(shape, value) for value in neutral]
    while count > 1:
        half, odd = divmod(count, 2)
        whole: list[tuple[Any, Any, int]] = [(0, n, 1) for n in shape]
        low = [cut(x, [(0, half, 1), *whole]) for x in rows]
        high = [cut(x, [(half, half, 1), *whole]) for x in rows]
        halved = function(low, high)
        if odd:
            last = [cut(x, [(count - 1, 1, 1), *whole]) for x in rows]
            halved = [sg.concat([a, b], 0) for a, b in zip(halved, last, strict=True)]
        rows, count = list(halved), half + odd
    return [sg.reshape(x, shape) for x in rows]


rule("reduce_sum")(_reduces(sg.reduce_sum))
rule("reduce_prod")(_reduces(sg.reduce_prod))
rule("reduce_max")(_reduces(_extreme(sg.reduce_max, sg.reduce_any)))
rule("reduce_min")(_reduces(_extreme(sg.reduce_min, sg.reduce_all)))
rule("reduce_and")(_reduces(_bits(sg.reduce_all, sg.bitwise_and, -1)))
rule("reduce_or")(_reduces(_bits(sg.reduce_any, sg.bitwise_or, 0)))
rule("reduce_xor")(_reduces(_bits(None, sg.bitwise_xor, 0)))


@rule("reduce")
def _reduce(step: Step, *operands: Output) -> list[Output]:
    xs, starts = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    body, axes = step["jaxpr"], tuple(step["dimensions"])

    def both(a: Sequence[Output], b: Sequence[Output]) -> list[Output]:
        if not a[0].ndim:
            return step.run(body, *a, *b)
        # The body is a function of scalars; it may run on whole arrays if it is elementwise.
        return _elementwise(step, body, [*a, *b])

    reduced = folded(xs, axes, both, starts)
    return both([sg.broadcast_to(s, y.shape) for s, y in zip(starts, reduced, strict=True)], reduced)


def _elementwise(step: Step, body: jex.ClosedJaxpr, operands: Sequence[Output]) -> list[Output]:
    flat = [sg.reshape(x, [-1]) for x in operands]
    mapped = sg.vmap(lambda *xs: tuple(step.run(body, *xs)))(*flat)
    shape = operands[0].shape
    results: Sequence[Output] = mapped if isinstance(mapped, tuple) else (mapped,)
    return [sg.reshape(y, shape) for y in results]


def _position(function: Callable[..., Output]) -> Callable[[Step, Output], Any]:
    def position(step: Step, x: Output) -> Output:
        (axis,) = step["axes"]
        return function(sg.cast(x, sg.int32) if x.dtype.is_bool else x, axis, dtype_of(step["index_dtype"]))

    return position


rule("argmax")(_position(sg.argmax))
rule("argmin")(_position(sg.argmin))


# ---------------------------------------------------------------------------------------- cumulative


def _cumulative(function: Callable[..., Output]) -> Callable[[Any, Any], Any]:
    return lambda step, x: function(x, axis=step["axis"], reverse=step["reverse"])


rule("cumsum")(_cumulative(sg.cumsum))
rule("cumprod")(_cumulative(sg.cumprod))
rule("cummax")(_cumulative(sg.cummax))
rule("cummin")(_cumulative(sg.cummin))
rule("cumlogsumexp")(_cumulative(sg.cumulative_logsumexp))

_WHERE_IT_IS = (
    "optimization_barrier",
    "device_put",
    "layout_constraint",
    "with_memory_space_constraint",
    "reshard",
)
"""Primitives that only say where values are, or when they are computed."""
plain(dict.fromkeys(_WHERE_IT_IS, lambda *xs: [sg.identity(x) for x in xs]))


@rule("sharding_constraint")
def _sharding_constraint(step: Step, x: Output) -> Output:
    # A sharding without the names of axes says nothing about another mesh.
    return sg.shard(x, step["sharding"]) if hasattr(step["sharding"], "spec") else sg.identity(x)
