"""Sizes that are not known yet, in arithmetic: with tensors, with arrays, with numbers, and by themselves."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES, each_engine

import stopgrad as sg

SIZES = (1, 2, 5)
HERE = __file__


def run(functions: dict[str, Callable[..., Any]], engine: str, dtype: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each of x[n, 3], its first size and i[n]: in a graph with n open, and at once with n as an integer.

    They are one program, since most of the time of a small one is that of compiling it at all.
    """
    with sg.Graph().as_default() as graph:
        x, i = sg.placeholder(dtype, ["n", 3]), sg.placeholder(sg.int32, ["n"])
        ys = [f(x, x.shape[0], i) for f in functions.values()]
    with sg.Session(graph, engine=engine) as session:
        for n in SIZES:
            value = (np.arange(3 * n).reshape(n, 3) + 1).astype(dtype)
            index = np.arange(n, dtype=np.int32) + 1
            found = session.run(ys, {x: value, i: index})
            for (name, f), y in zip(functions.items(), found, strict=True):
                yield f"{name}, n = {n}", y, np.asarray(f(value, n, index))


OF_TENSORS = {
    "x / n": lambda x, n, i: x / n,
    "n / x": lambda x, n, i: n / x,
    "x * n": lambda x, n, i: x * n,
    "n * x": lambda x, n, i: n * x,
    "x + n": lambda x, n, i: x + n,
    "n + x": lambda x, n, i: n + x,
    "x - n": lambda x, n, i: x - n,
    "n - x": lambda x, n, i: n - x,
    "x // n": lambda x, n, i: x // n,
    "n // x": lambda x, n, i: n // x,
    "x % n": lambda x, n, i: x % n,
    "n % x": lambda x, n, i: n % x,
    "x ** n": lambda x, n, i: sg.pow(sg.minimum(x, 3), n),
    "n ** x": lambda x, n, i: sg.pow(n, sg.minimum(x, 3)),
    "x < n": lambda x, n, i: x < n,
    "n < x": lambda x, n, i: n < x,
    "x <= n": lambda x, n, i: x <= n,
    "n <= x": lambda x, n, i: n <= x,
    "x > n": lambda x, n, i: x > n,
    "n > x": lambda x, n, i: n > x,
    "x >= n": lambda x, n, i: x >= n,
    "n >= x": lambda x, n, i: n >= x,
    "x == n": lambda x, n, i: x == n,
    "n == x": lambda x, n, i: n == x,
    "x != n": lambda x, n, i: x != n,
    "n != x": lambda x, n, i: n != x,
    "x / (2 n + 1)": lambda x, n, i: x / (2 * n + 1),
    "x / (n // 2 + 1)": lambda x, n, i: x / (n // 2 + 1),
    "sum / n": lambda x, n, i: sg.reduce_sum(x, axis=0) / n,
    "multiply": lambda x, n, i: sg.multiply(n, x),
    "maximum": lambda x, n, i: sg.maximum(x, n),
    "where": lambda x, n, i: sg.where(x > 2, x, n),
    "list": lambda x, n, i: sg.multiply(x[:, :2], [n, 2]),
    "i + n": lambda x, n, i: i + n,
    "n & i": lambda x, n, i: n & i,
    "i | n": lambda x, n, i: i | n,
    "n ^ i": lambda x, n, i: n ^ i,
    "n >> i": lambda x, n, i: n >> i,
    "i << n": lambda x, n, i: i << n,
}


@each_engine
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int64])
def test_a_size_counts_as_a_python_integer(dtype: Any, engine: str) -> None:
    wrong = {}
    for name, found, expected in run(OF_TENSORS, engine, dtype):
        try:
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=2e-3 if expected.dtype == np.float16 else 1e-6)
        except AssertionError as error:
            wrong[name] = str(error)
    assert not wrong


