"""Values of operations against other libraries, closed forms and published test vectors, on every engine."""

from __future__ import annotations

import inspect
import itertools
import runpy
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
from all_engines import each_engine, each_style
from places import ROOT
from values import COVERED, Cases, by, close, each, normal, values_of

import stopgrad as sg

# ------------------------------------------------------------------------------------------------ losses


@each_engine
@values_of(
    sg.softmax_cross_entropy_with_logits,
    sg.sparse_softmax_cross_entropy_with_logits,
    sg.sigmoid_cross_entropy_with_logits,
    sg.mean_squared_error,
)
def test_cross_entropies(engine: str) -> None:
    logits, labels = 10 * normal(5, 4), scipy.special.softmax(normal(5, 4, seed=1), -1)
    log_p = scipy.special.log_softmax(logits, -1)
    close(by(engine, sg.softmax_cross_entropy_with_logits, labels, logits), -(labels * log_p).sum(-1))
    classes = np.array([0, 3, 1, 2, 3])
    close(
        by(engine, sg.sparse_softmax_cross_entropy_with_logits, classes, logits),
        -log_p[np.arange(5), classes],
    )
    p = scipy.special.expit(logits / 10)
    close(
        by(engine, sg.sigmoid_cross_entropy_with_logits, labels, logits / 10),
        -labels * np.log(p) - (1 - labels) * np.log1p(-p),
    )
    close(by(engine, sg.mean_squared_error, labels, logits), ((labels - logits) ** 2).mean(-1))


def test_a_label_of_zero_counts_nothing_where_the_logit_is_minus_infinity() -> None:
    assert sg.softmax_cross_entropy_with_logits(np.array([0.0, 1.0]), np.array([-np.inf, 0.0])) == 0


def test_relu_and_clip_at_their_kinks_as_tensorflow() -> None:
    at = np.array([0.0])
    assert sg.grad(lambda x: sg.reduce_sum(sg.relu(x)))(at) == 0
    assert sg.grad(lambda x: sg.reduce_sum(sg.leaky_relu(x)))(at) == 0.2
    assert sg.grad(lambda x: sg.reduce_sum(sg.clip_by_value(x, 0.0, 1.0)))(at) == 1
    assert sg.grad(lambda x: sg.reduce_sum(sg.clip_by_value(x, -1.0, 0.0)))(at) == 1


# ------------------------------------------------------------------------------------------------- index


@each_engine
@values_of(sg.gather)
def test_gather(engine: str) -> None:
    x, at = normal(4, 5, 6), np.array([[1, 0], [3, 2]])
    for axis in (0, 1, 2, -1):
        np.testing.assert_array_equal(
            by(engine, lambda x, i, axis=axis: sg.gather(x, i, axis=axis), x, at), np.take(x, at, axis)
        )
    batched = np.array([[1, 0, 4], [3, 2, 2], [0, 0, 0], [4, 4, 1]])
    expected = np.stack([x[i][batched[i]] for i in range(4)])
    np.testing.assert_array_equal(
        by(engine, lambda x, i: sg.gather(x, i, batch_dims=1), x, batched), expected
    )


@each_engine
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@values_of(sg.gather, sg.scatter_add, sg.take_along_axis, sg.one_hot)
def test_indices_outside_choose_nothing(engine: str, dtype: str) -> None:
    x = np.array([10.0, 20.0, 30.0])
    at = np.array([0, 3, 2, 100, -4 if dtype.startswith("i") else 255]).astype(dtype)
    np.testing.assert_array_equal(by(engine, sg.gather, x, at), [10, 0, 30, 0, 0])
    np.testing.assert_array_equal(by(engine, sg.scatter_add, x, at, np.ones(5)), [11, 20, 31])
    np.testing.assert_array_equal(by(engine, sg.take_along_axis, x, at), [10, 0, 30, 0, 0])
    np.testing.assert_array_equal(
        by(engine, lambda i: sg.one_hot(i, 3), at), np.eye(3)[[0, 0, 2, 0, 0]] * [[1], [0], [1], [0], [0]]
    )


