"""Functions that order, count, repeat, move and search: values from elsewhere, derivatives, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import ENGINES, each_engine

import stopgrad as sg
from stopgrad.base.structure import flatten

RNG = np.random.default_rng(11)
D = RNG.normal(size=(3, 4))
B = RNG.normal(size=(2, 3, 4))
F = RNG.normal(size=6)
WHOLE = RNG.integers(-3, 4, (4, 5))
SMALL = np.array([2, 0, 2, 1, 0], np.int32)
TIES = np.array([3.0, 1.0, 3.0, -0.0, 0.0, 1.0])
WEIRD = np.array([np.nan, 1.0, np.inf, -np.inf, np.nan, 1.0])

# ------------------------------------------------------------------------------------------ values of NumPy

NUMPY: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "roll": (lambda: sg.roll(B, [1, -5], [0, 2]), lambda: np.roll(B, [1, -5], [0, 2])),
    "roll flat": (lambda: sg.roll(D, 5, None), lambda: np.roll(D, 5)),
    "roll twice": (lambda: sg.roll(D, [1, 1], [0, 0]), lambda: np.roll(D, [1, 1], [0, 0])),
    "repeat": (lambda: sg.repeat(D, [0, 2, 1], 0), lambda: np.repeat(D, [0, 2, 1], 0)),
    "repeat flat": (lambda: sg.repeat(D, 3), lambda: np.repeat(D, 3)),
    "flip": (lambda: sg.flip(B, (0, -1)), lambda: np.flip(B, (0, -1))),
    "moveaxis": (lambda: sg.moveaxis(B, [0, 2], [-1, 0]), lambda: np.moveaxis(B, [0, 2], [-1, 0])),
    "swapaxes": (lambda: sg.swapaxes(B, 0, -1), lambda: np.swapaxes(B, 0, -1)),
    **{
        f"rot90 by {k}": (lambda k=k: sg.rot90(B, k, (2, 1)), lambda k=k: np.rot90(B, k, (2, 1)))
        for k in (-1, 0, 1, 2, 3, 6)
    },
    "take": (lambda: sg.take(B, WHOLE % 3 - 1, 1), lambda: np.take(B, WHOLE % 3 - 1, 1)),
    "take flat": (lambda: sg.take(D, [-1, 5]), lambda: np.take(D, [-1, 5])),
    "diff": (lambda: sg.diff(D, 2, 0), lambda: np.diff(D, 2, 0)),
    "diff to nothing": (lambda: sg.diff(D, 5), lambda: np.diff(D, 5)),
    "diff of booleans": (lambda: sg.diff(WHOLE > 0), lambda: np.diff(WHOLE > 0)),
    "diff between": (
        lambda: sg.diff(D, prepend=0.0, append=D[:, :2]),
        lambda: np.diff(D, prepend=0.0, append=D[:, :2]),
    ),
    "unravel_index": (
        lambda: sg.unravel_index(SMALL, [2, 3]),
        lambda: np.stack(np.unravel_index(SMALL, [2, 3])).astype(np.int32),
    ),
    "ravel_multi_index": (
        lambda: sg.ravel_multi_index([SMALL, SMALL % 2], [3, 2]),
        lambda: np.ravel_multi_index((SMALL, SMALL % 2), (3, 2)).astype(np.int32),
    ),
    "linspace": (lambda: sg.linspace(F, 2.0, 7, axis=-1), lambda: np.linspace(F, 2.0, 7, axis=-1)),
    "linspace of one": (lambda: sg.linspace(D, D + 1, 1), lambda: np.linspace(D, D + 1, 1)),
    "meshgrid": (lambda: sg.meshgrid(F, D[0], SMALL), lambda: np.meshgrid(F, D[0], SMALL)),
    "meshgrid ij": (
        lambda: sg.meshgrid(F, D[0], indexing="ij"),
        lambda: np.meshgrid(F, D[0], indexing="ij"),
    ),
    "searchsorted": (
        lambda: sg.searchsorted(np.sort(TIES), D, out_type="int64"),
        lambda: np.searchsorted(np.sort(TIES), D),
    ),
    "searchsorted, right, NaN": (
        lambda: sg.searchsorted(np.sort(WEIRD), WEIRD, "right", "int64"),
        lambda: np.searchsorted(np.sort(WEIRD), WEIRD, "right"),
    ),
    "digitize": (
        lambda: sg.digitize(WHOLE, [-2, 0, 1]).astype(np.int64),
        lambda: np.digitize(WHOLE, [-2, 0, 1]),
    ),
    "digitize, two that fall": (
        lambda: sg.digitize(WHOLE, [1, -2]).astype(np.int64),
        lambda: np.digitize(WHOLE, [1, -2]),
    ),
    "digitize, falling": (
        lambda: sg.digitize(WHOLE, [1, 0, -2], True).astype(np.int64),
        lambda: np.digitize(WHOLE, [1, 0, -2], True),
    ),
    "bincount": (lambda: sg.bincount(SMALL, F[:5], 5), lambda: np.bincount(SMALL, F[:5], 5)),
    "cummax": (lambda: sg.cummax(WEIRD[1:4]), lambda: np.maximum.accumulate(WEIRD[1:4])),
    "cummin with NaN": (lambda: sg.cummin(WEIRD), lambda: np.minimum.accumulate(WEIRD)),
    "cumulative_logsumexp": (
        lambda: sg.cumulative_logsumexp(D * 300, 1),
        lambda: np.logaddexp.accumulate(D * 300, 1),
    ),
    "count_nonzero": (lambda: sg.count_nonzero(WHOLE, 1), lambda: np.count_nonzero(WHOLE, 1)),
    "count_nonzero of NaN": (lambda: sg.count_nonzero(WEIRD), lambda: np.array(np.count_nonzero(WEIRD))),
    "nonzero": (lambda: sg.nonzero(WHOLE), lambda: np.nonzero(WHOLE)),
    "argwhere": (lambda: sg.argwhere(WHOLE > 0), lambda: np.argwhere(WHOLE > 0)),
    "where": (lambda: sg.where(WHOLE > 0), lambda: np.argwhere(WHOLE > 0)),
    "boolean_mask": (lambda: sg.boolean_mask(B, D > 0, 1), lambda: B[:, D > 0]),
    "unique_values": (lambda: sg.unique_values(WEIRD), lambda: np.unique(WEIRD, equal_nan=False)),
    "unique_all": (
        lambda: tuple(sg.unique_all(WHOLE)),
        lambda: np.unique(WHOLE, return_index=True, return_inverse=True, return_counts=True),
    ),
    "isin": (lambda: sg.isin(WHOLE, SMALL, invert=True), lambda: np.isin(WHOLE, SMALL, invert=True)),
    "isin with NaN": (lambda: sg.isin(WEIRD, WEIRD), lambda: np.isin(WEIRD, WEIRD)),
    "setdiff1d": (lambda: sg.setdiff1d(WHOLE, SMALL), lambda: np.setdiff1d(WHOLE, SMALL)),
    "intersect1d": (lambda: sg.intersect1d(WHOLE, SMALL), lambda: np.intersect1d(WHOLE, SMALL)),
    "union1d": (lambda: sg.union1d(WHOLE, SMALL), lambda: np.union1d(WHOLE, SMALL)),
    "convert_to_tensor": (
        lambda: sg.convert_to_tensor([[np.float64(1.0), 2.0], [3.0, 4.0]]),
        lambda: np.array([[1.0, 2.0], [3.0, 4.0]]),
    ),
    "broadcast_tensors": (
        lambda: sg.broadcast_tensors([D[:1], D[:, :1]]),
        lambda: list(np.broadcast_arrays(D[:1], D[:, :1])),
    ),
}


@pytest.mark.parametrize("name", NUMPY)
def test_values_of_numpy(name: str) -> None:
    ours, theirs = NUMPY[name]
    found, expected = flatten(ours())[0], flatten(theirs())[0]
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_values_of_jax_where_size_says_how_many() -> None:
    with jax.enable_x64(True):
        for size in (0, 3, 9, 30):
            for a, b in zip(
                sg.nonzero(WHOLE, size=size, fill_value=-1),
                jnp.nonzero(WHOLE, size=size, fill_value=-1),
                strict=True,
            ):
                np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(sg.unique_values(WHOLE, size=size), jnp.unique(WHOLE, size=size))
            np.testing.assert_array_equal(
                sg.unique_counts(WHOLE, size=size, fill_value=-9).counts,
                jnp.unique(WHOLE, size=size, return_counts=True)[1],
            )
        for size in (2, 5):
            np.testing.assert_array_equal(
                sg.intersect1d(WHOLE, SMALL, size=size, fill_value=7),
                jnp.intersect1d(WHOLE, SMALL, size=size, fill_value=7),
            )
            np.testing.assert_array_equal(
                sg.setdiff1d(WHOLE, SMALL, size=size, fill_value=7),
                jnp.setdiff1d(WHOLE, SMALL, size=size, fill_value=7),
            )
        for length in (3, 8):
            found = sg.function(lambda x, n, length=length: sg.repeat(x, n, 0, total_repeat_length=length))
            np.testing.assert_array_equal(
                found(D, np.array([2, 0, 3])),
                jnp.repeat(jnp.asarray(D), jnp.array([2, 0, 3]), axis=0, total_repeat_length=length),
            )
            with pytest.raises(sg.DTypeError, match=r"\(C2\) takes integers as repeats, not float64"):
                found(D, np.array([2.0, 0.0, 3.0]))


def test_values_of_tensorflow() -> None:
    """Of TensorFlow 2.21's documentation of these functions."""
    c = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [4, 3, 2, 1]])
    assert sg.segment_sum(c, [0, 0, 1]).tolist() == [[6, 8, 10, 12], [4, 3, 2, 1]]
    assert sg.segment_mean(c * 1.0, [0, 0, 1]).tolist() == [[3.0, 4.0, 5.0, 6.0], [4, 3, 2, 1]]
    assert sg.segment_max(c, [0, 0, 2]).tolist() == [[5, 6, 7, 8], [0, 0, 0, 0], [4, 3, 2, 1]]
    assert sg.segment_min(c, [0, 0, 1]).tolist() == [[1, 2, 3, 4], [4, 3, 2, 1]]
    assert sg.segment_prod(c, [0, 0, 1]).tolist() == [[5, 12, 21, 32], [4, 3, 2, 1]]
    assert sg.unsorted_segment_sum(c, [0, 1, 0], 2).tolist() == [[5, 5, 5, 5], [5, 6, 7, 8]]
    y, idx, count = sg.unique_with_counts([1, 1, 2, 4, 4, 4, 7, 8, 8])
    assert (y.tolist(), idx.tolist(), count.tolist()) == (
        [1, 2, 4, 7, 8],
        [0, 0, 1, 2, 2, 2, 3, 4, 4],
        [2, 1, 3, 1, 2],
    )
    assert sg.unique([4, 4, 1, 2, 1]).y.tolist() == [4, 1, 2]
    assert sg.confusion_matrix([1, 2, 4], [2, 2, 4]).tolist() == [
        [0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
    ]
    assert sg.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15], [0.0, 5.0], nbins=5).tolist() == [
        2,
        1,
        1,
        0,
        2,
    ]
    assert sg.sequence_mask([[1, 3], [2, 0]]).tolist() == [
        [[True, False, False], [True, True, True]],
        [[True, True, False], [False, False, False]],
    ]
    assert sg.invert_permutation([3, 4, 0, 2, 1]).tolist() == [2, 4, 3, 0, 1]
    assert sg.bincount([[1, 2, 3, 0], [0, 0, 1, 2]], axis=-1).tolist() == [[1, 1, 1, 1], [2, 1, 1, 0]]
    assert sg.bincount([1, 1, 2, 3, 2, 4, 4, 5], minlength=3, maxlength=3).tolist() == [0, 2, 2]
    top = sg.top_k([1, 2, 98, 1, 1, 99, 3, 1, 3, 96, 4, 1], k=3)
    assert (top.values.tolist(), top.indices.tolist()) == ([99, 98, 96], [5, 2, 9])
    np.testing.assert_allclose(sg.cumulative_logsumexp([2.0, 2.0], exclusive=True), [-np.inf, 2.0])
    assert sg.shape(np.zeros((2, 0), np.int8), "int64").dtype == np.int64


