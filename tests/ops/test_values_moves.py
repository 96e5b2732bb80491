"""Values of functions that order, count, repeat, move, search and update: those of NumPy and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import each_engine
from values import Cases, by, complex_normal, normal, values_of

import stopgrad as sg

pytestmark = pytest.mark.slow

CASES = Cases()
add = CASES.add

X, B, F = normal(3, 4), normal(2, 3, 4, seed=1), normal(6, seed=2)
C = complex_normal(3, 4)
INTS = np.random.default_rng(3).integers(-3, 4, (4, 5))
SMALL = np.array([2, 0, 2, 1, 0], np.int32)
OTHERS = np.array([5, 2, 2, -1], np.int32)
TRUTH = X > 0
SORTED = np.array([-1.0, 0.0, 0.0, 0.5, 2.0])
SPECIAL = np.array([1.0, np.nan, -np.inf, np.inf, -2.0])


def narrow(x: Any) -> Any:
    return np.asarray(x).astype(np.int32)


# ------------------------------------------------------------------------------------------ moved and made

add(sg.flip, lambda x: np.flip(x), B)
add(sg.flip, lambda x: np.flip(x, (0, -1)), B, axis=(0, -1))
add(sg.roll, lambda x, shift, axis: np.roll(x, shift, axis), B, [1, -5], [0, 2])
add(sg.roll, lambda x, shift, axis: np.roll(x, shift), INTS, 7, None)
add(sg.repeat, lambda x, n: np.repeat(x, n), X, 3)
add(sg.repeat, lambda x, n, axis: np.repeat(x, n, axis), C, [0, 2, 1], 0)
add(sg.repeat, lambda x, n, axis: np.repeat(x, n, axis), X, np.array([2, 0, 3]), 0, total_repeat_length=5)
add(sg.moveaxis, lambda x, a, b: np.moveaxis(x, a, b), B, [0, 2], [-1, 0])
add(sg.swapaxes, lambda x, a, b: np.swapaxes(x, a, b), B, 0, -1)
add(sg.permute_dims, lambda x, axes: x.transpose(axes), B, (2, 0, 1))
for k in (-1, 0, 2, 3):
    add(sg.rot90, lambda x, k, axes: np.rot90(x, k, axes), B, k, (2, 1))
add(sg.take, lambda x, at, axis: np.take(x, at, axis), B, INTS % 3 - 1, 1)
add(sg.take, lambda x, at: np.take(x, at), X, SMALL)
add(sg.diff, lambda x, n, axis: np.diff(x, n, axis), X, 2, 0)
add(sg.diff, lambda x: np.diff(x), TRUTH)
add(sg.diff, lambda x: np.diff(x, prepend=0.0, append=X[:, :2]), X, prepend=0.0, append=X[:, :2].copy())
add(sg.broadcast_tensors, lambda xs: np.broadcast_arrays(*xs), [X[:1].copy(), X[:, :1].copy()])
add(sg.broadcast_arrays, lambda x, y: np.broadcast_arrays(x, y), X[:1].copy(), INTS[:3, :1].copy())
add(sg.meshgrid, lambda x, y, z: np.meshgrid(x, y, z), F, X[0], SMALL)
add(sg.meshgrid, lambda x, y: np.meshgrid(x, y, indexing="ij"), F, SMALL, indexing="ij")
add(sg.linspace, lambda a, b, n: np.linspace(a, b, n), X, X + 1, 5)
add(sg.linspace, lambda a, b, n: np.linspace(a, b, n, axis=-1), F, 2.0, 7, axis=-1)
add(sg.full_like, lambda x, v: np.full_like(x, v), X, 3.5)
add(sg.convert_to_tensor, np.array([[1.0, 2.0], [3.0, 4.0]]), [[np.float64(1.0), 2.0], [3.0, 4.0]])
add(sg.convert_to_tensor, lambda x: x, INTS)
add(sg.rank, np.array(3, np.int32), B)
add(sg.shape, np.array([2, 3, 4], np.int32), B)
add(sg.shape, lambda x: np.array(x.shape), B, out_type="int64")
add(sg.astype, lambda x, dtype: x.astype(dtype), 3 * X, "int32")
add(sg.astype, lambda x, dtype: x.astype(dtype), INTS, "float32")
add(sg.positive, np.positive, X)
add(sg.bitwise_invert, np.invert, INTS)
add(sg.bitwise_invert, np.invert, TRUTH)
add(sg.divide_no_nan, lambda x, y: np.divide(x, y, out=np.zeros_like(x), where=y != 0), X, X * (X > 0))
add(
    sg.divide_no_nan, np.array([0.0, np.inf, 0.5]), np.array([np.nan, np.inf, 1.0]), np.array([0.0, 2.0, 2.0])
)
add(sg.sequence_mask, lambda n, most: np.arange(most) < n[..., None], np.array([[1, 3], [0, 7]]), 5)
add(sg.invert_permutation, lambda p: np.argsort(p), np.array([3, 4, 0, 2, 1]))
add(sg.unravel_index, lambda i, d: narrow(np.unravel_index(i, d)), SMALL, [2, 3])
add(
    sg.ravel_multi_index,
    lambda i, d: narrow(np.ravel_multi_index(i, d)),
    [SMALL, SMALL % 2],
    [3, 2],
)

# ------------------------------------------------------------------------------------------ along an axis

add(sg.cummax, np.maximum.accumulate, X)
add(sg.cummax, lambda x: np.maximum.accumulate(x[::-1])[::-1], SPECIAL, reverse=True)
add(sg.cummin, lambda x, axis: np.minimum.accumulate(x, axis), INTS, 1)
add(sg.cummin, np.minimum.accumulate, SPECIAL)
add(sg.cumulative_sum, lambda x: np.cumsum(x, 1), X, axis=1)
add(sg.cumulative_sum, lambda x: np.concatenate([[0.0], np.cumsum(x)]), F, include_initial=True)
add(sg.cumulative_prod, lambda x: np.cumprod(x, -1), X, axis=-1)
add(sg.cumulative_prod, lambda x: np.concatenate([[1.0], np.cumprod(x)]), F, include_initial=True)
add(sg.cumulative_logsumexp, lambda x, axis: np.logaddexp.accumulate(x, axis), 300 * X, 1)
add(
    sg.cumulative_logsumexp,
    lambda x: np.concatenate([[-np.inf], np.logaddexp.accumulate(x[:0:-1])])[::-1],
    F,
    exclusive=True,
    reverse=True,
)
add(sg.reduce_euclidean_norm, lambda x: np.linalg.norm(x, axis=1), X, axis=1)
add(sg.reduce_euclidean_norm, lambda x: np.linalg.norm(x).reshape(1, 1), X, keepdims=True)
add(sg.count_nonzero, lambda x, axis: np.count_nonzero(x, axis), INTS, 1)
add(sg.count_nonzero, lambda x: np.array(np.count_nonzero(x)), SPECIAL)
for _axis, _reverse in ((0, False), (1, True)):
    add(
        sg.associative_scan,
        lambda f, x, r, axis: jax.lax.associative_scan(lambda a, b: a * b, jnp.asarray(x), r, axis),
        lambda a, b: a * b,
        X,
        _reverse,
        _axis,
    )

# ------------------------------------------------------------------------------------ searched and counted

add(sg.searchsorted, lambda a, v: narrow(np.searchsorted(a, v)), SORTED, X)
add(
    sg.searchsorted,
    lambda a, v, side: narrow(np.searchsorted(a, v, side)),
    SORTED,
    np.array([0.0, np.nan, -9.0, 2.0]),
    "right",
)
add(sg.digitize, lambda x, bins: narrow(np.digitize(x, bins)), X, SORTED)
add(sg.digitize, lambda x, bins, right: narrow(np.digitize(x, bins, right)), X, SORTED[::-1].copy(), True)
add(sg.bincount, lambda x, w: np.bincount(x, w, 4), SMALL, F[:5].copy(), minlength=4, maxlength=4)
add(sg.bincount, lambda x: narrow(np.bincount(x, minlength=3)), SMALL, size=3)
add(
    sg.confusion_matrix,
    lambda a, b, n: narrow([[np.sum((a == i) & (b == j)) for j in range(n)] for i in range(n)]),
    SMALL,
    (SMALL + 1) % 3,
    3,
)
add(
    sg.histogram_fixed_width,
    lambda x, ends, n: narrow(np.histogram(np.clip(x, *ends), n, ends)[0]),
    X,
    np.array([-0.7, 0.9]),
    5,
)
add(
    sg.histogram_fixed_width_bins,
    lambda x, ends, n: narrow(np.clip(np.floor((x - ends[0]) / (ends[1] - ends[0]) * n), 0, n - 1)),
    X,
    np.array([-0.7, 0.9]),
    5,
)
add(sg.isin, lambda x, y: np.isin(x, y), INTS, OTHERS)
add(sg.isin, lambda x, y: np.isin(x, y, invert=True), SPECIAL, SPECIAL, invert=True)
add(sg.nonzero, lambda x: jnp.nonzero(x, size=30, fill_value=-1), INTS, size=30, fill_value=-1)
add(sg.argwhere, lambda x: jnp.argwhere(x, size=4), TRUTH, size=4)
add(sg.boolean_mask, lambda x, m, axis: x[:, m], B, np.array([True, False, True]), 1, size=2)
add(sg.boolean_mask, lambda x, m: x[m], X, TRUTH, size=int(TRUTH.sum()))
add(sg.unique_values, lambda x: jnp.unique(x, size=9), INTS, size=9)
add(
    sg.unique_counts,
    lambda x: jnp.unique(x, return_counts=True, size=9, fill_value=-9),
    INTS,
    size=9,
    fill_value=-9,
)
add(sg.unique_inverse, lambda x: np.unique(x, return_inverse=True), INTS, size=len(np.unique(INTS)))
add(
    sg.unique_all,
    lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True),
    INTS,
    size=len(np.unique(INTS)),
)
add(sg.unique, (np.array([4, 1, 2]), np.array([0, 0, 1, 2, 1], np.int32)), np.array([4, 4, 1, 2, 1]), size=3)
add(
    sg.unique_with_counts,
    (np.array([4, 1, 2]), np.array([0, 0, 1, 2, 1]), np.array([2, 2, 1])),
    np.array([4, 4, 1, 2, 1]),
    "int64",
    size=3,
)
for _size in (2, 6):
    _like = {"size": _size, "fill_value": 7}
    add(sg.union1d, lambda x, y, s=_size: jnp.union1d(x, y, size=s, fill_value=7), SMALL, OTHERS, **_like)
    add(sg.setdiff1d, lambda x, y, s=_size: jnp.setdiff1d(x, y, size=s, fill_value=7), SMALL, OTHERS, **_like)
    add(
        sg.intersect1d,
        lambda x, y, s=_size: jnp.intersect1d(x, y, size=s, fill_value=7),
        SMALL,
        OTHERS,
        **_like,
    )

# ---------------------------------------------------------------------------------------- parts and updates

add(sg.slice, lambda x, begin, size: x[1:3, 2:], X, [1, 2], [2, -1])
add(sg.dynamic_slice, lambda x, at, size: jax.lax.dynamic_slice(x, at, size), X, np.array([1, 9]), (2, 2))
add(
    sg.dynamic_update_slice,
    lambda x, u, at: jax.lax.dynamic_update_slice(x, u, at),
    X,
    np.ones((2, 2)),
    np.array([-1, 1]),
)
add(sg.gather_nd, lambda x, at: x[tuple(at.T)], B, np.array([[0, 2], [1, 1], [0, 0]]))
add(
    sg.gather_nd,
    lambda x, at: np.array([x[i, at[i, 0]] for i in range(2)]),
    B,
    np.array([[2], [0]]),
    batch_dims=1,
)
AT, UPDATES = np.array([[0, 1], [2, 3], [0, 1]]), np.array([2.0, -3.0, 5.0])


def updated(ufunc: Any, start: Any = None) -> Any:
    def expected(x: Any, at: Any, u: Any) -> Any:
        found = x.copy() if start is None else np.full(x.shape, start)
        ufunc.at(found, tuple(at.T), u)
        return found

    return expected


add(sg.tensor_scatter_nd_add, updated(np.add), X, AT, UPDATES)
add(sg.tensor_scatter_nd_sub, updated(np.subtract), X, AT, UPDATES)
add(sg.tensor_scatter_nd_max, updated(np.maximum), X, AT, UPDATES)
add(sg.tensor_scatter_nd_min, updated(np.minimum), X, AT, UPDATES)


def put(x: Any, at: Any, u: Any) -> Any:
    found = x.copy()
    for place, value in zip(at, u, strict=True):
        found[tuple(place)] = value
    return found


add(sg.tensor_scatter_nd_update, put, X, AT, UPDATES)
add(sg.scatter_nd, lambda at, u, shape: updated(np.add)(np.zeros(shape), at, u), AT, UPDATES, (3, 4))
ALONG, VALUES = np.array([1, 3, 1]), normal(3, 3, seed=5)


def along(ufunc: Any) -> Any:
    def expected(x: Any, at: Any, u: Any, axis: int) -> Any:
        assert axis == 1
        found = x.copy()
        ufunc.at(found, (slice(None), at), u)
        return found

    return expected


add(sg.scatter_max, along(np.maximum), X, ALONG, VALUES, 1)
add(sg.scatter_min, along(np.minimum), X, ALONG, VALUES, 1)
add(sg.scatter_multiply, along(np.multiply), X, ALONG, VALUES, 1)
add(sg.scatter_update, lambda x, at, u: put(x, at[:, None], u), X, np.array([2, 0, 2]), normal(3, 4, seed=6))

IDS, MIXED = np.array([0, 0, 1, 3, 3]), np.array([3, -1, 0, 7, 3])


def segments(reduce: Any, empty: float) -> Any:
    """What is computed of each segment's rows; for one without, as in JAX."""

    def expected(x: Any, ids: Any, *_: Any) -> Any:
        return np.array([reduce(x[ids == i], 0) if np.any(ids == i) else empty + 0 * x[0] for i in range(4)])

    return expected