@each_engine
@values_of(sg.scatter_add)
def test_scatter_add_is_the_product_with_a_transposed_one_hot_matrix(engine: str) -> None:
    x, at, updates = normal(4, 3), np.array([1, 1, 3, 0, 1]), normal(5, 3, seed=1)
    close(by(engine, sg.scatter_add, x, at, updates), x + np.eye(4)[at].T @ updates)
    along = np.array([[0, 2], [2, 2], [1, 0], [0, 0]])
    expected = x.copy()
    for i, k in itertools.product(range(4), range(2)):
        expected[i, along[i, k]] += updates[i, k]
    close(
        by(
            engine,
            lambda x, u: sg.ops.ScatterAddAlongAxis.function(x, along, u, 1),
            x,
            updates[:4, :2].copy(),
        ),
        expected,
    )


@each_engine
@values_of(sg.one_hot)
def test_one_hot_values_and_axis(engine: str) -> None:
    at = np.array([[2, 0], [1, 1]])
    expected = np.moveaxis(np.where(np.eye(3, dtype=bool)[at], 5.0, -1.0), -1, 1)
    np.testing.assert_array_equal(
        by(engine, lambda i: sg.one_hot(i, 3, 5.0, -1.0, axis=1, dtype="float64"), at), expected
    )


@each_engine
@values_of(sg.sort, sg.argsort, sg.top_k)
def test_sorting(engine: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (4, 30)).astype(float)
    x[0, 3], x[1, 2] = np.nan, -np.inf
    for axis in (0, 1):
        np.testing.assert_array_equal(by(engine, lambda x, axis=axis: sg.sort(x, axis), x), np.sort(x, axis))
        np.testing.assert_array_equal(
            by(engine, lambda x, axis=axis: sg.argsort(x, axis), x), np.argsort(x, axis, stable=True)
        )
    clean = np.nan_to_num(x, nan=9, neginf=-9)
    np.testing.assert_array_equal(
        by(engine, lambda x: sg.argsort(x, direction="DESCENDING"), clean), np.argsort(-clean, stable=True)
    )
    values, at = by(engine, lambda x: sg.top_k(x, 7), clean)
    expected, positions = jax.lax.top_k(clean.astype(np.float32), 7)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(at, positions)


def test_the_gradient_of_sort_goes_back_to_where_elements_came_from() -> None:
    x, weights = np.array([3.0, 1.0, 3.0, 2.0]), np.array([1.0, 10.0, 100.0, 1000.0])
    np.testing.assert_array_equal(
        sg.grad(lambda x: sg.reduce_sum(sg.sort(x) * weights))(x), [100, 1, 1000, 10]
    )
    np.testing.assert_array_equal(sg.grad(lambda x: sg.reduce_sum(sg.top_k(x, 1)[0]))(x), [1, 0, 0, 0])


@pytest.mark.parametrize("arguments", [(5,), (2, 9), (2, 9, 3), (9, 2, -3), (5, 5), (0.5, 2.0, 0.25), (3, 0)])
@values_of(sg.range)
def test_range(arguments: tuple[Any, ...]) -> None:
    np.testing.assert_allclose(sg.range(*arguments), np.arange(*arguments))


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_range_of_a_symbolic_size(n: int) -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n"])
        size = x.shape[0]
        made = [sg.range(size), sg.range(1, size + 1, 2), sg.range(size, 0, -3)]
    with sg.Session(graph) as session:
        for found, expected in zip(
            session.run(made, {x: np.zeros(n)}), (range(n), range(1, n + 1, 2), range(n, 0, -3)), strict=True
        ):
            np.testing.assert_array_equal(found, np.array(expected, np.int32))


# ------------------------------------------------------------------------------------------------ einsum