CHANGED: list[tuple[Any, str]] = [
    (1.5, "int32"),
    ([1.5, 2], "int32"),
    (np.array([0.5]), "uint8"),
    (np.array([2**40]), "int32"),
    (np.array([-1]), "uint8"),
    (np.array([np.nan, 1.0]), "int64"),
    (2, "bool"),
    (np.array([1j, 2.0]), "float32"),
    (np.complex64(1j), "int32"),
    (300, "uint8"),
    (float("nan"), "int8"),
    (1j, "float64"),
]


@pytest.mark.parametrize(("value", "dtype"), CHANGED, ids=str)
def test_numbers_that_a_dtype_cannot_hold_are_refused(value: Any, dtype: str) -> None:
    with sg.Graph().as_default():
        for make in (sg.constant, sg.parameter):
            with pytest.raises(sg.DTypeError, match=f"cannot become a tensor of {dtype}"):
                make(value, dtype=dtype)


def test_numbers_that_a_dtype_holds_or_rounds_are_taken() -> None:
    for value, dtype in (
        (2.0, "int32"),
        ([1.0, -3], "int8"),
        (np.array([True]), "int32"),
        (1, "bool"),
        (np.array([2.0 + 0j]), "float32"),
        (np.array([0.1]), "float32"),
        (0.1, "bfloat16"),
        (2**24 + 1, "float32"),
    ):
        with sg.Graph().as_default():
            x = sg.constant(value, dtype=dtype)
            made = sg.Session(engine="numpy").run(x)
        assert x.dtype.name == dtype
        np.testing.assert_allclose(made.astype(np.complex128), value, rtol=1e-2)