ROWS = normal(5, 2, seed=7)
for _name, _reduce, _empty, _unsorted in (
    ("sum", np.sum, 0.0, 0.0),
    ("prod", np.prod, 1.0, 1.0),
    ("mean", np.mean, 0.0, 0.0),
    ("max", np.max, 0.0, -np.inf),
    ("min", np.min, 0.0, np.inf),
):
    add(getattr(sg, f"segment_{_name}"), segments(_reduce, _empty), ROWS, IDS, num_segments=4)
    add(getattr(sg, f"unsorted_segment_{_name}"), segments(_reduce, _unsorted), ROWS, MIXED, 4)
add(
    sg.unsorted_segment_sqrt_n,
    segments(lambda rows, axis: np.sum(rows, axis) / np.sqrt(len(rows)), 0.0),
    ROWS,
    MIXED,
    4,
)


@CASES.compared
def test_functions_that_move_count_and_search(engine: str, name: str) -> None:
    CASES.check(engine, name)


@each_engine
@values_of(sg.at)
def test_what_at_changes_is_what_numpy_changes(engine: str) -> None:
    expected = X.copy()
    expected[[0, 2], 1:] *= 3.0
    np.testing.assert_array_equal(by(engine, lambda x: sg.at(x)[[0, 2], 1:].multiply(3.0), X), expected)
    expected = X.copy()
    np.add.at(expected, (SMALL,), 1.0)
    np.testing.assert_allclose(by(engine, lambda x, at: sg.at(x)[at].add(1.0), X, SMALL), expected)


