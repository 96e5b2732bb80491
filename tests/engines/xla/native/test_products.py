"""Products of matrices by a kernel in C++: as NumPy has them in float64, and no less exact than XLA's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_kernels import Native, agree, floats

import stopgrad as sg
from stopgrad.engines.xla.native import products
from stopgrad.engines.xla.native.library import library

pytestmark = pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")

CHOICE = products._pays
TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]


@pytest.fixture(autouse=True)
def _all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel take whatever it can."""
    monkeypatch.setattr(products, "_pays", lambda *_: True)


def product(transpose_a: bool, transpose_b: bool) -> Callable[..., Any]:
    return lambda a, b: sg.matmul(a, b, transpose_a, transpose_b)


def operands(m: int, k: int, n: int, transpose_a: bool, transpose_b: bool) -> Any:
    return floats(*((k, m) if transpose_a else (m, k))), floats(*((n, k) if transpose_b else (k, n)))


# ------------------------------------------------------------------------------------------------ sizes


@pytest.mark.parametrize("n", [*range(1, 71, 3), 16, 32, 48, 64])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_all_numbers_of_columns(transpose_a: bool, transpose_b: bool, n: int) -> None:
    given = operands(17, 33, n, transpose_a, transpose_b)
    agree(product(transpose_a, transpose_b), *given, kernels=1)


@pytest.mark.parametrize("m", [*range(1, 16), 27, 28, 29, 41, 43, 57, 70])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_all_numbers_of_rows(transpose_a: bool, transpose_b: bool, m: int) -> None:
    given = operands(m, 21, 37, transpose_a, transpose_b)
    agree(product(transpose_a, transpose_b), *given, kernels=1)


@pytest.mark.parametrize("k", [1, 2, 15, 16, 17, 31, 64, 319, 320, 321, 640, 641, 1500])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_all_depths(transpose_a: bool, transpose_b: bool, k: int) -> None:
    given = operands(19, k, 35, transpose_a, transpose_b)
    agree(product(transpose_a, transpose_b), *given, kernels=1)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(128, 784, 512), (784, 128, 500), (1000, 400, 50), (50, 400, 1000), (3, 2000, 700)]
)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_sizes_at_which_work_is_divided(m: int, k: int, n: int, transpose_a: bool, transpose_b: bool) -> None:
    given = operands(m, k, n, transpose_a, transpose_b)
    agree(product(transpose_a, transpose_b), *given, kernels=1)