def test_bins_that_are_met_once_are_met() -> None:
    np.testing.assert_array_equal(sg.bincount(np.array([1, 1, 2]), binary_output=True), [0, 1, 1])


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble"])
def test_numbers_of_a_dtype_that_there_is_not_are_refused(dtype: str) -> None:
    if np.dtype(dtype).itemsize > 2 * 8:
        with sg.Graph().as_default(), pytest.raises(sg.DTypeError, match="is no element type of stopgrad"):
            sg.constant(np.ones(2, dtype))


def test_what_says_that_it_is_longer_than_memory_is_refused() -> None:
    class Endless:
        def __len__(self) -> int:
            return 10**18

        def __getitem__(self, i: int) -> float:
            return 1.0

    with pytest.raises(sg.DTypeError, match="there is not so much memory"), sg.Graph().as_default():
        sg.parameter(Endless())


def test_numbers_beside_tensors_become_tensors_of_the_dtype_that_is_asked_for() -> None:
    made = sg.convert_to_tensor([[np.float64(1.5), 2], [3, np.float64(4.0)]], sg.float64)
    assert (made.dtype, made.tolist()) == (np.float64, [[1.5, 2.0], [3.0, 4.0]])
    made = sg.convert_to_tensor([np.ones(2, np.float16), [1.5, 2.5]], sg.float16)
    assert (made.dtype, made.tolist()) == (np.float16, [[1.0, 1.0], [1.5, 2.5]])
    assert sg.convert_to_tensor([np.float16(1.5), 2.0]).dtype == np.float16
    with pytest.raises(sg.DTypeError):
        sg.convert_to_tensor([np.float32(1.5), np.float32(2.0)], sg.float64)
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float64, name="x")
        made = sg.convert_to_tensor([x, 2], sg.float64)
        assert sg.Session().run(made, {x: 0.5}).tolist() == [0.5, 2.0]
        assert sg.convert_to_tensor([x, 2.0]).dtype is sg.float64