ALONE = {
    "a list of sizes": (lambda x, n: sg.stack([n, 2]), [5, 2], np.int32),
    "sizes and numbers": (lambda x, n: sg.multiply([n, 1.5], 2.0), [10.0, 3.0], np.float32),
    "a cast": (lambda x, n: sg.cast(n, sg.float64), 5.0, np.float64),
    "a root": (lambda x, n: sg.sqrt(n * n), 5.0, np.float32),
    "a maximum": (lambda x, n: sg.maximum(n, 7), 7, np.int32),
    "with an array": (lambda x, n: np.arange(3.0) * n, [0.0, 5.0, 10.0], np.float64),
    "below an array": (lambda x, n: n / np.array([1.0, 2.0]), [5.0, 2.5], np.float64),
    "an array compared": (lambda x, n: np.array([4, 5, 6]) < n, [True, False, False], np.bool_),
    "compared with an array": (lambda x, n: n >= np.array([4, 5, 6]), [True, True, False], np.bool_),
    "an array equal": (lambda x, n: np.array([4, 5, 6]) == n, [False, True, False], np.bool_),
    "with a NumPy float": (lambda x, n: np.float64(0.5) * n, 2.5, np.float64),
    "the size function": (lambda x, n: 1.0 / sg.size(x, axis=0), 0.2, np.float64),
    "a condition": (lambda x, n: sg.cond(sg.size(x, axis=0) > 3, lambda: 1.0, lambda: 2.0), 1.0, np.float32),
    "the product of a shape": (lambda x, n: sg.reduce_sum(x) / np.prod(x.shape), 1.0, np.float32),
    "math.prod": (lambda x, n: sg.reduce_sum(x) / math.prod(x.shape), 1.0, np.float32),
    "a gradient": (lambda x, n: sg.gradients(sg.reduce_sum(x * x) / n, [x])[0][0, 0], 0.4, np.float32),
    "a function of it": (lambda x, n: sg.fill([2], n), [5, 5], np.int32),
}


@each_engine
@pytest.mark.parametrize("name", ALONE)
def test_sizes_among_sizes_numbers_and_arrays(name: str, engine: str) -> None:
    f, expected, dtype = ALONE[name]
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n", 3])
        y = f(x, x.shape[0])
    with sg.Session(graph, engine=engine) as session:
        found = session.run(y, {x: np.ones((5, 3))})
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_inside_bodies_and_transforms_too() -> None:
    @sg.function(engine="numpy", shapes={"x": ["n"]})
    def f(x: Any) -> Any:
        n = x.shape[0]
        total, parts = sg.scan(lambda c, v: (c + v / n, v * n), 0.0, x)
        mean = sg.cond(total > 1.0, lambda: total * n, lambda: total / n)
        return mean, parts, sg.vmap(lambda v: v - n)(x), sg.grad(lambda v: sg.reduce_sum(v**n))(x)

    for x in (np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.25])):
        n = len(x)
        mean, parts, moved, slope = f(x)
        total = x.mean()
        np.testing.assert_allclose(mean, total * n if total > 1.0 else total / n)
        np.testing.assert_allclose(parts, x * n)
        np.testing.assert_allclose(moved, x - n)
        np.testing.assert_allclose(slope, n * x ** (n - 1.0))
    assert f.traces == 1


def test_no_default_graph_is_needed_beside_an_output() -> None:
    with sg.Graph().as_default() as graph:
        x = sg.placeholder(sg.float32, ["n"])
    for y in (x / x.shape[0], [x.shape[0], 2.0] * x[:2], sg.add(x.shape[0], x)):
        assert y.graph is graph


