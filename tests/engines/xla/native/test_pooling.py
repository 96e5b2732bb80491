"""Gradients of pooling by kernels in C++: as NumPy has them in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_kernels import Native, agree, floats

import stopgrad as sg
from stopgrad.engines.xla.native.library import library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}"),
]

POOLS = [sg.max_pool, sg.avg_pool]


def windows(
    pool: Callable[..., Any],
    x: Any,
    ksize: Any,
    strides: Any = None,
    padding: Any = "VALID",
    dilations: Any = 1,
) -> Any:
    return pool(x, ksize, strides, padding, dilations=dilations)


def gradient(pool: Callable[..., Any], *args: Any, relu: bool = False) -> Callable[..., Any]:
    def function(x: Any, g: Any) -> Any:
        y = windows(pool, sg.relu(x) if relu else x, *args)
        return sg.gradients([y], [x], [g])

    return function


def arguments(shape: Any, *args: Any) -> tuple[Any, Any]:
    x = np.round(floats(*shape) * 2) / 2  # with many ties
    with sg.Graph().as_default():
        y = windows(sg.max_pool, sg.placeholder(sg.float32, shape), *args)
    return x, floats(*(int(n) for n in y.shape))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(
    ("shape", "args"),
    [
        ((2, 8, 8, 16), (2,)),
        ((2, 9, 7, 17), (2,)),  # a remainder that no window sees
        ((2, 9, 7, 16), (3, 2, "SAME")),
        ((2, 9, 7, 16), (3, 1, "SAME")),
        ((2, 9, 7, 70), ((2, 3), (3, 1), ((1, 0), (2, 1)))),
        ((2, 12, 13, 16), ((3, 2), (2, 1), "SAME", (2, 3))),
        ((2, 9, 7, 16), (2, 4)),
        ((1, 1, 1, 16), (3, 1, "SAME")),
        ((3, 21, 16), (3, 2)),
        ((2, 6, 5, 7, 16), (3, 2, "SAME")),
        ((2, 200, 60, 16), (3, 2, "SAME")),  # rows of one image in several tasks
        ((1, 100, 100, 16), (5, 1, "SAME", 3)),
    ],
)
def test_all_geometries(shape: Any, args: Any, pool: Callable[..., Any], relu: bool) -> None:
    native = agree(gradient(pool, *args, relu=relu), *arguments(shape, *args), kernels=1)
    kind = "MaxPoolGrad" if pool is sg.max_pool else "AvgPoolGrad"
    assert native.computed == [[kind, "ReluGrad"] if relu else [kind]]


def test_the_first_of_the_largest_takes_the_gradient() -> None:
    x, g = np.zeros((1, 4, 4, 16), np.float32), np.ones((1, 2, 2, 16), np.float32)
    (found,) = Native(gradient(sg.max_pool, 2), x, g).values
    assert found[0, :, :, 3].tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("args", [(2,), (3, 2, "SAME"), (3, 1, "SAME")])
def test_a_window_with_a_nan_passes_nothing_back_and_one_of_minus_infinities_does(args: Any) -> None:
    x, g = arguments((1, 9, 8, 16), *args)
    x[0, 4, 4, :8] = np.nan
    x[0, 0:3, 0:3, 8:] = -np.inf
    x[0, 6, 6, :] = np.inf
    agree(gradient(sg.max_pool, *args), x, g, kernels=1)


@pytest.mark.parametrize("pool", POOLS)
def test_second_derivatives(pool: Callable[..., Any]) -> None:
    def function(x: Any, g: Any) -> Any:
        y = pool(x, 3, 2, "SAME")
        (dx,) = sg.gradients([y * y], [x], [g])
        return sg.gradients([sg.reduce_sum(dx * dx)], [x, g])

    native = agree(function, *arguments((2, 9, 7, 16), 3, 2, "SAME"), kernels=2)
    assert all(kinds[0] in ("MaxPoolGrad", "AvgPoolGrad") for kinds in native.computed)


@pytest.mark.parametrize(
    ("shape", "args"), [((2, 8, 8, 15), (2,)), ((0, 8, 8, 16), (2,)), ((2, 2, 2, 2, 2, 16), (1,))]
)
@pytest.mark.parametrize("pool", POOLS)
def test_what_is_no_better_by_kernels_is_left_to_xla(shape: Any, args: Any, pool: Callable[..., Any]) -> None:
    agree(gradient(pool, *args), *arguments(shape, *args), kernels=0)


def test_results_are_the_same_whenever_they_are_computed() -> None:
    given = arguments((32, 56, 56, 16), 3, 2, "SAME")
    native = Native(gradient(sg.max_pool, 3, 2, "SAME"), *given)
    for _ in range(20):
        np.testing.assert_array_equal(native.values[0], np.asarray(native.run(*given)[0]))