def test_running_sums_of_exponentials_read_from_a_text_have_an_axis_that_exists() -> None:
    text = "x: float64[3] = Placeholder(dtype=float64, shape=(3,))\n"
    text += "y: float64[3] = CumulativeLogsumexp(x, axis={}, reverse=False)"
    assert sg.Graph.from_text(text.format(0)).output("y").shape == (3,)
    with pytest.raises(sg.GraphError, match=r"\(C2\) axis 1 does not exist in 1 dimension"):
        sg.Graph.from_text(text.format(1))


def test_a_mean_of_no_elements_and_the_extremes_of_none() -> None:
    ids = [0, 2]
    np.testing.assert_array_equal(sg.unsorted_segment_mean(F[:2], ids, 3), [F[0], 0, F[1]])
    np.testing.assert_array_equal(sg.unsorted_segment_max(F[:2], ids, 3), [F[0], -np.inf, F[1]])
    np.testing.assert_array_equal(sg.unsorted_segment_min(SMALL[:2], ids, 3), [2, 2**31 - 1, 0])
    np.testing.assert_array_equal(sg.unsorted_segment_prod(F[:2], ids, 3), [F[0], 1, F[1]])
    assert sg.segment_sum(np.zeros((0, 2)), np.zeros(0, np.int32)).shape == (0, 2)


