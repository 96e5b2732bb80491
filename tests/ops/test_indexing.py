"""Brackets mean what NumPy's mean, and ``x.at`` what JAX's does; gradients, batches, both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import ENGINES, each_engine
from hypothesis import given, settings, strategies as st

import stopgrad as sg

# --------------------------------------------------------------------------------- any index, as NumPy has it


@st.composite
def indexed(draw: Any) -> tuple[Any, Any]:
    """An array, and an index of it: numbers, slices, index arrays, masks, None, Ellipsis, booleans."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    x = np.arange(float(np.prod(shape))).reshape(shape)
    count = draw(st.integers(1, 2))

    def part(size: int) -> Any:
        def array(shape: Any) -> Any:
            entries = st.lists(
                st.integers(-size, size - 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
            )
            return entries.map(lambda v: np.reshape(np.array(v, np.int64), shape))

        ends = st.none() | st.integers(-size - 1, size + 1)
        mask = st.permutations([True] * min(count, size) + [False] * (size - min(count, size)))
        return draw(
            st.integers(-size, size - 1)
            | st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, -1, -2]))
            | st.sampled_from([(count,), (2, count), (2, 1), (1,), ()]).flatmap(array)
            | array((count,)).map(lambda a: a.tolist())
            | mask.map(np.array)
        )

    used = draw(st.integers(0, len(shape)))
    head = draw(st.integers(0, used))
    dots = draw(st.booleans()) or head < used
    index = [part(n) for n in shape[:head]]
    index += [Ellipsis] if dots else []
    index += [part(n) for n in shape[len(shape) - (used - head) :]] if dots else []
    for extra in draw(st.lists(st.sampled_from([None, None, None, True, False]), max_size=2)):
        index.insert(draw(st.integers(0, len(index))), extra)
    return x, tuple(index) if len(index) != 1 or draw(st.booleans()) else index[0]