def test_lists_of_outputs_are_stacked_where_an_operand_is_asked_for() -> None:
    a, b = np.array([1.0, 5.0]), np.array([2.0, 3.0])
    cases: list[Callable[[Any, Any], Any]] = [
        lambda a, b: sg.reduce_sum([a, b]),
        lambda a, b: sg.reduce_sum([a, b], axis=0),
        lambda a, b: sg.reduce_max([a, 2.0 * b], axis=1),
        lambda a, b: sg.exp([a, b]),
        lambda a, b: sg.multiply([a, b], 2.0),
        lambda a, b: sg.matmul([a, b], [b, a]),
        lambda a, b: sg.add([a[0], 1.0, b[1]], [1, 2, 3]),
        lambda a, b: sg.softmax([a[0], b[0]]),
        lambda a, b: sg.transpose([[a, b], [b, a]]),
        lambda a, b: sg.where([True, False], [a[0], b[0]], 0.0),
        lambda a, b: a * [b[0], b[1]],
        lambda a, b: sg.reduce_mean((a, b)),
    ]
    for f in cases:
        expected = f(a, b)
        for engine in ENGINES:
            found = sg.function(f, engine=engine)(a, b)
            assert found.dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(found, expected)
    slope = sg.grad(lambda a, b: sg.reduce_sum([a, b, a]), (0, 1))(1.0, 2.0)
    assert [float(g) for g in slope] == [2.0, 1.0]
    with sg.Graph().as_default(), pytest.raises(sg.ShapeError, match=r"Pack: \(C3\)"):
        sg.reduce_sum([sg.placeholder(sg.float32, [2]), sg.placeholder(sg.float32, [3])])


# ------------------------------------------------------------------------------- by themselves

N = sg.dim("n")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (lambda: N * 2 + 1, "2*n + 1"),
        (lambda: (N * 6) // 3, "2*n"),
        (lambda: N % 2, "n - 2*(n//2)"),
        (lambda: divmod(N, 2), "(n//2, n - 2*(n//2))"),
        (lambda: divmod(7, N), "(7//n, -1*(7//n)*n + 7)"),
        (lambda: +N, "n"),
        (lambda: round(N), "n"),
        (lambda: math.floor(N) + math.ceil(N) + math.trunc(N), "3*n"),
        (lambda: abs(N + 1), "n + 1"),
        (lambda: np.int64(2) * N + np.int64(1), "2*n + 1"),
        (lambda: np.int64(7) - N, "-1*n + 7"),
        (lambda: np.int64(7) // N, "7//n"),
        (lambda: np.prod((N, 3, N)), "3*n**2"),
        (lambda: sum((N, 3)), "n + 3"),
        (lambda: math.prod((N, 3)), "3*n"),
        (lambda: sorted([N + 2, N, N + 1]), "[n, n + 1, n + 2]"),
        (lambda: max(N, N + 3), "n + 3"),
        (lambda: f"{N:d} {N!s:>3} {N:3}", "n   n n  "),
    ],
)
def test_what_stays_a_size(found: Callable[[], Any], text: str) -> None:
    assert str(found()) == text


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (lambda: N >= 0, True),
        (lambda: N < 0, False),
        (lambda: N + 1 > 0, True),
        (lambda: N + 1 <= 0, False),
        (lambda: N < N + 1, True),
        (lambda: N > N, False),
        (lambda: N >= N, True),
        (lambda: N > -1, True),
        (lambda: N <= -1, False),
        (lambda: N * N + 2 > N * N, True),
        (lambda: np.int64(0) <= N, True),
        (lambda: N // 2 >= 0, True),
        (lambda: N == 3, False),
        (lambda: N != 3, True),
        (lambda: np.int64(3) == N, False),
        (lambda: np.float32(3.0) != N, True),
        (lambda: N == N + 0, True),
    ],
)
def test_comparisons_that_hold_for_every_size(compare: Callable[[], Any], holds: bool) -> None:
    assert compare() is holds