@each_engine
def test_sorted_sequences_in_every_dtype(engine: str) -> None:
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64"):
        dtype = sg.zeros([1], name).dtype
        sequence, values = np.array([0, 1, 1, 3, 100]).astype(dtype), np.array([1, 2, 0, 120]).astype(dtype)
        for side, expected in (("left", [1, 3, 0, 5]), ("right", [3, 3, 1, 5])):
            run = sg.function(lambda s, v, side=side: sg.searchsorted(s, v, side), engine=engine)
            assert run(sequence, values).tolist() == expected, name


# ------------------------------------------------------------------------------------------------ derivatives

IDS = np.array([0, 2, 0, 5, 2, 0])
DERIVED: dict[str, tuple[Callable[..., Any], Any]] = {
    "roll": (lambda x: sg.roll(x, 2, 1), D),
    "repeat": (lambda x: sg.repeat(x, [1, 0, 2], 0), D),
    "diff": (lambda x: sg.diff(x, 2) ** 2, F),
    "linspace": (lambda x: sg.linspace(x, x**2, 4) ** 2, F),
    "boolean_mask": (lambda x: sg.boolean_mask(x, x > 0, size=4) ** 2, F),
    "unique": (lambda x: sg.unique(x, size=6).y ** 2, F),
    "segment_mean": (lambda x: sg.segment_mean(x, [0, 0, 2]) ** 2, D),
    "segment_max": (lambda x: sg.segment_max(x, [0, 0, 2]) ** 2, D),
    "unsorted_segment_prod": (lambda x: sg.unsorted_segment_prod(x, IDS, 3), F),
    "unsorted_segment_prod at 0": (lambda x: sg.unsorted_segment_prod(x, IDS, 3), F * [1, 0, 0, 1, 1, 1]),
    "unsorted_segment_sqrt_n": (lambda x: sg.unsorted_segment_sqrt_n(x, IDS, 3) ** 2, F),
    "bincount": (lambda x: sg.bincount(IDS, x**2, size=4) ** 2, F),
    "cumulative_logsumexp": (lambda x: sg.cumulative_logsumexp(x, exclusive=True, reverse=True)[:-1], F),
    "cummax": (lambda x: sg.cummax(x) ** 2, F),
    "divide_no_nan": (lambda x: sg.divide_no_nan(1.0, x * [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]), F),
    "dynamic_slice": (lambda x: sg.dynamic_slice(x, [np.int32(9), np.int32(1)], [2, 2]) ** 2, D),
    "associative_scan": (lambda x: sg.associative_scan(sg.multiply, x), F),
    "gather_nd": (lambda x: sg.gather_nd(x, [[0, 1], [0, 1], [2, -1]]) ** 2, D),
    "scatter_nd": (lambda x: sg.scatter_nd([[1], [1], [0], [7], [3], [-1]], x, [5]) ** 3, F),
    "top_k": (lambda x: sg.top_k(x, 2).values ** 2, D),
}


