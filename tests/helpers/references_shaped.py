"""What operations that look at more than one element compute, from elsewhere; as in references.py.

Nothing here is fast: sums are taken in 80 bits, windows are cut out one by one.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from references import LONG, Wide

NAN, INF = LONG(math.nan), LONG(math.inf)


@dataclass(frozen=True)
class Shaped:
    """An operation on wide arrays.

    Attributes:
        ulps: how far from it the results of an engine may be, for float32 and float64.
        scale: of the terms that are added, with which the error grows.
    """

    function: Callable[..., Any]
    ulps: float = 0.5
    scale: Callable[..., Any] | None = None


# ----------------------------------------------------------------------------------------- reductions


def _sum(x: Wide, axis: Any, keepdims: bool = False) -> Any:
    return (
        np.sum(x, axis=axis, keepdims=keepdims)
        if x.dtype != object
        else np.add.reduce(x, axis=axis, keepdims=keepdims)
    )


def _of_sizes(x: Wide, axis: Any, keepdims: bool = False) -> Any:
    return np.sum(np.abs(x), axis=axis, keepdims=keepdims)


def _count(x: Wide, axis: Any) -> int:
    return math.prod(x.shape[a] for a in axis)


def _mean(x: Wide, axis: Any, keepdims: bool = False) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total / _count(x, axis) if _count(x, axis) else total * NAN


def _variance(x: Wide, axis: Any, keepdims: bool = False) -> Any:
    return _mean((x - _mean(x, axis, True)) ** 2, axis, keepdims)


def _extreme(largest: bool) -> Callable[..., Any]:
    def f(x: Wide, axis: Any, keepdims: bool) -> Any:
        if x.dtype == object:
            start = -(1 << 64) if largest else 1 << 65
        else:
            start = -INF if largest else INF
        return (np.max if largest else np.min)(x, axis=axis, keepdims=keepdims, initial=start)

    return f


def _logsumexp(x: Wide, axis: Any, keepdims: bool = False) -> Any:
    top = np.max(x, axis=axis, keepdims=True, initial=-INF)
    top = np.where(np.isfinite(top), top, LONG(0))
    found = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis)


def _softmax(x: Wide, axis: Any) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-INF))
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax(x: Wide, axis: Any) -> Any:
    centred = x - np.max(x, axis=axis, keepdims=True, initial=-INF)
    return centred - np.log(np.sum(np.exp(centred), axis=axis, keepdims=True))


def _layer_norm(x: Wide, axis: Any, epsilon: float) -> Any:
    return (x - _mean(x, axis, True)) / np.sqrt(_variance(x, axis, True) + epsilon)


def _position(largest: bool) -> Callable[..., Any]:
    def f(x: Wide, axis: int, dtype: Any) -> Any:
        def first(row: Any) -> int:
            values = row.tolist() if x.dtype == object else list(row)
            for i, v in enumerate(values):
                if v != v:
                    return i
            return values.index(max(values) if largest else min(values))

        rows = np.moveaxis(x, axis, -1)
        found = np.zeros(rows.shape[:-1], object)
        for i in np.ndindex(*found.shape):
            found[i] = first(rows[i])
        return found

    return f


# ------------------------------------------------------------------------------------ order, running


def _order(x: Wide, axis: int, descending: bool) -> Any:
    """Positions in sorted order, one row after the other, by Python's stable sort; NaN is the largest."""
    rows = np.moveaxis(x, axis, -1)
    found = np.zeros(rows.shape, object)
    for i in np.ndindex(*rows.shape[:-1]):
        row = rows[i]
        key = [(1, 0) if v != v else (0, v) for v in row]
        found[i] = sorted(range(len(row)), key=key.__getitem__, reverse=descending)
    return np.moveaxis(found, -1, axis)


def _sort(x: Wide, axis: int, descending: bool) -> Any:
    return np.take_along_axis(x, _order(x, axis, descending).astype(int), axis)


def _top_k(x: Wide, k: int, dtype: Any) -> Any:
    order = _order(x, x.ndim - 1, True)[..., :k]
    return np.take_along_axis(x, order.astype(int), -1), order