@given(indexed())
@settings(max_examples=100, deadline=None)
def test_an_index_takes_and_changes_what_numpy_takes_and_changes(case: tuple[Any, Any]) -> None:
    x, index = case
    try:
        expected = x[index]
    except IndexError:
        with pytest.raises(sg.StopgradError):
            sg.at(x)[index].get()
        return
    found = sg.at(x)[index].get()
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    values = np.arange(float(expected.size)).reshape(expected.shape) + 0.5
    changed = x.copy()
    changed[index] = values
    np.testing.assert_array_equal(sg.at(x)[index].set(values), changed)
    for name, ufunc in (("add", np.add), ("multiply", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        changed = x.copy()
        ufunc.at(changed, index, values)
        np.testing.assert_allclose(getattr(sg.at(x)[index], name)(values), changed)


@given(indexed())
@settings(max_examples=15, deadline=None)
def test_index_arrays_may_be_tensors(case: tuple[Any, Any]) -> None:
    x, index = case
    parts = index if isinstance(index, tuple) else (index,)
    places = [i for i, p in enumerate(parts) if isinstance(p, np.ndarray) and p.dtype != bool]
    try:
        expected = x[index]
    except IndexError:
        return

    def take(v: Any, arrays: Any) -> Any:
        filled = list(parts)
        for i, a in zip(places, arrays, strict=True):
            filled[i] = a
        return v[tuple(filled)]

    for engine in ENGINES:
        found = sg.function(take, engine=engine)(x, [parts[i] for i in places])
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)


# -------------------------------------------------------------------------------------------- outside, empty


@each_engine
def test_traced_indices_count_from_the_end_and_choose_nothing_outside(engine: str) -> None:
    x = np.array([10.0, 20.0, 30.0])
    at = np.array([-1, -3, -4, 3, 0])
    for dtype in (np.int8, np.int32, np.int64):
        some = at.astype(dtype)
        run: Callable[..., Any] = lambda f, some=some: sg.function(f, engine=engine)(x, some)
        np.testing.assert_array_equal(run(lambda v, i: v[i]), [30, 10, 0, 0, 10])
        np.testing.assert_array_equal(run(lambda v, i: sg.gather(v, i)), [30, 10, 0, 0, 10])
        np.testing.assert_array_equal(run(lambda v, i: sg.take_along_axis(v, i)), [30, 10, 0, 0, 10])
        np.testing.assert_array_equal(run(lambda v, i: v.at[i].set(1.0)), [1, 20, 1])
        np.testing.assert_array_equal(run(lambda v, i: v.at[i].add(1.0)), [12, 20, 31])
        slope = run(sg.grad(lambda v, i: sg.reduce_sum(v[i] * np.arange(1.0, 6.0))))
        np.testing.assert_array_equal(slope, [7, 0, 1])
    np.testing.assert_array_equal(
        sg.function(lambda v, i: v[i], engine=engine)(x, np.array([0, 200], np.uint8)), [10, 0]
    )
    wide = np.arange(300.0)
    np.testing.assert_array_equal(
        sg.function(lambda v, i: v[i], engine=engine)(wide, np.array([-1, -128], np.int8)), [299, 172]
    )


INDEX: dict[str, Callable[[Any, Any], Any]] = {
    "False, i": lambda v, i: v[False, i],
    "False, ..., i": lambda v, i: v[False, ..., i],
    "None, False, i": lambda v, i: v[None, False, i],
    "True, ..., i": lambda v, i: v[True, ..., i],
}


@each_engine
@pytest.mark.parametrize("index", INDEX)
def test_a_flag_beside_an_index_that_is_a_tensor(index: str, engine: str) -> None:
    x, i = np.arange(6.0).reshape(2, 3), np.array([0])
    found = sg.function(INDEX[index], engine=engine)(x, i)
    expected = INDEX[index](x, i)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@each_engine
def test_axes_without_elements(engine: str) -> None:
    x = np.zeros((0, 2))
    at = np.array([0, -1])
    run: Callable[..., Any] = lambda f: sg.function(f, engine=engine)(x, at)
    np.testing.assert_array_equal(run(lambda v, i: v[i]), np.zeros((2, 2)))
    assert run(lambda v, i: v.at[i].set(1.0)).shape == (0, 2)
    assert run(lambda v, i: v.at[i, i].max(1.0)).shape == (0, 2)
    assert sg.function(lambda v: v[[]], engine=engine)(np.ones((3, 2))).shape == (0, 2)
    assert sg.function(lambda v: v[np.zeros(3, bool)], engine=engine)(np.ones((3, 2))).shape == (0, 2)


def test_sizes_may_be_symbolic() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float64, ["n", 3])
        i = sg.placeholder(sg.int32, ["m"])
        taken = x[i, -1]
        paired = x[i, i]
        changed = x.at[-1, [0, -1]].set([7.0, 8.0])
        added = x.at[i, 1].add(1.0)
        (slope,) = sg.gradients(sg.reduce_sum(taken * taken), [x])
    value, at = np.arange(12.0).reshape(4, 3), np.array([-1, 0, 2, -4, 9], np.int32)
    assert taken.shape[0] is i.shape[0]
    for engine in ENGINES:
        with sg.Session(graph, engine=engine) as session:
            found = session.run([taken, paired, changed, added, slope], {x: value, i: at})
        np.testing.assert_array_equal(found[0], [11, 2, 8, 2, 0])
        np.testing.assert_array_equal(found[1], [11, 0, 8, 0, 0])
        expected = value.copy()
        expected[-1, [0, -1]] = [7, 8]
        np.testing.assert_array_equal(found[2], expected)
        expected = value.copy()
        np.add.at(expected, (at[:-1], 1), 1.0)
        np.testing.assert_array_equal(found[3], expected)
        expected = np.zeros((4, 3))
        expected[[0, 2, 3], 2] = [8, 16, 22]
        np.testing.assert_array_equal(found[4], expected)