@each_engine
@pytest.mark.parametrize("name", DERIVED)
def test_derivatives_are_those_of_finite_differences(name: str, engine: str) -> None:
    f, x = DERIVED[name]
    generator = np.random.default_rng(2)
    weights = generator.normal(size=np.shape(sg.function(f)(x)))
    direction = generator.normal(size=x.shape)
    second: Any = generator.normal(size=x.shape)
    total: Any = lambda v: sg.reduce_sum(f(v) * weights)
    slope = sg.function(sg.grad(total), engine=engine)
    turn = sg.function(sg.grad(lambda v: sg.reduce_sum(sg.grad(total)(v) * second)), engine=engine)
    value, step = sg.function(total, engine="numpy"), 1e-6
    near = [x + s * step * direction for s in (1, -1)]
    expected = (value(near[0]) - value(near[1])) / (2 * step)
    np.testing.assert_allclose(np.sum(slope(x) * direction), expected, rtol=1e-6, atol=1e-7)
    expected = np.sum((slope(near[0]) - slope(near[1])) * second) / (2 * step)
    np.testing.assert_allclose(np.sum(turn(x) * direction), expected, rtol=1e-6, atol=1e-6)


def test_where_zero_wins_the_slopes_are_those_of_tensorflow() -> None:
    """tf.math.multiply_no_nan's gradient for y is x · g, also where y is 0; divide_no_nan's is 0 there."""
    x, y = np.array([2.0, np.inf, 3.0]), np.array([0.0, 0.0, 4.0])
    dx, dy = sg.grad(lambda a, b: sg.reduce_sum(sg.multiply_no_nan(a, b)), argnums=(0, 1))(x, y)
    np.testing.assert_array_equal(dx, [0, 0, 4])
    np.testing.assert_array_equal(dy, [2, np.inf, 3])
    dx, dy = sg.grad(lambda a, b: sg.reduce_sum(sg.divide_no_nan(a, b)), argnums=(0, 1))(x, y)
    np.testing.assert_array_equal(dx, [0, 0, 0.25])
    np.testing.assert_array_equal(dy, [0, 0, -3 / 16])


@each_engine
def test_the_slope_of_running_extremes_goes_to_the_latest_that_ties(engine: str) -> None:
    slope = sg.function(sg.grad(lambda x: sg.reduce_sum(sg.cummax(x))), engine=engine)
    np.testing.assert_array_equal(slope(np.array([1.0, 1.0, 0.0, 2.0])), [1, 2, 0, 1])


def test_log_sums_far_apart_have_finite_slopes() -> None:
    x = np.array([-1000.0, 0.0, 1000.0, -np.inf, 1000.0])
    slope = sg.grad(lambda v: sg.reduce_sum(sg.cumulative_logsumexp(v)))(x)
    np.testing.assert_allclose(slope, [1, 1, 2.5, 0, 0.5])


# --------------------------------------------------------------------------------------------- batches, sizes


@each_engine
@pytest.mark.parametrize(
    "f",
    [
        lambda x: sg.unique(x, size=3).y,
        lambda x: sg.unique_all(x, size=4).counts,
        lambda x: sg.nonzero(x > 0, size=4)[0],
        lambda x: sg.boolean_mask(x, x > 0, size=3),
        lambda x: sg.searchsorted(sg.sort(x), x),
        lambda x: sg.unsorted_segment_max(x, np.array([0, 1, 0, 2]), 3),
        lambda x: sg.segment_mean(x, np.array([0, 0, 1, 1])),
        lambda x: sg.bincount(sg.cast(sg.abs(x), sg.int32), size=4),
        lambda x: sg.isin(x, x[:2]),
        lambda x: sg.roll(x, sg.cast(x[0], sg.int32), 0),
        lambda x: sg.cummin(x),
        lambda x: sg.associative_scan(sg.add, x),
        lambda x: sg.repeat(x, 2),
        lambda x: sg.digitize(x, np.array([-1.0, 0.0, 1.0])),
    ],
)
def test_in_batches(f: Any, engine: str) -> None:
    x = np.random.default_rng(4).normal(size=(5, 4)).round()
    found = sg.function(sg.vmap(f), engine=engine)(x)
    one = sg.function(f)
    np.testing.assert_allclose(found, np.stack([one(row) for row in x]))