@each_engine
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii", [(3, 3)]),
        ("ii->i", [(3, 3)]),
        ("iji->j", [(3, 2, 3)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (4, 1, 3, 2)]),
        ("i...,i", [(3, 2, 4), (3,)]),
        ("...i->...", [(2, 3)]),
        ("ij, kj , lj -> ikl", [(2, 3), (4, 3), (5, 3)]),
        ("a,b,c->", [(2,), (3,), (4,)]),
        (",ij->ji", [(), (2, 3)]),
    ],
)
@values_of(sg.einsum)
def test_einsum(engine: str, equation: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    close(by(engine, lambda *xs: sg.einsum(equation, *xs), *xs), np.einsum(equation, *xs))


@pytest.mark.parametrize("equation", ["ij,jk->iik", "ij,jk->il", "ij", "ijk,jk", "i1,jk", "ij,kj"])
def test_einsum_refuses_what_does_not_fit(equation: str) -> None:
    with pytest.raises(sg.ShapeError, match=r"\(C[234]\)"):
        sg.einsum(equation, np.ones((2, 3)), np.ones((3, 4)))


@pytest.mark.parametrize("axes", [0, 1, 2, ([1, 2], [0, 1]), ([-1], [1]), (0, 2)])
@values_of(sg.tensordot)
def test_tensordot(axes: Any) -> None:
    a, b = normal(4, 3, 4), normal(3, 4, 4, seed=1)
    a = {1: normal(4, 4, 3), 2: normal(3, 3, 4)}.get(axes, a) if isinstance(axes, int) else a
    close(sg.tensordot(a, b, axes), np.tensordot(a, b, axes))


# ------------------------------------------------------------------------------------------- convolution

WINDOWS = [
    (1, 1, "SAME", 1),
    (1, 1, "VALID", 2),
    (1, 2, "SAME", 1),
    (2, 3, "SAME", 1),
    (2, 1, "VALID", 2),
    (1, 2, ((1, 2),), 1),
    (2, (2, 3), ((0, 1), (1, 2)), (2, 1)),
]


def _slow_convolution(x: Any, f: Any, strides: Any, around: Any, dilations: Any, groups: int) -> Any:
    """Convolution by its definition, element by element."""
    x = np.pad(x, [(0, 0), *around, (0, 0)])
    spatial = [
        (n - ((k - 1) * d + 1)) // s + 1
        for n, k, s, d in zip(x.shape[1:-1], f.shape[:-2], strides, dilations, strict=True)
    ]
    y = np.zeros((x.shape[0], *spatial, f.shape[-1]))
    each_in, each_out = f.shape[-2], f.shape[-1] // groups
    for o in np.ndindex(*y.shape):
        for k in np.ndindex(*f.shape[:-1]):
            at = tuple(i * s + j * d for i, s, j, d in zip(o[1:-1], strides, k, dilations, strict=False))
            y[o] += x[(o[0], *at, o[-1] // each_out * each_in + k[-1])] * f[(*k, o[-1])]
    return y


@each_engine
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("rank", "strides", "padding", "dilations"), WINDOWS)
@values_of(sg.conv)
def test_convolution(engine: str, rank: int, strides: Any, padding: Any, dilations: Any, groups: int) -> None:
    x, f = normal(2, *(7, 6)[:rank], 4), normal(*(3, 2)[:rank], 4 // groups, 6, seed=1)
    found = by(engine, lambda x, f: sg.conv(x, f, strides, padding, dilations), x, f)
    s, d = (np.broadcast_to(v, rank).tolist() for v in (strides, dilations))
    if isinstance(padding, str):
        around = jax.lax.padtype_to_pads(
            x.shape[1:-1], [(k - 1) * e + 1 for k, e in zip(f.shape, d, strict=False)], s, padding
        )
    else:
        around = padding
    close(found, _slow_convolution(x, f, s, around, d, groups))


@values_of(sg.conv2d)
def test_depthwise_convolution_finds_its_groups() -> None:
    x, f = normal(1, 5, 5, 3), normal(2, 2, 1, 6, seed=1)
    close(sg.conv2d(x, f, 1, "VALID"), _slow_convolution(x, f, (1, 1), [(0, 0)] * 2, (1, 1), 3))


@each_engine
@values_of(sg.conv1d, sg.conv2d)
def test_convolutions_of_one_and_two_axes(engine: str) -> None:
    x, f = normal(2, 9, 3), normal(4, 3, 5, seed=1)
    expected = sum(
        np.array([[np.correlate(x[n, :, c], f[:, c, o]) for o in range(5)] for n in range(2)])
        for c in range(3)
    )
    close(by(engine, lambda x, f: sg.conv1d(x, f, 1, "VALID"), x, f), np.moveaxis(expected, 1, 2))
    x, f = normal(2, 5, 7, 3), normal(3, 2, 3, 4, seed=1)
    found = by(engine, lambda x, f: sg.conv2d(x, f, (2, 1), ((1, 1), (0, 1)), dilations=(1, 2)), x, f)
    close(found, _slow_convolution(x, f, (2, 1), [(1, 1), (0, 1)], (1, 2), 1))


@each_engine
@pytest.mark.parametrize(("padding", "around"), [("VALID", [(0, 0), (0, 0)]), ("SAME", [(0, 1), (1, 1)])])
@values_of(sg.conv2d_backprop_input, sg.conv2d_backprop_filter, sg.conv2d_transpose)
def test_backward_convolutions_are_products_with_the_transposed_matrix(
    engine: str, padding: str, around: Any
) -> None:
    """Convolution is linear in each operand: its matrices are found by convolving one element at a time."""
    strides = (2, 1)
    x, f = normal(1, 4, 3, 2), normal(3, 3, 2, 2, seed=1)

    def units(shape: tuple[int, ...]) -> Any:
        return np.eye(int(np.prod(shape))).reshape(-1, *shape)

    of_x = np.array([_slow_convolution(unit, f, strides, around, (1, 1), 1) for unit in units(x.shape)])
    of_f = np.array([_slow_convolution(x, unit, strides, around, (1, 1), 1) for unit in units(f.shape)])
    g = normal(*of_x.shape[1:], seed=2)
    dx, df = ((m * g).sum((1, 2, 3, 4)).reshape(shape) for m, shape in ((of_x, x.shape), (of_f, f.shape)))
    found = by(engine, lambda f, g: sg.conv2d_backprop_input(x.shape, f, g, strides, padding), f, g)
    close(found, dx)
    found = by(engine, lambda x, g: sg.conv2d_backprop_filter(x, f.shape, g, strides, padding), x, g)
    close(found, df)
    close(by(engine, lambda g, f: sg.conv2d_transpose(g, f, x.shape, strides, padding), g, f), dx)


def test_convolution_refuses_what_does_not_fit() -> None:
    x, f = np.ones((1, 4, 4, 3)), np.ones((2, 2, 3, 5))
    for call, number in (
        (lambda: sg.conv2d(x, f.astype(np.complex64), 1, "VALID"), 1),
        (lambda: sg.conv2d(x[0], f, 1, "VALID"), 2),
        (lambda: sg.conv2d(x[..., :2], f, 1, "VALID"), 5),
        (lambda: sg.conv2d(x, f, 0, "VALID"), 3),
        (lambda: sg.conv2d(x, f, 1, "FULL"), 3),
        (lambda: sg.conv2d(x, np.ones((6, 2, 3, 5)), 1, "VALID"), 4),
    ):
        with pytest.raises((sg.ShapeError, sg.DTypeError), match=rf"\(C{number}\)"):
            call()


@each_engine
@pytest.mark.parametrize(("rank", "strides", "padding", "dilations"), WINDOWS)
@values_of(sg.max_pool, sg.avg_pool)
def test_pooling(engine: str, rank: int, strides: Any, padding: Any, dilations: Any) -> None:
    x, ksize = normal(2, *(7, 6)[:rank], 3), (3, 2)[:rank]
    s, d = (np.broadcast_to(v, rank).tolist() for v in (strides, dilations))
    spans = [(k - 1) * e + 1 for k, e in zip(ksize, d, strict=True)]
    around = (
        jax.lax.padtype_to_pads(x.shape[1:-1], spans, s, padding) if isinstance(padding, str) else padding
    )
    hidden = np.pad(x, [(0, 0), *around, (0, 0)], constant_values=np.nan)
    spatial = [(n - r) // t + 1 for n, r, t in zip(hidden.shape[1:-1], spans, s, strict=True)]
    shape = (2, *spatial, 3)
    largest, mean = np.zeros(shape), np.zeros(shape)
    for o in np.ndindex(*shape):
        window = hidden[
            (
                o[0],
                *(slice(i * t, i * t + r, e) for i, t, r, e in zip(o[1:-1], s, spans, d, strict=True)),
                o[-1],
            )
        ]
        largest[o], mean[o] = np.nanmax(window), np.nanmean(window)
    close(by(engine, lambda x: sg.max_pool(x, ksize, strides, padding, dilations=dilations), x), largest)
    close(by(engine, lambda x: sg.avg_pool(x, ksize, strides, padding, dilations=dilations), x), mean)


@each_engine
@values_of(sg.max_pool1d, sg.avg_pool1d, sg.max_pool2d, sg.avg_pool2d)
def test_pooling_of_one_and_two_axes(engine: str) -> None:
    x = normal(2, 6, 3)
    windows = np.stack([x[:, 0:4], x[:, 1:5], x[:, 2:6]])
    close(by(engine, lambda x: sg.max_pool1d(x, 3, 1, "VALID"), x), windows.max(0))
    close(by(engine, lambda x: sg.avg_pool1d(x, 3, 1, "VALID"), x), windows.mean(0))
    x = normal(2, 4, 6, 3)
    windows = x.reshape(2, 2, 2, 2, 3, 3)
    close(by(engine, lambda x: sg.max_pool2d(x, (2, 3), None, "VALID"), x), windows.max((2, 4)))
    close(by(engine, lambda x: sg.avg_pool2d(x, (2, 3), None, "VALID"), x), windows.mean((2, 4)))


@each_engine
def test_padding_is_never_the_largest_even_of_nothing_but_minus_infinity(engine: str) -> None:
    x = np.full((1, 3, 1), -np.inf)
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.max_pool1d(x, 3, 1, "SAME"))), x)
    np.testing.assert_array_equal(found[0, :, 0], [2, 1, 0])


def test_windows_that_do_not_fit_are_refused() -> None:
    x, f = np.ones((1, 3, 1)), np.ones((4, 1, 1))
    wide = "a window that spans [45] elements is larger than axis 1 of size 3"
    for call in (
        lambda: sg.max_pool(x, 5, 5, "VALID"),
        lambda: sg.avg_pool(x, 4, 1, "VALID"),
        lambda: sg.conv1d(x, f, 1, "VALID"),
        lambda: sg.max_pool(x, 2, 2, "VALID", dilations=4),
        lambda: sg.function(lambda x: sg.max_pool(x, 5, 5, "VALID"))(x),
    ):
        with pytest.raises(sg.ShapeError, match=rf"\(C4\) {wide}"):
            call()
    named = sg.Graph()
    with named.as_default():
        p = sg.placeholder(sg.float64, (1, None, 1))
        y = sg.max_pool(p, 5, 5, "VALID")
    with pytest.raises(sg.ShapeError, match=wide), sg.Session(named) as session:
        session.run(y, {p: x})
    assert sg.max_pool(x, 3, 3, "VALID").shape == (1, 1, 1)
    assert sg.max_pool(np.ones((1, 0, 1)), 2, 2, "VALID").shape == (1, 0, 1)


def test_negative_paddings_are_refused_with_the_rule_they_break() -> None:
    x = np.ones(3)
    for paddings, mode in (
        ([[-1, 0]], "CONSTANT"),
        ([[0, -2]], "REFLECT"),
        (np.array([[-1, 0]]), "SYMMETRIC"),
    ):
        with pytest.raises(sg.ShapeError, match=r"PadV2: \(C2\) the padding .*-\d.* is negative; .* slice"):
            sg.pad(x, paddings, mode)
    with pytest.raises(sg.ShapeError, match=r"\(C3\) padding=\[\(-1, 0\)\] has a negative size"):
        sg.max_pool(np.ones((1, 3, 1)), 2, 2, [(-1, 0)])


@each_engine
def test_the_first_of_equal_elements_takes_the_gradient_of_max_pool(engine: str) -> None:
    x = np.zeros((1, 4, 4, 1))
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.max_pool2d(x, 2, 2, "VALID"))), x)
    np.testing.assert_array_equal(found[0, :, :, 0], np.kron(np.ones((2, 2)), [[1, 0], [0, 0]]))