@pytest.mark.parametrize("seed", range(20))
def test_random_sizes(seed: int) -> None:
    random = np.random.default_rng(seed)
    m, k, n = (int(2 ** random.uniform(0, 8.5)) for _ in range(3))
    transposes = bool(random.integers(2)), bool(random.integers(2))
    agree(product(*transposes), *operands(m, k, n, *transposes), kernels=1)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4, 9, 7), (4, 7, 5)),
        ((2, 3, 9, 7), (2, 3, 7, 5)),
        ((2, 3, 9, 7), (7, 5)),
        ((9, 7), (3, 7, 5)),
        ((1, 9, 7), (3, 7, 5)),
        ((3, 9, 7), (1, 7, 5)),
        ((12, 64, 64), (12, 64, 64)),
    ],
)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_batches(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> None:
    first, second = floats(*a), floats(*b)
    if transpose_a:
        first = np.ascontiguousarray(np.swapaxes(first, -1, -2))
    if transpose_b:
        second = np.ascontiguousarray(np.swapaxes(second, -1, -2))
    agree(product(transpose_a, transpose_b), first, second, kernels=1)


@pytest.mark.parametrize(
    ("a", "b"), [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((2, 1, 3, 4), (5, 4, 3))]
)
def test_empty_ones_and_batches_that_broadcast_both_ways_are_left_to_xla(a: Any, b: Any) -> None:
    agree(product(False, False), floats(*a), floats(*b), kernels=0)


def test_other_dtypes_are_left_to_xla() -> None:
    for dtype in (sg.float64, sg.float16, sg.bfloat16, sg.int32, sg.complex64):
        with sg.Graph().as_default() as graph:
            y = sg.matmul(sg.placeholder(dtype, (64, 64)), sg.placeholder(dtype, (64, 64)))
        assert not products.regions(graph.operations, [y])


@pytest.mark.parametrize(
    ("m", "k", "n", "transpose_a", "kernels"),
    [
        (128, 784, 512, False, 1),
        (128, 512, 10, False, 1),
        (1, 512, 512, False, 0),
        (512, 512, 1, True, 0),
        (300, 16, 300, False, 0),
        (700, 700, 700, False, 0),
        (700, 700, 700, True, 1),
    ],
)
def test_what_is_no_better_by_the_kernel_is_left_to_xla(
    monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int, transpose_a: bool, kernels: int
) -> None:
    monkeypatch.setattr(products, "_pays", CHOICE)
    agree(product(transpose_a, False), *operands(m, k, n, transpose_a, False), kernels=kernels)


# --------------------------------------------------------------------------------- what follows, fused


@pytest.mark.parametrize("m", [1, 30])
@pytest.mark.parametrize("n", [5, 16, 45])
@pytest.mark.parametrize("shape", [(), (1,), (-1,), (1, -1), (1, 1, -1), (-2, 1), (-2, -1)])
@pytest.mark.parametrize("relu", [False, True])
def test_a_bias_and_relu_join_the_product(shape: Any, relu: bool, m: int, n: int) -> None:
    shape = tuple({-1: n, -2: m}.get(size, size) for size in shape)

    def function(a: Any, b: Any, bias: Any) -> Any:
        y = a @ b + bias
        return sg.relu(y) if relu else y

    native = agree(function, floats(m, 7), floats(7, n), floats(*shape), kernels=1)
    joins = (n in shape and len(shape) < 3 and (m, n) != shape) or shape == (1, n)
    assert native.computed == [["MatMul"] + ["AddV2"] * joins + ["Relu"] * (relu and joins)]


def test_relu_joins_the_product() -> None:
    native = agree(lambda a, b: sg.relu(a @ b), floats(20, 7), floats(7, 40), kernels=1)
    assert native.computed == [["MatMul", "Relu"]]


def test_the_gate_of_a_relu_before_joins_the_input_s_gradient() -> None:
    def function(x: Any, w: Any, g: Any) -> Any:
        return sg.gradients([sg.relu(x) @ w], [x], [g])

    native = agree(function, floats(30, 45), floats(45, 20), floats(30, 20), kernels=1)
    assert native.computed == [["MatMul", "ReluGrad"]]


@pytest.mark.parametrize("scale_first", [False, True])
def test_a_step_of_gradient_descent_joins_the_gradient(scale_first: bool) -> None:
    def function(x: Any, w: Any, g: Any, rate: Any) -> Any:
        (dw,) = sg.gradients([x @ w], [w], [g])
        return w - (rate * dw if scale_first else dw * rate)

    given = floats(50, 45), floats(45, 20), floats(50, 20), np.float32(0.1)
    native = agree(function, *given, kernels=1)
    assert native.computed == [["MatMul", "Mul", "Sub"]]


NEAR_MISSES: list[tuple[Callable[..., Any], list[str]]] = [
    (lambda a, b, c: [(y := a @ b), sg.relu(y)], ["MatMul"]),
    (lambda a, b, c: (y := a @ b) + y, ["MatMul"]),
    (lambda a, b, c: [(y := a @ b) + c[0], sg.exp(y)], ["MatMul"]),
    (lambda a, b, c: [(y := a @ b + c[0]), sg.relu(y)], ["MatMul", "AddV2"]),
    (lambda a, b, c: 0.5 * (a @ b) - c, ["MatMul"]),
    (lambda a, b, c: c - c[:, :1] * (a @ b), ["MatMul"]),
    (lambda a, b, c: c[0] - 0.5 * (a @ b), ["MatMul"]),
    (lambda a, b, c: [(g := 0.5 * (a @ b)), c - g], ["MatMul"]),
    (lambda a, b, c: [c - 0.5 * (y := a @ b), y], ["MatMul"]),
    (lambda a, b, c: sg.ops.ReluGrad.function(a @ b, c), ["MatMul"]),
    (lambda a, b, c: sg.ops.ReluGrad.function(c[0], a @ b), ["MatMul"]),
    (lambda a, b, c: (a @ b) + sg.expand_dims(c, 0), ["MatMul"]),
    (lambda a, b, c: (a @ b) - c, ["MatMul"]),
]


@pytest.mark.parametrize(("function", "types"), NEAR_MISSES)
def test_what_is_read_elsewhere_or_of_another_shape_does_not_join(
    function: Callable[..., Any], types: list[str]
) -> None:
    native = agree(function, floats(20, 7), floats(7, 33), floats(20, 33), kernels=1)
    assert native.computed == [types]


# ------------------------------------------------------------------------------------------- gradients


def perceptron(x: Any, g: Any, *params: Any) -> Any:
    *hidden, last = zip(params[::2], params[1::2], strict=True)
    for w, b in hidden:
        x = sg.relu(x @ w + b)
    y = x @ last[0] + last[1]
    steps = sg.gradients([y], [*params], [g])
    return [y, *(p - 0.1 * step for p, step in zip(params, steps, strict=True))]


def perceptron_of(*widths: int, batch: int) -> list[Any]:
    given = [floats(batch, widths[0]), floats(batch, widths[-1])]
    for inside, outside in pairwise(widths):
        given += [floats(inside, outside) / np.float32(np.sqrt(inside)), floats(outside)]
    return given


def test_steps_of_a_perceptron() -> None:
    native = agree(perceptron, *perceptron_of(90, 70, 50, 10, batch=33), kernels=8)
    assert [len(kinds) for kinds in native.computed].count(3) == 5


def test_second_derivatives() -> None:
    def function(a: Any, b: Any, g: Any) -> Any:
        y = sg.relu(a @ b)
        da, db = sg.gradients([y * y], [a, b], [g])
        return sg.gradients([sg.reduce_sum(da * da) + sg.reduce_sum(db * db)], [a, b, g])

    agree(function, floats(9, 8), floats(8, 7), floats(9, 7), kernels=9)


# --------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_extremes_go_where_they_should(
    value: float, where: int, transpose_a: bool, transpose_b: bool
) -> None:
    given = [np.abs(x) for x in operands(17, 19, 37, transpose_a, transpose_b)]
    given[where].reshape(-1)[7] = value
    given[1 - where].reshape(-1)[::5] = 0  # 0 * inf is NaN
    function = product(transpose_a, transpose_b)
    (ours,) = Native(function, *given).values
    theirs = np.asarray(sg.function(function, engine="xla", strict=True)(*given))
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))