def test_symbolic_sizes() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, ["n"])
        made = [
            sg.roll(x, 1, 0),
            sg.shape(x),
            sg.repeat(x, 2),
            sg.unique(x, size=3).y,
            sg.nonzero(x > 0, size=2)[0],
            sg.cummax(x),
            sg.diff(x),
            sg.sort(x),
            sg.full_like(x, 2),
            sg.flip(x),
            sg.unique_all(x, size=2).inverse_indices,
            sg.cumulative_logsumexp(x, exclusive=True),
        ]
    value = np.array([1.0, -2.0, 1.0, 4.0])
    for engine in ENGINES:
        with sg.Session(graph, engine=engine) as session:
            found = session.run(made, {x: value})
        expected = [
            np.roll(value, 1),
            [4],
            np.repeat(value, 2),
            [1, -2, 4],
            [0, 2],
            [1, 1, 1, 4],
            [-3, 3, 3],
            [-2, 1, 1, 4],
            [2, 2, 2, 2],
            value[::-1],
            [1, 0, 1, 2],
            [-np.inf, *np.logaddexp.accumulate(value)[:-1]],
        ]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 11])
def test_associative_scans_are_those_of_jax(size: int, reverse: bool) -> None:
    x = np.random.default_rng(size).normal(size=(2, size, 2, 2))
    found = sg.associative_scan(sg.matmul, x, reverse, 1)
    with jax.enable_x64(True):
        expected = jax.lax.associative_scan(jnp.matmul, jnp.asarray(x), reverse=reverse, axis=1)
    np.testing.assert_allclose(found, expected)


def test_an_associative_scan_takes_structures() -> None:
    a, b = D, D + 1.0
    both = {"a": a, "b": b}
    made = sg.associative_scan(
        lambda p, q: {"a": q["a"] * p["a"], "b": q["a"] * p["b"] + q["b"]}, both, axis=1
    )
    np.testing.assert_allclose(made["b"], sg.linear_recurrence(a, b, axis=1))


def test_groups_run_what_they_hold_and_structures_map() -> None:
    with sg.Graph().as_default() as graph:
        w, v = sg.parameter(1.0), sg.parameter(2.0)
        both = sg.group(sg.assign(w, v), {"v": [sg.assign(v, w).op]})
    with sg.Session(graph) as session:
        assert session.run(both)
        assert (session.value(w), session.value(v)) == (2.0, 1.0)
    assert sg.map_structure(lambda x, y: x - y, {"a": [3, 4]}, {"a": [1, 1]}) == {"a": [2, 3]}
    assert sg.broadcast_static_shape([2, 1], [1, 3]) == (2, 3)


def test_a_group_runs_once_for_all_examples() -> None:
    for engine in ENGINES:
        doubled, ran = sg.function(sg.vmap(lambda x: (2.0 * x, sg.group(x, x > 0))), engine=engine)(D)
        np.testing.assert_array_equal(doubled, 2.0 * D)
        assert ran.tolist() == [True] * 3


def test_a_sum_of_many_updates_in_float16_is_rounded_once() -> None:
    data = np.full(4096, 0.1, np.float16)
    found = sg.unsorted_segment_sum(data, np.zeros(4096, np.int32), 1)
    np.testing.assert_array_equal(found, np.array([data.astype(np.float32).sum()], np.float16))


def test_what_numpy_does_of_integers_and_numbers_before_outputs() -> None:
    i, v = np.array([15, 25, -37, 4], np.int32), np.array([3.0, -2.0, 0.5])
    made = sg.function(lambda i, v: (i.round(-1), np.round(i, -2), divmod(7, v), divmod(i, 4)))(i, v)
    expected = (i.round(-1), np.round(i, -2), divmod(7, v), divmod(i, 4))
    for a, b in zip(flatten(made)[0], flatten(expected)[0], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_form_for_a_number_that_is_not_there_yet_is_refused() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [])
        assert f"{x}" == str(x)
        with pytest.raises(sg.GraphError, match=r"in the form '\.2f' of Placeholder(?s:.*)use sg\.print"):
            f"{x:.2f}"
