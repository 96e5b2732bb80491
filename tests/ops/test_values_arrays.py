"""Values of functions that make, move, choose and reduce: NumPy's, or written out element by element."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from values import Cases, complex_normal, normal

import stopgrad as sg

CASES = Cases()
add = CASES.add

X, Y = normal(2, 3, 4), normal(2, 3, 4, seed=1)
C = complex_normal(3, 4)
INTS = np.random.default_rng(2).integers(-9, 9, (3, 4))
TRUTH = np.random.default_rng(3).random((2, 3, 4)) < 0.6
NAN = math.nan

# -------------------------------------------------------------------------------------------- made

add(sg.constant, np.array([[1.5, -2.0]], np.float32), [[1.5, -2.0]])
add(sg.constant, np.full((2, 3), 7, np.int64), 7, dtype="int64", shape=(2, 3))
add(sg.constant, np.array([1 + 2j], np.complex64), [1 + 2j])
add(sg.zeros, np.zeros((2, 3), np.float32), (2, 3))
add(sg.zeros, np.zeros(4, np.int64), [4], dtype=sg.int64)
add(sg.ones, np.ones((3, 1), np.float32), (3, 1))
add(sg.ones, np.ones((2,), bool), (2,), dtype="bool")
add(sg.full, np.full((2, 2), -1.5, np.float32), (2, 2), -1.5)
add(sg.full, np.full((3,), 7.0), (3,), 7, dtype=sg.float64)
add(sg.fill, lambda shape, value: np.full(shape, value), (2, 3), np.array(0.25))
add(sg.zeros_like, np.zeros_like, X)
add(sg.zeros_like, np.zeros_like, INTS)
add(sg.ones_like, np.ones_like, C)
add(sg.ones_like, np.ones_like, TRUTH)
add(sg.identity, lambda x: x, X)
add(sg.identity, lambda x: x, TRUTH)
add(sg.size, np.array(24, np.int32), X)
add(sg.size, np.array(8, np.int64), X, axis=(0, -1), out_type="int64")
add(sg.range, np.arange(5, dtype=np.int32), 5)
add(sg.range, np.array([9, 6, 3], np.int32), 9, 2, -3)
add(sg.range, np.array([0.5, 0.75, 1.0, 1.25], np.float32), 0.5, 1.5, 0.25)
add(sg.cast, np.array([-1, 1, 0, 127], np.int8), np.array([-1.7, 1.7, -0.2, 127.0]), dtype="int8")
add(sg.cast, lambda x: x.astype(np.float32), X, dtype=sg.float32)
add(sg.cast, lambda x: x.real.copy(), C, dtype=sg.float64)
add(sg.cast, lambda x: np.where(x, 1.0, 0.0), TRUTH, dtype=sg.float64)
add(sg.cast, lambda x: x != 0, INTS, dtype=sg.bool_)

# ------------------------------------------------------------------------------------------- moved

add(sg.reshape, lambda x, _: x.ravel().reshape(4, 6), X, (4, -1))
add(
    sg.transpose,
    lambda x: np.array([[[x[i, j, k] for i in range(2)] for j in range(3)] for k in range(4)]),
    X,
)
add(sg.transpose, lambda x, p: np.einsum("ijk->kij", x), X, (2, 0, 1))
add(sg.squeeze, lambda x: x[0, :, 0], X[:1, :, :1].copy())
add(sg.squeeze, lambda x, _: x[0], X[:1, :, :1].copy(), 0)
add(sg.squeeze, lambda x, _: x[:, :, 0], X[:1, :, :1].copy(), (-1,))
add(sg.expand_dims, lambda x, _: x[:, :, None], X, -2)
add(sg.expand_dims, lambda x, _: x[None, :, None], C, (0, 2))
add(sg.broadcast_to, lambda x, _: np.array([np.concatenate([x] * 5, 1)] * 2), X[0, :, :1].copy(), (2, 3, 5))
add(sg.concat, lambda xs, _: np.concatenate(xs, 1), [X, X[:, :1].copy(), -Y], 1)
add(sg.concat, lambda xs, _: np.dstack(xs), [X, Y], -1)
add(sg.stack, lambda xs: np.array([*xs]), [X, Y, -X])
add(sg.stack, lambda xs: np.dstack([x.ravel() for x in xs]).reshape(2, 3, 4, 2), [X, Y], axis=-1)
add(sg.unstack, lambda x: [x[0], x[1]], X)
add(sg.unstack, lambda x: [x[..., i] for i in range(4)], X, axis=-1)
add(sg.split, lambda x, _: [x[..., :2], x[..., 2:]], X, 2, axis=-1)
add(sg.split, lambda x, _: [x[:, :1], x[:, 1:]], X, [1, 2], axis=1)
add(sg.pad, lambda x, p: np.pad(x, p), X, ((0, 1), (2, 0), (1, 1)))
add(
    sg.pad,
    lambda x, p: np.pad(x, p, constant_values=-7),
    INTS,
    ((0, 1), (2, 0)),
    constant_values=np.int64(-7),
)
add(sg.pad, lambda x, p: np.pad(x, p, "reflect"), X, ((0, 1), (2, 0), (3, 1)), mode="REFLECT")
add(sg.pad, lambda x, p: np.pad(x, p, "symmetric"), X, ((0, 2), (2, 0), (4, 1)), mode="SYMMETRIC")
add(sg.tile, lambda x, _: np.concatenate([np.concatenate([x] * 2, 1)] * 3, 2), X, (1, 2, 3))
add(sg.reverse, lambda x, _: x[::-1, :, ::-1], X, (0, -1))
add(sg.strided_slice, lambda x, *_: x[1:2, 2:0:-1, -3:], X, (1, 2, -3), (2, 0, 4), strides=(1, -1, 1))
add(sg.strided_slice, lambda x, *_: x[0:2, 1:3], X, (0, 1), (2, 3))

# ------------------------------------------------------------------------------------------ chosen

AT = np.array([[1, 0, 2], [2, 2, 0]])


def _gathered(x: Any, at: Any) -> Any:
    return np.array([[x[i] for i in row] for row in at.tolist()])


def _along(x: Any, at: Any) -> Any:
    """Elements at positions along the last axis."""
    found = np.zeros(at.shape, x.dtype)
    for place in np.ndindex(*at.shape):
        found[place] = x[(*place[:-1], at[place])]
    return found


def _scattered(x: Any, at: Any, updates: Any) -> Any:
    x = x.copy()
    for i, update in zip(at.tolist(), updates, strict=True):
        x[i] += update
    return x


def _sorted(x: Any, descending: bool = False) -> Any:
    return np.array([sorted(row, reverse=descending) for row in x.reshape(-1, x.shape[-1]).tolist()]).reshape(
        x.shape
    )


def _order(x: Any, sign: int = 1) -> Any:
    rows = x.reshape(-1, x.shape[-1]).tolist()
    return np.array([sorted(range(len(row)), key=lambda i: sign * row[i]) for row in rows], np.int32).reshape(
        x.shape
    )


add(sg.gather, _gathered, normal(3, 4), AT)
add(sg.gather, lambda x, at: x[:, :, at], X, np.array([3, 0]), axis=-1)
add(sg.take_along_axis, _along, normal(2, 4), AT)
add(sg.take_along_axis, lambda x, at: _along(x.T, at.T).T, normal(4, 3), AT, axis=0)
add(sg.scatter_add, _scattered, normal(3, 4), np.array([2, 0, 2, 2]), normal(4, 4, seed=1))
add(
    sg.scatter_add,
    lambda x, at, u: _scattered(x.T, at, u.T).T,
    normal(3, 4),
    np.array([3, 3]),
    normal(3, 2, seed=1),
    axis=1,
)
add(sg.one_hot, lambda at, depth: np.eye(3, dtype=np.float32)[at], AT, 3)
add(sg.one_hot, lambda at, depth: np.moveaxis(np.where(np.eye(3)[at] > 0, 5.0, -1.0), -1, 1), AT, 3,
    on_value=5.0, off_value=-1.0, axis=1, dtype="float64")  # fmt: skip
add(sg.sort, _sorted, X)
add(sg.sort, lambda x: _sorted(x.T).T, INTS, axis=0)
add(sg.sort, lambda x: _sorted(x, True), INTS, direction="DESCENDING")
add(sg.argsort, _order, INTS)
add(sg.argsort, lambda x: _order(x.T).T, INTS, axis=0)
add(sg.argsort, lambda x: _order(x, -1), INTS, direction="DESCENDING")
add(sg.top_k, lambda x, k: [_sorted(x, True)[..., :k], _order(x, -1)[..., :k]], X, 2)
add(sg.top_k, lambda x, k: [_sorted(x, True)[..., :k], _order(x, -1)[..., :k]], INTS, 3)
add(sg.argmax, np.array([0, 1]), np.array([[3.0, -1.0], [3.0, 2.0], [1.0, 2.0]]))
add(sg.argmax, np.array([2, 0], np.int32), np.array([[1, 2, 9], [5, 5, 5]]), axis=-1, output_type="int32")
add(sg.argmin, np.array([2, 0]), np.array([[3.0, -1.0], [3.0, 2.0], [1.0, 2.0]]))
add(sg.argmin, np.array([0, 0], np.int32), np.array([[1, 2, 9], [5, 5, 5]]), axis=-1, output_type="int32")

# ----------------------------------------------------------------------------------------- reduced


def over(f: Callable[[list[Any]], Any], axis: tuple[int, ...] = (0, 1, 2), keepdims: bool = False) -> Any:
    """A function of a list of Python numbers, over axes of an array."""

    def function(x: Any) -> Any:
        kept = [i for i in range(x.ndim) if i not in axis]
        found = [f(x[at].ravel().tolist()) for at in _places(x.shape, kept)]
        shape = (
            [1 if i in axis else n for i, n in enumerate(x.shape)] if keepdims else [x.shape[i] for i in kept]
        )
        return np.array(found).reshape(shape)

    return function


def _places(shape: tuple[int, ...], kept: list[int]) -> list[tuple[Any, ...]]:
    return list(itertools.product(*(range(n) if i in kept else [slice(None)] for i, n in enumerate(shape))))


def _mean(v: list[Any]) -> Any:
    return math.fsum(v) / len(v)


def _variance(v: list[float]) -> float:
    return math.fsum((a - _mean(v)) ** 2 for a in v) / len(v)


def _logsumexp(v: list[float]) -> float:
    return max(v) + math.log(math.fsum(math.exp(a - max(v)) for a in v))


for ours, theirs, x in [
    (sg.reduce_sum, math.fsum, X),
    (sg.reduce_mean, _mean, X),
    (sg.reduce_prod, math.prod, X),
    (sg.reduce_max, max, X),
    (sg.reduce_min, min, X),
    (sg.reduce_logsumexp, _logsumexp, 300 * X),
    (sg.reduce_variance, _variance, 5 + X),
    (sg.reduce_std, lambda v: math.sqrt(_variance(v)), 5 + X),
    (sg.reduce_all, all, TRUTH),
    (sg.reduce_any, any, TRUTH),
    (sg.reduce_any, any, ~TRUTH),
]:
    add(ours, over(theirs), x)
    add(ours, over(theirs, (1,)), x, axis=1)
    add(ours, over(theirs, (0, 2), keepdims=True), x, axis=(0, -1), keepdims=True)
for ours, theirs in [
    (sg.reduce_sum, sum),
    (sg.reduce_prod, math.prod),
    (sg.reduce_max, max),
    (sg.reduce_min, min),
]:
    add(ours, over(theirs, (0,)), INTS, axis=0)
add(sg.reduce_sum, over(sum, (0,)), C, axis=0)
add(sg.reduce_sum, np.zeros(3), np.zeros((0, 3)), axis=0)
add(sg.reduce_prod, over(math.prod, (0,)), C, axis=0)
add(sg.reduce_max, np.array([NAN, 2.0]), np.array([[1.0, NAN], [2.0, -1.0]]), axis=1)
add(
    sg.reduce_logsumexp,
    np.array([-math.inf, 1.0]),
    np.array([[-math.inf, -math.inf], [1.0, -math.inf]]),
    axis=1,
)

for ours, operation in [(sg.cumsum, lambda p, q: p + q), (sg.cumprod, lambda p, q: p * q)]:

    def running(
        x: Any,
        operation: Any = operation,
        start: int = ours is sg.cumprod,
        exclusive: Any = False,
        reverse: Any = False,
    ) -> Any:
        """Along the first axis."""
        rows = list(x[::-1]) if reverse else list(x)
        sums = list(itertools.accumulate(rows, operation, initial=np.full_like(x[0], start)))
        sums = sums[:-1] if exclusive else sums[1:]
        return np.array(sums[::-1] if reverse else sums)

    add(ours, running, X)
    add(ours, running, INTS)
    for exclusive, reverse in itertools.product([False, True], repeat=2):
        add(
            ours,
            lambda x, f=running, e=exclusive, r=reverse: np.moveaxis(
                f(np.moveaxis(x, -1, 0), exclusive=e, reverse=r), 0, -1
            ),
            X,
            axis=-1,
            exclusive=exclusive,
            reverse=reverse,
        )


def _recurrence(a: Any, b: Any) -> Any:
    """Along the first axis, each term with the factors between it and the result."""
    return np.array(
        [
            sum(
                b[j] * functools.reduce(lambda p, q: p * q, a[j + 1 : i + 1], np.ones_like(b[0]))
                for j in range(i + 1)
            )
            for i in range(len(b))
        ]
    )


add(sg.linear_recurrence, _recurrence, normal(7, 3), normal(7, 3, seed=1))
add(sg.linear_recurrence, _recurrence, complex_normal(4, 2), complex_normal(4, 2, seed=1))
add(
    sg.linear_recurrence,
    lambda a, b: _recurrence(np.broadcast_to(a, b.shape).T[::-1], b.T[::-1])[::-1].T,
    normal(2, 1),
    normal(2, 6, seed=1),
    axis=-1,
    reverse=True,
)

# -------------------------------------------------------------------------------- norms and products

add(sg.softmax, lambda x: scipy.special.softmax(x, -1), 100 * X)
add(sg.softmax, lambda x: scipy.special.softmax(x, (0, 2)), X, axis=(0, 2))
add(sg.log_softmax, lambda x: scipy.special.log_softmax(x, -1), 100 * X)
add(sg.softmax, lambda x: scipy.special.softmax(x, 1), 100 * X, axis=1)
add(sg.log_softmax, lambda x: scipy.special.log_softmax(x, 1), 100 * X, axis=1)
add(sg.log_softmax, lambda x: scipy.special.log_softmax(x, (0, 2)), 100 * X, axis=(0, -1))
add(
    sg.layer_norm,
    lambda x: (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 0.1),
    X,
    axis=(0, -1),
    epsilon=0.1,
)
add(
    sg.layer_norm,
    lambda x, scale, offset: (
        (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5) * scale + offset
    ),
    X,
    normal(4, seed=1),
    normal(4, seed=2),
)


def _product(a: Any, b: Any) -> Any:
    return np.array(
        [[math.fsum(p * q for p, q in zip(row, column, strict=True)) for column in b.T] for row in a]
    )


add(sg.matmul, _product, normal(2, 3), normal(3, 4, seed=1))
add(
    sg.matmul,
    lambda a, b: _product(a.T, b.T),
    normal(3, 2),
    normal(4, 3, seed=1),
    transpose_a=True,
    transpose_b=True,
)
add(
    sg.matmul,
    lambda a, b: np.array([[_product(a[i, 0], b[j]) for j in range(3)] for i in range(2)]),
    normal(2, 1, 2, 4),
    normal(3, 4, 5, seed=1),
)
add(
    sg.matmul,
    lambda a, b: (a[:, :, None] * b[None]).sum(1),
    complex_normal(2, 3),
    complex_normal(3, 2, seed=1),
)
add(
    sg.einsum,
    lambda _, a, b: np.array([_product(p, q) for p, q in zip(a, b, strict=True)]),
    "bij,bjk->bik",
    X,
    normal(2, 4, 5, seed=2),
)
add(sg.einsum, lambda _, a: np.trace(a), "ii", normal(3, 3))
add(
    sg.tensordot,
    lambda a, b: (a[:, :, None] * b).sum((0, 1)),
    normal(3, 4),
    normal(3, 4, 2, seed=1),
    axes=2,
)
add(sg.tensordot, lambda a, b: _product(a, b.T), normal(3, 4), normal(2, 4, seed=1), axes=((-1,), (1,)))


@CASES.compared
def test_functions_of_whole_arrays(engine: str, name: str) -> None:
    CASES.check(engine, name)