def _running(start: int, step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def f(x: Wide, axis: int, exclusive: bool, reverse: bool) -> Any:
        rows = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
        found, last = np.empty_like(rows), np.full(rows.shape[1:], start).astype(rows.dtype)
        for i in range(len(rows)):
            following = step(last, rows[i])
            found[i] = last if exclusive else following
            last = following
        return np.moveaxis(found[:: -1 if reverse else 1], 0, axis)

    return f


def _recurrence(a: Wide, b: Wide, axis: int, reverse: bool) -> Any:
    a, b = (np.moveaxis(x, axis, 0)[:: -1 if reverse else 1] for x in (a, b))
    found = b.copy()
    for i in range(1, len(b)):
        found[i] = a[i] * found[i - 1] + b[i]
    return np.moveaxis(found[:: -1 if reverse else 1], 0, axis)


# ------------------------------------------------------------------------------- products, convolution


def _matmul(a: Wide, b: Wide, transpose_a: bool, transpose_b: bool) -> Any:
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    b = np.swapaxes(b, -1, -2) if transpose_b else b
    return np.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)


def _einsum(*xs: Wide, equation: str) -> Any:
    """Element by element."""
    left, _, right = equation.partition("->")
    terms = left.split(",")
    sizes: dict[str, int] = {}
    for term, x in zip(terms, xs, strict=True):
        for label, size in zip(term, x.shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size) if size and sizes.get(label, 1) else 0
    total = np.zeros([sizes[c] for c in right], xs[0].dtype)
    for at in itertools.product(*(range(n) for n in sizes.values())):
        place = dict(zip(sizes, at, strict=True))
        product = 1
        for term, x in zip(terms, xs, strict=True):
            product = product * x[tuple(place[c] if n > 1 else 0 for c, n in zip(term, x.shape, strict=True))]
        total[tuple(place[c] for c in right)] += product
    return total