@values_of(
    sg.isdtype,
    sg.finfo,
    sg.iinfo,
    sg.can_cast,
    sg.result_type,
    sg.broadcast_shapes,
    sg.broadcast_static_shape,
)
def test_what_is_said_of_dtypes_and_shapes_is_what_numpy_says() -> None:
    names = [
        "bool",
        "int8",
        "uint8",
        "int32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
    ]
    for name in names:
        for kind in ("bool", "signed integer", "integral", "real floating", "complex floating", "numeric"):
            assert sg.isdtype(name, kind) == np.isdtype(np.dtype(name), kind)
        for other in names:
            assert sg.can_cast(name, other) == np.can_cast(name, other)
            assert sg.result_type(name, other).numpy == np.result_type(name, other)
    for name in ("float16", "float32", "float64"):
        found, expected = sg.finfo(name), np.finfo(name)
        assert (found.bits, found.eps, found.max, found.min) == (
            expected.bits,
            expected.eps,
            expected.max,
            expected.min,
        )
        assert found.smallest_normal == expected.smallest_normal
    for name in ("int8", "uint8", "int64", "uint64"):
        assert (sg.iinfo(name).min, sg.iinfo(name).max) == (np.iinfo(name).min, np.iinfo(name).max)
    assert sg.broadcast_shapes((2, 1), (3,), ()) == np.broadcast_shapes((2, 1), (3,), ())
    assert sg.broadcast_static_shape([2, 1], [1, 3]) == np.broadcast_shapes((2, 1), (1, 3))


@values_of(sg.from_dlpack)
def test_arrays_of_other_libraries_are_the_same_elements() -> None:
    np.testing.assert_array_equal(sg.from_dlpack(X), X)
    np.testing.assert_array_equal(sg.from_dlpack(jnp.arange(5)), np.arange(5))


@values_of(sg.map_structure)
def test_structures_are_mapped_as_jax_maps_them() -> None:
    trees = {"a": [X, 2.0], "b": (SMALL,)}, {"a": [X, 1.0], "b": (SMALL,)}
    found = sg.map_structure(lambda x, y: np.asarray(x + y), *trees)
    expected = jax.tree.map(lambda x, y: np.asarray(x + y), *trees)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