# ------------------------------------------------------------------------------------------------ derivatives

RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 3, 2))
I = np.array([0, -1, 2, 0])
J = np.array([[1], [-1]])

UPDATES: dict[str, tuple[Callable[[Any, Any, Any], Any], tuple[int, ...]]] = {
    "get": (lambda at, v, u: at(v)[I, :, 0].get() * u, (3,)),
    "get by two": (lambda at, v, u: at(v)[I, J].get() * u, (4, 2)),
    "get apart": (lambda at, v, u: at(v)[I[:2], :, J[:, 0]].get() * u, (2, 3)),
    "set": (lambda at, v, u: at(v)[I[1:]].set(u), (3, 3, 2)),
    "set twice": (lambda at, v, u: at(v)[I].set(u), (4, 3, 2)),
    "set a slice": (lambda at, v, u: at(v)[1:3, I[:2]].set(u), (2, 1, 2)),
    "set by steps": (lambda at, v, u: at(v)[::-2, 1].set(u), (2,)),
    "add": (lambda at, v, u: at(v)[I, :, 1].add(u), (3,)),
    "subtract": (lambda at, v, u: at(v)[I, :, 1].add(-u), (4, 3)),
    "min": (lambda at, v, u: at(v)[..., 0].min(u), (3,)),
    "max": (lambda at, v, u: at(v)[I].max(u), (4, 3, 2)),
    "multiply": (lambda at, v, u: at(v)[1, ::2].multiply(u), (2,)),
    "divide": (lambda at, v, u: at(v)[:, 1].divide(u), (4, 2)),
}


@each_engine
@pytest.mark.parametrize("name", UPDATES)
def test_derivatives_are_those_of_jax(name: str, engine: str) -> None:
    change, shape = UPDATES[name]
    u = np.random.default_rng(6).normal(size=shape)
    ours: Any = lambda v, w: sg.reduce_sum(change(sg.at, v, w) ** 3)
    theirs: Any = lambda v, w: jnp.sum(change(lambda x: x.at, v, w) ** 3)

    def squared(grad: Any, f: Any, total: Any) -> Any:
        def g(v: Any, w: Any) -> Any:
            first, second = grad(f, argnums=(0, 1))(v, w)
            return total(first * first) + total(second * second)

        return g

    with jax.enable_x64(True):
        for f, g in (
            (ours, theirs),
            (squared(sg.grad, ours, sg.reduce_sum), squared(jax.grad, theirs, jnp.sum)),
        ):
            found = sg.function(sg.grad(f, argnums=(0, 1)), engine=engine)(X, u)
            expected = jax.jit(jax.grad(g, argnums=(0, 1)))(jnp.asarray(X), jnp.asarray(u))
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@each_engine
def test_factors_of_one_place_have_the_product_of_the_others_as_slope(engine: str) -> None:
    at, factors = np.array([1, 0, 1, 1, 2]), np.array([2.0, 3.0, 0.0, 5.0, 7.0])
    f: Any = lambda u: sg.reduce_sum(sg.at(np.array([1.0, 4.0, 1.0]))[at].multiply(u))
    slope = sg.function(sg.grad(f), engine=engine)(factors)
    np.testing.assert_allclose(slope, [0, 1, 40, 0, 1])
    second = sg.function(sg.hessian(f), engine=engine)(factors)
    expected = np.zeros((5, 5))
    expected[0, 2] = expected[2, 0] = 20
    expected[2, 3] = expected[3, 2] = 8
    np.testing.assert_allclose(second, expected)


@each_engine
def test_of_values_set_for_one_element_the_last_remains_and_has_the_slope(engine: str) -> None:
    at, values = np.array([1, 0, 1]), np.array([5.0, 6.0, 7.0])
    f: Any = lambda u, i: sg.at(np.zeros(2))[i].set(u)
    np.testing.assert_array_equal(sg.function(f, engine=engine)(values, at), [6, 7])
    slope = sg.function(sg.grad(lambda u, i: sg.reduce_sum(f(u, i))), engine=engine)(values, at)
    np.testing.assert_array_equal(slope, [0, 1, 1])