# ------------------------------------------------------------------------------------- none is missing

WITHOUT_VALUE = {
    "assert_blocked": "it checks paths",
    "add_lora": "it rewrites a graph, whose values are compared in test_adapters",
    "ablate": "its figures are compared with JAX and by hand in test_ablate",
    "assert_flows": "it checks paths",
    "assert_only_flows": "it checks paths",
    "check_gradients": "right and wrong rules are told apart in test_check_gradients, test_check_mutants",
    "debug_callback": "it calls a function; what that gets is compared in test_effects",
    "dim": "it names a size",
    "explain": "it reports on paths",
    "function": "it runs other functions: all values of this test on an engine come through it",
    "group": "it runs other operations, and says no more than that they have run",
    "load": "what it reads is compared with what was saved, and by safetensors, in test_tree_files",
    "print": "what it prints is compared with JAX in test_effects",
    "save": "as load",
    **dict.fromkeys(
        ("tree_flatten", "tree_leaves", "tree_map", "tree_map_with_path", "tree_reduce", "tree_structure"),
        "it computes nothing; structures are compared with JAX in test_trees",
    ),
    "tree_unflatten": "as tree_flatten",
    "gradients": "it builds the operations that the transforms, which are here, compute",
    "monitor": "its figures are compared in tests/train/monitoring",
    "name_scope": "it names operations",
    "shard": "it is the identity; what is computed on meshes is compared in test_mesh",
    "trace_nan": "what it names is compared with each operation's value in test_trace_nan",
}
"""Public functions that compute nothing, with the reason."""