WITHOUT_VALUE: dict[str, Callable[[], Any]] = {
    "n / 2": lambda: N / 2,
    "1 / n": lambda: 1 / N,
    "n / n": lambda: N / N,
    "n * 0.5": lambda: N * 0.5,
    "0.5 * n": lambda: 0.5 * N,
    "n + 1.0": lambda: N + 1.0,
    "1.0 - n": lambda: 1.0 - N,
    "n // 2.0": lambda: N // 2.0,
    "2 ** n": lambda: 2**N,
    "n ** n": lambda: N**N,
    "n ** 0.5": lambda: N**0.5,
    "n * 1j": lambda: N * 1j,
    "n & 1": lambda: N & 1,
    "1 | n": lambda: 1 | N,
    "n << 1": lambda: N << 1,
    "n ^ n": lambda: N ^ N,
    "n @ n": lambda: N @ N,
    "~n": lambda: ~N,
    "abs": lambda: abs(N - 3),
    "float": lambda: float(N),
    "complex": lambda: complex(N),
    "np.float32": lambda: np.float32(N),
    "np.asarray of a dtype": lambda: np.asarray(N, np.float32),
    "math.sqrt": lambda: math.sqrt(N),
    "np.log": lambda: np.log(N),
    "np.maximum": lambda: np.maximum(N, 3),
    "np.add.reduce": lambda: np.add.reduce([N], out=N),
}
UNDECIDED: dict[str, Callable[[], Any]] = {
    "n > 1": lambda: N > 1,
    "n < 5": lambda: N < 5,
    "5 >= n": lambda: N <= 5,
    "n <= 1.5": lambda: N <= 1.5,
    "bool": lambda: bool(N > 1),
    "n > m": lambda: sg.dim("m") < N,
    "max": lambda: max(N, 3),
    "np.int64": lambda: np.int64(3) < N,
}
IS_INTEGER: dict[str, Callable[[], Any]] = {
    "int": lambda: int(N),
    "range": lambda: range(N),
    "index": lambda: [1, 2][N],
    "operator.index": lambda: operator.index(N),
    "an array of integers": lambda: np.asarray(N, np.int32),
}
NO_GRAPH: dict[str, Callable[[], Any]] = {
    "an array": lambda: np.ones(2) * N,
    "n - array": lambda: N - np.ones(2),
    "array == n": lambda: np.ones(2) == N,
    "a function": lambda: sg.exp(N),
    "a function of two": lambda: sg.add(N, 1.0),
    "a list": lambda: sg.reduce_sum([N, 2]),
    "a constant": lambda: sg.constant(N),
}
NO_SIZE: dict[str, Callable[[], Any]] = {
    "a word": lambda: N * "a",
    "None": lambda: N + None,
    "a list": lambda: N * [1],
    "a flag": lambda: N + True,
    "a flag of NumPy": lambda: np.True_ + N,
    "compared with a word": lambda: N < "a",
}
CURES = {"without": WITHOUT_VALUE, "undecided": UNDECIDED, "integer": IS_INTEGER, "graph": NO_GRAPH}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, found in CURES.items() for name in found])
def test_what_has_no_value_yet_is_an_error_with_its_cure(kind: str, name: str) -> None:
    with pytest.raises(sg.ShapeError) as caught:
        CURES[kind][name]()
    text = str(caught.value)
    cure = {"undecided": "sg.cond"}.get(kind, "sg.size")
    assert cure in text
    assert "known when" in text
    assert f"{HERE}:" in text
    assert f"{sg.__path__[0]}" not in text


@pytest.mark.parametrize("name", NO_SIZE)
def test_what_is_no_number_is_no_size(name: str) -> None:
    with pytest.raises(sg.ArgumentError, match="is no size"):
        NO_SIZE[name]()


# ---------------------------------------------------------------------------------- parameters, wrt