@each_engine
def test_equal_extremes_share_the_slope(engine: str) -> None:
    f: Any = lambda x, u: sg.reduce_sum(sg.at(x)[[0, 0, 1]].max(u))
    run = sg.function(sg.grad(f, argnums=(0, 1)), engine=engine)
    dx, du = run(np.array([3.0, 5.0]), np.array([3.0, 1.0, 9.0]))
    np.testing.assert_array_equal(dx, [0.5, 0.0])
    np.testing.assert_array_equal(du, [0.5, 0.0, 1.0])


# ------------------------------------------------------------------------------------------- batches, methods


@each_engine
@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: x[i],
        lambda x, i: x[i, i],
        lambda x, i: x[..., i],
        lambda x, i: x.at[i, 0].set(1.0),
        lambda x, i: x.at[:, i].multiply(2.0),
        lambda x, i: x.at[i].max(x[0]),
        lambda x, i: sg.dynamic_slice(x, sg.stack([i[0], i[1]]), [2, 1]),
        lambda x, i: sg.dynamic_update_slice(x, x[:2, :1] * 2.0, sg.stack([i[0], i[1]])),
    ],
)
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_in_batches(f: Any, axes: Any, engine: str) -> None:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(5, 3, 3) if axes[0] == 0 else (3, 3))
    i = generator.integers(-3, 3, (5, 2) if axes[1] == 0 else (2,))
    found = sg.function(sg.vmap(f, in_axes=axes), engine=engine)(x, i)
    one = sg.function(f)
    for k in range(5):
        expected = one(x[k] if axes[0] == 0 else x, i[k] if axes[1] == 0 else i)
        np.testing.assert_allclose(found[k], expected)


def test_methods_of_at_as_jax_has_them() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    at = [0, -1, 0]
    v = np.array([2.0, 3.0, 4.0])
    with jax.enable_x64(True):
        for name in ("add", "subtract", "multiply", "divide", "power", "min", "max"):
            found = getattr(sg.at(x)[at], name)(v)
            np.testing.assert_allclose(found, getattr(jnp.asarray(x).at[np.array(at)], name)(v), err_msg=name)
    np.testing.assert_array_equal(sg.at(x)[1:3].apply(sg.negative), [1, -2, -3, 4])
    np.testing.assert_array_equal(sg.at(x)[[1, 1]].apply(lambda e: e * 10), [1, 20, 3, 4])
    np.testing.assert_array_equal(sg.at(x)[at].get(), [1, 4, 1])
    assert "set" in repr(sg.at(x))
    assert "set" in repr(sg.at(x)[0])


def test_updates_take_the_dtype_of_what_they_go_into() -> None:
    half = np.ones(3, np.float16)
    assert sg.at(half)[0].set(2.5).dtype == np.float16
    assert sg.at(half)[[0]].add(np.array([2.5])).dtype == np.float16
    assert sg.at(np.ones(3, np.complex64))[0].multiply(2).dtype == np.complex64
    np.testing.assert_array_equal(sg.at(np.arange(3))[1].set(True), [0, 1, 2])
    with pytest.raises(sg.DTypeError, match="without loss"):
        sg.at(np.arange(3))[1].set(0.5)