SOON = {"cond", "switch", "scan", "while_loop", "fori_loop", "map_fn", "checkpoint", "vmap"}
"""Control flow and batching, which are compared with JAX's in tests of their own."""


def public_functions() -> dict[str, Any]:
    """Those under their own names: another name of one is the same function."""
    return {
        name: member
        for name, member in inspect.getmembers(sg)
        if inspect.isroutine(member)
        and not name.startswith("_")
        and member.__module__.startswith("stopgrad.")
        and name == member.__name__
    }


def test_every_public_function_has_a_value_from_elsewhere() -> None:
    for path in (ROOT / "tests/ops").glob("test_values*.py"):
        runpy.run_path(str(path))  # Whose cases say what they cover.
    public = set(public_functions())
    assert len(public) > 170
    assert public >= set(WITHOUT_VALUE) | set(COVERED)
    missing = public - set(COVERED) - set(WITHOUT_VALUE) - SOON
    assert not missing, f"compare these with NumPy, SciPy, JAX or a closed form: {sorted(missing)}"
    assert not set(COVERED) & set(WITHOUT_VALUE)


def test_a_test_that_does_not_call_a_function_gives_it_no_value() -> None:
    with pytest.raises(AssertionError, match=r"never calls sg\.tanh"):
        values_of(sg.tanh)(lambda: sg.exp(0.0))
    cases = Cases()
    with pytest.raises(AssertionError, match="compared with this package"):
        cases.add(sg.exp, lambda x: sg.exp(x), normal(3))
    with pytest.raises(AssertionError, match="compared with this package"):
        cases.add(sg.exp, each(lambda x: sg.exp(x)), normal(3))


@each_style
@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (lambda x: np.exp(x) * (1 + 1e-9), "Not equal to tolerance"),
        (lambda x: np.exp(x)[:1], "shapes"),
        (lambda x: np.exp(x).astype(np.float32), "float32"),
        (lambda x: [np.exp(x), x], "exp, call 1"),
        (np.zeros(0), "no element is compared"),
    ],
)
def test_a_wrong_value_is_seen(engine: str, expected: Any, message: str) -> None:
    cases = Cases()
    cases.add(sg.exp, np.exp, normal(3))
    cases.check(engine, "exp")
    cases.add(sg.exp, expected, normal(3))
    with pytest.raises(AssertionError, match=message):
        cases.check(engine, "exp")