def test_nan_passes_relu_and_its_gate() -> None:
    a, b, y = floats(20, 7), floats(7, 33), floats(20, 33)
    a[3, 2] = np.nan
    (found,) = Native(lambda a, b: sg.relu(a @ b), a, b).values
    assert np.isnan(found[3]).all()
    assert not np.isnan(np.delete(found, 3, 0)).any()
    y[5, 5] = np.nan
    (gated,) = Native(lambda y, a, b: sg.ops.ReluGrad.function(y, a @ b), y, a, b).values
    np.testing.assert_array_equal(np.isnan(gated[3]), y[3] > 0)
    assert gated[5, 5] == 0


# ------------------------------------------------------------------------------------------ repeatable


def test_results_are_the_same_whenever_they_are_computed() -> None:
    given = perceptron_of(400, 300, 10, batch=128)
    native = Native(perceptron, *given)
    for _ in range(20):
        for first, again in zip(native.values, native.run(*given), strict=True):
            np.testing.assert_array_equal(first, np.asarray(again))


PINNED = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path[:0] = sys.argv[1:3]
import numpy as np
from native_kernels import Native
from test_products import perceptron, products
products._pays = lambda *_: True
given = np.load(sys.argv[3])
np.savez(sys.argv[4], *Native(perceptron, *[given[name] for name in given.files]).values)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be kept on one core here")
def test_the_number_of_threads_changes_nothing(tmp_path: Any) -> None:
    given = perceptron_of(400, 300, 10, batch=128)
    np.savez(tmp_path / "given.npz", *given)
    here = Path(__file__).parent
    command = [sys.executable, "-c", PINNED, str(here), str(here.parent)]
    subprocess.run([*command, tmp_path / "given.npz", tmp_path / "found.npz"], check=True)
    alone = np.load(tmp_path / "found.npz")
    for ours, name in zip(Native(perceptron, *given).values, alone.files, strict=True):
        if ours.ndim == 2:  # Sums over the batch are XLA's, and depend on it.
            np.testing.assert_array_equal(ours, alone[name])


def test_many_at_once_do_not_wait_for_each_other() -> None:
    # Each handler runs in a thread of the pool that it asks for help.
    def function(a: Any, b: Any) -> Any:
        return [(a * float(i)) @ b for i in range(12)]

    native = Native(function, floats(200, 150), floats(150, 100))
    for i, y in enumerate(native.values):
        np.testing.assert_allclose(y, native.values[1] * i, rtol=1e-5, atol=1e-3)