@each_engine
def test_a_traced_mask_changes_elements_but_takes_none(engine: str) -> None:
    x = np.array([[1.0, -2.0], [-3.0, 4.0]])
    run: Callable[..., Any] = lambda f, *args: sg.function(f, engine=engine)(x, *args)
    np.testing.assert_array_equal(run(lambda v: v.at[v < 0].set(0.0)), [[1, 0], [0, 4]])
    np.testing.assert_array_equal(run(lambda v: v.at[v < 0].multiply(-10.0)), [[1, 20], [30, 4]])
    np.testing.assert_array_equal(run(lambda v: v.at[v[:, 0] < 0].set([8.0, 9.0])), [[1, -2], [8, 9]])
    slope = run(sg.grad(lambda v: sg.reduce_sum(v.at[v < 0].set(0.0))))
    np.testing.assert_array_equal(slope, [[1, 0], [0, 1]])
    with pytest.raises(sg.ShapeError, match=r"sg\.where"):
        run(lambda v: v[v < 0])
    with pytest.raises(sg.ShapeError, match=r"sg\.where"):
        run(lambda v: v.at[v < 0].set([1.0, 2.0, 3.0]))


def test_vectors_of_indices_as_tensorflow_has_them() -> None:
    """Values of TensorFlow 2.21's documentation of tf.gather_nd, tf.scatter_nd and tf.tensor_scatter_nd_*."""
    params = np.array([[["a0", "b0"], ["c0", "d0"]], [["a1", "b1"], ["c1", "d1"]]])
    numbers = np.arange(8).reshape(2, 2, 2)
    name = lambda found: params.reshape(-1)[found].tolist()
    assert name(sg.gather_nd(numbers, [[[0, 1], [1, 0]], [[0, 0], [1, 1]]])) == [
        [["c0", "d0"], ["a1", "b1"]],
        [["a0", "b0"], ["c1", "d1"]],
    ]
    assert name(sg.gather_nd(numbers, [[[0, 0, 1], [1, 0, 1]], [[0, 1, 1], [1, 1, 0]]])) == [
        ["b0", "b1"],
        ["d0", "c1"],
    ]
    assert name(sg.gather_nd(numbers, [[1], [0]], batch_dims=1)) == [["c0", "d0"], ["a1", "b1"]]
    assert sg.scatter_nd([[4], [3], [1], [7]], [9, 10, 11, 12], [8]).tolist() == [0, 11, 0, 10, 9, 0, 0, 12]
    tensor = np.array([0, 0, 0, 0, 0, 0, 0, 0])
    assert sg.tensor_scatter_nd_max(tensor, [[1], [4], [5]], [1, -1, 1]).tolist() == [0, 1, 0, 0, 0, 1, 0, 0]
    ones = np.ones(8, np.int32)
    at, updates = [[4], [3], [1], [7]], [9, 10, 11, 12]
    assert sg.tensor_scatter_nd_add(ones, at, updates).tolist() == [1, 12, 1, 11, 10, 1, 1, 13]
    assert sg.tensor_scatter_nd_sub(ones, at, updates).tolist() == [1, -10, 1, -9, -8, 1, 1, -11]
    assert sg.tensor_scatter_nd_update([0, 1, 2], [[0], [0]], [5, 6]).tolist() == [6, 1, 2]


def test_strided_slices_with_masks_as_tensorflow_has_them() -> None:
    """The examples of tf.strided_slice, and what its masks mean."""
    t = np.array([[[1, 1, 1], [2, 2, 2]], [[3, 3, 3], [4, 4, 4]], [[5, 5, 5], [6, 6, 6]]])
    assert sg.strided_slice(t, [1, 0, 0], [2, 1, 3], [1, 1, 1]).tolist() == [[[3, 3, 3]]]
    assert sg.strided_slice(t, [1, -1, 0], [2, -3, 3], [1, -1, 1]).tolist() == [[[4, 4, 4], [3, 3, 3]]]
    np.testing.assert_array_equal(
        sg.strided_slice(t, [0, 0, 1], [0, 0, 2], ellipsis_mask=2, shrink_axis_mask=1), t[0, ..., 1:2]
    )
    np.testing.assert_array_equal(
        sg.strided_slice(t, [0, 5, 1], [0, 5, 0], new_axis_mask=2, begin_mask=1, end_mask=5), t[:, None, 1:]
    )