def _windows(shape: Any, ksize: Any, strides: Any, padding: Any, dilations: Any) -> Any:
    """For each position of the windows and in the window, where that is in the input; none in the padding."""
    axes = []
    for i, (n, k, s, d) in enumerate(zip(shape[1:-1], ksize, strides, dilations, strict=True)):
        reach = (k - 1) * d + 1
        if padding == "SAME":
            count = -(-n // s)
            low = max((count - 1) * s + reach - n, 0) // 2
        else:
            low, high = (0, 0) if padding == "VALID" else padding[i]
            count = (n + low + high - reach) // s + 1
        axes.append([[(o, w, o * s + w * d - low) for w in range(k)] for o in range(count)])
    counts = [len(a) for a in axes]
    places = []
    for out in itertools.product(*(range(c) for c in counts)):
        for within in itertools.product(*(range(k) for k in ksize)):
            at = tuple(axes[i][o][w][2] for i, (o, w) in enumerate(zip(out, within, strict=True)))
            if all(0 <= p < n for p, n in zip(at, shape[1:-1], strict=True)):
                places.append((out, within, at))
    return counts, places


def _trilinear(shape: Any, filters: Any, **geometry: Any) -> Any:
    groups = geometry.pop("groups")
    _, places = _windows(shape, filters[:-2], **geometry)
    ins, outs = filters[-2], filters[-1] // groups
    for out, within, at in places:
        for g in range(groups):
            yield out, within, at, slice(g * ins, (g + 1) * ins), slice(g * outs, (g + 1) * outs)


def _conv(x: Wide, filters: Wide, **geometry: Any) -> Any:
    counts, _ = _windows(x.shape, filters.shape[:-2], **{k: v for k, v in geometry.items() if k != "groups"})
    total = np.zeros((x.shape[0], *counts, filters.shape[-1]), x.dtype)
    for out, within, at, ins, outs in _trilinear(x.shape, filters.shape, **geometry):
        total[(slice(None), *out, outs)] += x[(slice(None), *at, ins)] @ filters[(*within, slice(None), outs)]
    return total


def _conv_input(filters: Wide, g: Wide, shape: Any, **geometry: Any) -> Any:
    total = np.zeros(shape, g.dtype)
    for out, within, at, ins, outs in _trilinear(shape, filters.shape, **geometry):
        total[(slice(None), *at, ins)] += (
            g[(slice(None), *out, outs)] @ filters[(*within, slice(None), outs)].T
        )
    return total


def _conv_filter(x: Wide, g: Wide, shape: Any, **geometry: Any) -> Any:
    total = np.zeros(shape, g.dtype)
    for out, within, at, ins, outs in _trilinear(x.shape, shape, **geometry):
        total[(*within, slice(None), outs)] += x[(slice(None), *at, ins)].T @ g[(slice(None), *out, outs)]
    return total


def _pooled(shape: Any, ksize: Any, **geometry: Any) -> Any:
    counts, places = _windows(shape, ksize, **geometry)
    inside: dict[Any, list[Any]] = {out: [] for out in itertools.product(*(range(c) for c in counts))}
    for out, _, at in places:
        inside[out].append((slice(None), *at))
    return (shape[0], *counts, shape[-1]), [((slice(None), *out), at) for out, at in inside.items()]


def _max_pool(x: Wide, ksize: Any, **geometry: Any) -> Any:
    shape, inside = _pooled(x.shape, ksize, **geometry)
    found = np.full(shape, -INF)
    for out, places in inside:
        for at in places:
            found[out] = np.maximum(found[out], x[at])
    return found


def _first_largest(x: Wide, ksize: Any, **geometry: Any) -> Any:
    """Of each window, for each element of it, whether it is the one that is chosen."""
    for out, places in _pooled(x.shape, ksize, **geometry)[1]:
        if places:
            largest = np.maximum.reduce([x[at] for at in places])
            free = np.ones(largest.shape, bool)
            for at in places:
                hit = free & (x[at] == largest)
                free &= ~hit
                yield out, at, hit


def _max_pool_grad(x: Wide, g: Wide, **geometry: Any) -> Any:
    total = np.zeros_like(x)
    for out, at, hit in _first_largest(x, **geometry):
        total[at] += np.where(hit, g[out], 0)
    return total


def _max_pool_grad_grad(x: Wide, h: Wide, ksize: Any, **geometry: Any) -> Any:
    found = np.zeros(_pooled(x.shape, ksize, **geometry)[0], x.dtype)
    for out, at, hit in _first_largest(x, ksize, **geometry):
        found[out] += np.where(hit, h[at], 0)
    return found


def _avg_pool(x: Wide, ksize: Any, **geometry: Any) -> Any:
    shape, inside = _pooled(x.shape, ksize, **geometry)
    found = np.full(shape, NAN)
    for out, places in inside:
        if places:
            found[out] = sum((x[at] for at in places), LONG(0)) / len(places)
    return found


def _avg_pool_grad(g: Wide, shape: Any, ksize: Any, **geometry: Any) -> Any:
    total = np.zeros(shape, g.dtype)
    for out, places in _pooled(shape, ksize, **geometry)[1]:
        for at in places:
            total[at] += g[out] / len(places)
    return total


# --------------------------------------------------------------------------------- elements, by indices


def _gather(params: Wide, indices: Wide, axis: int, batch_dims: int) -> Any:
    shape = (*params.shape[:axis], *indices.shape[batch_dims:], *params.shape[axis + 1 :])
    found = np.zeros(shape, params.dtype)
    for at, out in _gathered(params.shape, indices, axis, batch_dims):
        found[out] = params[at]
    return found


def _gathered(shape: Any, indices: Wide, axis: int, batch_dims: int) -> Any:
    for i in np.ndindex(*indices.shape):
        if 0 <= indices[i] < shape[axis]:
            for between in np.ndindex(*shape[batch_dims:axis]):
                start = (*i[:batch_dims], *between)
                yield (*start, int(indices[i])), (*start, *i[batch_dims:])


def _scatter_add(x: Wide, indices: Wide, updates: Wide, axis: int, batch_dims: int) -> Any:
    total = x.copy()
    for at, out in _gathered(x.shape, indices, axis, batch_dims):
        total[at] += updates[out]
    return total


def _scattered(join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def f(x: Wide, indices: Wide, updates: Wide, axis: int, batch_dims: int) -> Any:
        total = x.copy()
        for at, out in _gathered(x.shape, indices, axis, batch_dims):
            total[at] = join(total[at], updates[out])
        return total

    return f


def _slices(spans: Any) -> Any:
    return tuple(np.arange(n) * step + start for start, n, step in spans)


def _slice_update(x: Wide, updates: Wide, spans: Any) -> Any:
    total = x.copy()
    total[np.ix_(*_slices(spans))] = updates
    return total


def _block(shape: Any, starts: Wide, sizes: Any) -> Any:
    first = [int(a) + n if a < 0 else int(a) for a, n in zip(starts, shape, strict=True)]
    return tuple(
        slice(low, low + n)
        for low, n in ((max(0, min(a, m - n)), n) for a, m, n in zip(first, shape, sizes, strict=True))
    )


def _dynamic_update(x: Wide, updates: Wide, starts: Wide) -> Any:
    total = x.copy()
    total[_block(x.shape, starts, updates.shape)] = updates
    return total


def _ravel(*indices: Wide, sizes: Any, dtype: Any) -> Any:
    found = np.full(np.broadcast_shapes(*(i.shape for i in indices)), -1, object)
    for at, each in zip(
        np.ndindex(*found.shape), zip(*map(np.ravel, np.broadcast_arrays(*indices)), strict=True), strict=True
    ):
        front = [int(i) + n if i < 0 else int(i) for i, n in zip(each, sizes, strict=True)]
        if all(0 <= i < n for i, n in zip(front, sizes, strict=True)):
            found[at] = int(np.ravel_multi_index(tuple(front), sizes))
    return found


def _so_far(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def f(x: Wide, axis: int, reverse: bool) -> Any:
        rows = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
        found = rows.copy()
        for i in range(1, len(rows)):
            found[i] = step(found[i - 1], rows[i])
        return np.moveaxis(found[:: -1 if reverse else 1], 0, axis)

    return f


def _along(shape: Any, indices: Wide, axis: int) -> Any:
    for i in np.ndindex(*indices.shape):
        if 0 <= indices[i] < shape[axis]:
            yield (*i[:axis], int(indices[i]), *i[axis + 1 :]), i


def _take_along(x: Wide, indices: Wide, axis: int) -> Any:
    found = np.zeros(indices.shape, x.dtype)
    for at, out in _along(x.shape, indices, axis):
        found[out] = x[at]
    return found


def _scatter_along(x: Wide, indices: Wide, updates: Wide, axis: int) -> Any:
    total = x.copy()
    for at, out in _along(x.shape, indices, axis):
        total[at] += updates[out]
    return total


def _one_hot(indices: Wide, on: Wide, off: Wide, depth: int, axis: int) -> Any:
    found = np.empty((*indices.shape, depth), on.dtype)
    for i in np.ndindex(*found.shape):
        found[i] = on if indices[i[:-1]] == i[-1] else off
    return np.moveaxis(found, -1, axis)


# ------------------------------------------------------------------------------------------- the rest


def _cross_entropy(labels: Wide, logits: Wide, axis: int) -> Any:
    terms = labels * _log_softmax(logits, (axis,))
    return -np.sum(np.where(labels == 0, LONG(0), terms), axis=axis)


def _sparse_cross_entropy(labels: Wide, logits: Wide) -> Any:
    found = np.full(labels.shape, NAN)
    likely = _log_softmax(logits, (logits.ndim - 1,))
    for i in np.ndindex(*labels.shape):
        if 0 <= labels[i] < logits.shape[-1]:
            found[i] = -likely[(*i, int(labels[i]))]
    return found


def _spans(spans: Any) -> Any:
    return np.ix_(*([start + i * step for i in range(size)] for start, size, step in spans))


def _slice_grad(g: Wide, shape: Any, spans: Any) -> Any:
    total = np.zeros(shape, g.dtype)
    if g.size:
        total[_spans(spans)] = g
    return total


def _split(x: Wide, sizes: Any, axis: int) -> Any:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _pad(x: Wide, value: Wide, paddings: Any) -> Any:
    found = np.full([low + n + high for n, (low, high) in zip(x.shape, paddings, strict=True)], value)
    found[tuple(slice(low, low + n) for n, (low, _) in zip(x.shape, paddings, strict=True))] = x
    return found


def _of_largest(x: Wide, axis: Any) -> Any:
    return np.max(np.abs(np.where(np.isfinite(x), x, 0)), axis=axis, keepdims=True, initial=1) + 0 * x


def _norm_scale(x: Wide, axis: Any, epsilon: float) -> Any:
    return np.abs(_layer_norm(x, axis, epsilon)) + _of_largest(x, axis) / np.sqrt(
        _variance(x, axis, True) + epsilon
    )


def _sizes(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same sum over the sizes of what is added."""
    return lambda *xs, **attributes: f(*map(np.abs, xs), **attributes)


FINITE = {"Einsum", "Conv", "ConvBackpropInput", "ConvBackpropFilter", "LinearRecurrence"}
"""Where an infinity meets zeros that padding or another order of the products brings in."""

S = Shaped
SHAPED: dict[str, Shaped] = {
    "Sum": S(_sum, 4, _of_sizes),
    "Mean": S(_mean, 4, lambda x, **a: _mean(np.abs(x), **a)),
    "Prod": S(lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims), 8),
    "Max": S(_extreme(True)),
    "Min": S(_extreme(False)),
    "Any": S(lambda x, axis, keepdims: np.any(x, axis=axis, keepdims=keepdims)),
    "All": S(lambda x, axis, keepdims: np.all(x, axis=axis, keepdims=keepdims)),
    "LogSumExp": S(_logsumexp, 4, lambda x, axis, keepdims: np.abs(_logsumexp(x, axis, keepdims)) + 1),
    "Variance": S(_variance, 16, lambda x, **a: _mean(x * x, **a)),
    "ArgMax": S(_position(True)),
    "ArgMin": S(_position(False)),
    "Cumsum": S(_running(0, operator.add), 4, _sizes(_running(0, operator.add))),
    "Cumprod": S(_running(1, operator.mul), 8),
    "LinearRecurrence": S(_recurrence, 8, _sizes(_recurrence)),
    "Softmax": S(_softmax, 8),
    "LogSoftmax": S(_log_softmax, 8, lambda x, axis: np.abs(_log_softmax(x, axis)) + 1),
    "LayerNorm": S(_layer_norm, 16, _norm_scale),
    "MatMul": S(_matmul, 8, _sizes(_matmul)),
    "Einsum": S(_einsum, 8, _sizes(_einsum)),
    "Conv": S(_conv, 8, _sizes(_conv)),
    "ConvBackpropInput": S(_conv_input, 8, _sizes(_conv_input)),
    "ConvBackpropFilter": S(_conv_filter, 8, _sizes(_conv_filter)),
    "MaxPool": S(_max_pool),
    "MaxPoolGrad": S(_max_pool_grad, 4, lambda x, g, **a: _max_pool_grad(x, np.abs(g), **a)),
    "MaxPoolGradGrad": S(_max_pool_grad_grad),
    "AvgPool": S(_avg_pool, 4, _sizes(_avg_pool)),
    "AvgPoolGrad": S(_avg_pool_grad, 4, _sizes(_avg_pool_grad)),
    "Argsort": S(_order),
    "Sort": S(_sort),
    "TopKV2": S(_top_k),
    "GatherV2": S(_gather),
    "TakeAlongAxis": S(_take_along),
    "TensorScatterAdd": S(_scatter_add, 4, lambda x, i, u, **a: _scatter_add(np.abs(x), i, np.abs(u), **a)),
    "ScatterAddAlongAxis": S(
        _scatter_along, 4, lambda x, i, u, **a: _scatter_along(np.abs(x), i, np.abs(u), **a)
    ),
    "TensorScatterUpdate": S(_scattered(lambda old, new: new)),
    "TensorScatterMax": S(_scattered(np.maximum)),
    "TensorScatterMin": S(_scattered(np.minimum)),
    "TensorScatterMul": S(_scattered(operator.mul), 4),
    "TensorStridedSliceUpdate": S(_slice_update),
    "DynamicSlice": S(lambda x, starts, sizes: x[_block(x.shape, starts, sizes)]),
    "DynamicUpdateSlice": S(_dynamic_update),
    "RavelMultiIndex": S(_ravel),
    "Cummax": S(_so_far(np.maximum)),
    "Cummin": S(_so_far(np.minimum)),
    "CumulativeLogsumexp": S(
        _so_far(np.logaddexp), 8, lambda x, axis, reverse: np.abs(_so_far(np.logaddexp)(x, axis, reverse)) + 1
    ),
    "NoOp": S(lambda *parts: np.array(True)),
    "OneHot": S(_one_hot),
    "AddN": S(lambda *xs: sum(xs[1:], xs[0]), 4, lambda *xs: sum(map(np.abs, xs[1:]), np.abs(xs[0]))),
    "SoftmaxCrossEntropyWithLogits": S(
        _cross_entropy,
        8,
        lambda z, x, axis: np.sum(np.abs(z) * (np.abs(_log_softmax(x, (axis,))) + 1), axis=axis),
    ),
    "SparseSoftmaxCrossEntropyWithLogits": S(
        _sparse_cross_entropy, 8, lambda i, x: np.abs(_sparse_cross_entropy(i, x)) + 1
    ),
    "Reshape": S(lambda x, shape: np.reshape(x, shape)),
    "Transpose": S(lambda x, perm: np.transpose(x, perm)),
    "BroadcastTo": S(lambda x, shape: np.broadcast_to(x, shape)),
    "Fill": S(lambda value, shape: np.full(shape, value)),
    "StridedSlice": S(lambda x, spans: x[_spans(spans)]),
    "StridedSliceGrad": S(_slice_grad),
    "ConcatV2": S(lambda *xs, axis: np.concatenate(xs, axis)),
    "Pack": S(lambda *xs, axis: np.stack(xs, axis)),
    "Split": S(_split),
    "PadV2": S(_pad),
    "Tile": S(lambda x, multiples: np.tile(x, multiples)),
    "ReverseV2": S(lambda x, axis: np.flip(x, axis)),
    "Assign": S(lambda parameter, value: value),
}
del S