@each_engine
def test_a_parameters_first_value_may_be_computed_from_constants(engine: str) -> None:
    key = sg.random_key(3)
    with sg.Graph().as_default() as graph:
        zeros = sg.parameter(sg.zeros([3]), name="zeros")
        wide = sg.parameter(sg.ones([2]) * 2.0, dtype=sg.float64)
        drawn = sg.parameter(0.1 * sg.random_normal([2, 2], key) + sg.constant(1.0))
        looped = sg.parameter(sg.scan(lambda c, _: (c * 2.0, None), 1.0, length=5)[0])
        listed = sg.parameter([sg.constant(1.0), 2.0])
        assert [w.op.type for w in (zeros, wide, drawn, looped, listed)] == ["Parameter"] * 5
        step = sg.assign(zeros, zeros + 1.0)
    with sg.Session(graph, engine=engine) as session:
        assert session.run(zeros).tolist() == [0.0, 0.0, 0.0]
        session.run(step)
        assert session.value(zeros).tolist() == [1.0, 1.0, 1.0]
        assert (session.value(wide).dtype, session.value(wide).tolist()) == (np.float64, [2.0, 2.0])
        np.testing.assert_array_equal(
            session.value(drawn), np.float32(0.1) * sg.random_normal([2, 2], key) + np.float32(1.0)
        )
        assert session.value(looped) == 32.0
        assert session.value(listed).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "value",
    [
        lambda: sg.placeholder(sg.float32, [2]),
        lambda: sg.placeholder(sg.float32, [2]) * 2.0,
        lambda: sg.parameter(np.ones(2)) * 2.0,
        lambda: sg.zeros(["n"]),
        lambda: sg.cast(sg.size(sg.placeholder(sg.float32, ["n"])), sg.float32),
    ],
)
def test_a_parameters_first_value_depends_on_nothing_else(value: Callable[[], Any]) -> None:
    with sg.Graph().as_default() as graph:
        made = value()
        before = len(graph)
        with pytest.raises(sg.GraphError, match="has no value yet; give the first value as an array"):
            sg.parameter(made)
        assert len(graph) == before


def test_structures_of_parameters_can_be_named_whole() -> None:
    with sg.Graph().as_default():
        params = {
            "encoder": {"w": sg.parameter(np.ones(3)), "b": sg.parameter(np.zeros(3))},
            "decoder": [sg.parameter(np.ones(3))],
            "layers": 2,
            "act": "tanh",
            "f": sg.tanh,
        }
        h = sg.stop_gradient(params["encoder"]["w"] + params["encoder"]["b"], wrt=params["encoder"])
        y = sg.reduce_sum(h * params["decoder"][0])
        sg.assert_blocked(y, params["encoder"])
        sg.assert_flows(y, params["decoder"])
        assert {found.status for found in sg.explain(y, params).values()} == {"stopped", "flows"}
        with pytest.raises(sg.GradientError, match="gradients arrive at Parameter_2, and should not"):
            sg.assert_blocked(y, params)
        sg.assert_blocked(sg.stop_gradient(y, wrt=params), params)
        assert sg.gradients(y, params["encoder"]) == {"w": None, "b": None}
        for wrong in ("encoder", {"layers": 2}, 3):
            with pytest.raises(sg.GraphError, match="wrt= takes tensors"):
                sg.stop_gradient(y, wrt=wrong)


@pytest.mark.parametrize("compiled", [False, True])
def test_structures_of_arguments_can_be_named_whole(compiled: bool) -> None:
    def loss(params: Any, x: Any) -> Any:
        h = sg.stop_gradient(params["encoder"]["w"] * x, wrt=params["encoder"])
        return sg.reduce_sum(h * params["decoder"]["w"])

    f = sg.grad(loss)
    params = {"encoder": {"w": np.full(2, 3.0), "layers": 2}, "decoder": {"w": np.ones(2)}}
    found = (sg.function(f) if compiled else f)(params, 2.0)
    assert found["encoder"]["w"].tolist() == [0.0, 0.0]
    assert found["decoder"]["w"].tolist() == [6.0, 6.0]
    assert loss(params, 2.0) == 12.0
