"""Convolutions by kernels in C++: as NumPy has them in float64, and no less exact than XLA's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_kernels import Native, agree, floats, three
from places import HELPERS

import stopgrad as sg
from stopgrad.engines.xla.native import convolution
from stopgrad.engines.xla.native.library import library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}"),
]


def arguments(x: Any, filters: Any, **geometry: Any) -> tuple[Any, ...]:
    first, second = floats(*x), floats(*filters)
    with sg.Graph().as_default():
        shape = sg.conv(sg.placeholder(sg.float32, x), sg.placeholder(sg.float32, filters), **geometry).shape
    return first, second, floats(*(int(n) for n in shape))


def number(filters: Any) -> int:
    """Of kernels: the input's gradient is XLA's where few channels each take much."""
    return 2 if filters[-2] < 4 < filters[-1] else 3


GEOMETRIES: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 9, 8, 5), (3, 3, 5, 7), {}),
    ((2, 9, 8, 5), (3, 3, 5, 7), {"padding": "SAME"}),
    ((2, 9, 8, 5), (3, 2, 5, 7), {"padding": ((2, 0), (1, 3))}),
    ((2, 9, 8, 5), (3, 3, 5, 7), {"padding": "SAME", "strides": 2}),
    ((2, 9, 11, 5), (3, 2, 5, 7), {"padding": "SAME", "strides": (2, 3)}),
    ((2, 9, 11, 5), (2, 2, 5, 7), {"strides": 3}),
    ((2, 9, 11, 5), (3, 2, 5, 7), {"padding": "SAME", "dilations": (2, 3)}),
    ((2, 15, 14, 5), (3, 3, 5, 7), {"strides": (2, 3), "dilations": (3, 2), "padding": ((1, 2), (0, 3))}),
    ((2, 7, 7, 5), (3, 3, 5, 7), {"padding": ((9, 8), (7, 9))}),  # windows of nothing but padding
    ((1, 5, 5, 4), (5, 5, 4, 4), {}),
    ((3, 4, 4, 4), (7, 6, 4, 5), {"padding": "SAME"}),
    ((1, 1, 1, 4), (3, 3, 4, 6), {"padding": "SAME"}),
    ((2, 20, 3), (5, 3, 8), {"padding": "SAME", "strides": 2}),
    ((2, 33, 7), (3, 7, 5), {"dilations": 4}),
    ((2, 6, 5, 7, 3), (3, 2, 3, 3, 6), {"padding": "SAME"}),
    ((2, 6, 5, 7, 3), (2, 3, 2, 3, 6), {"strides": (2, 1, 3), "padding": ((1, 0), (0, 2), (1, 1))}),
    ((2, 6, 6, 7, 3), (2, 2, 2, 3, 6), {"dilations": (2, 3, 1), "padding": "SAME", "strides": (3, 2, 1)}),
]


@pytest.mark.parametrize(("x", "filters", "geometry"), GEOMETRIES)
def test_all_geometries(x: Any, filters: Any, geometry: dict[str, Any]) -> None:
    agree(three(**geometry), *arguments(x, filters, **geometry), kernels=number(filters))


@pytest.mark.parametrize("features", [4, 5, 10, 16, 17, 33, 48, 64, 65, 130])
@pytest.mark.parametrize("channels", [1, 3, 4, 16, 31])
def test_all_numbers_of_channels(channels: int, features: int) -> None:
    filters = (3, 3, channels, features)
    given = arguments((2, 7, 9, channels), filters, padding="SAME")
    agree(three(padding="SAME"), *given, kernels=number(filters))


@pytest.mark.parametrize(
    ("x", "filters"),
    [
        ((3, 40, 40, 8), (3, 3, 8, 12)),  # several slabs of rows
        ((70, 8, 8, 8), (3, 3, 8, 12)),  # several planes in a slab
        ((2, 14, 14, 120), (3, 3, 120, 20)),  # more channels than are added up in one go
        ((2, 5, 5, 400), (2, 2, 400, 20)),
        ((1, 9, 300, 64), (3, 3, 64, 4)),
        ((2, 64, 64, 32), (3, 3, 32, 64)),  # in several threads
    ],
)
@pytest.mark.parametrize("strides", [1, 2])
def test_sizes_at_which_work_is_divided(x: Any, filters: Any, strides: int) -> None:
    geometry = {"padding": "SAME", "strides": strides}
    agree(three(**geometry), *arguments(x, filters, **geometry), kernels=3)


def test_second_derivatives() -> None:
    def function(x: Any, filters: Any, g: Any) -> Any:
        y = sg.conv(x, filters, 2, "SAME")
        dx, dw = sg.gradients([y * y], [x, filters], [g])
        return sg.gradients([sg.reduce_sum(dx * dx) + sg.reduce_sum(dw * dw)], [x, filters, g])

    native = agree(function, *arguments((2, 6, 5, 4), (3, 3, 4, 5), strides=2, padding="SAME"), kernels=9)
    assert {kinds[0] for kinds in native.computed} == {"Conv", "ConvBackpropInput", "ConvBackpropFilter"}


# ---------------------------------------------------------------------------- what XLA goes on computing


@pytest.mark.parametrize(
    ("x", "filters", "geometry", "kernels"),
    [
        ((2, 5, 5, 4), (3, 3, 2, 4), {"groups": 2}, 0),
        ((0, 5, 5, 4), (3, 3, 4, 4), {}, 0),
        ((2, 5, 5, 0), (3, 3, 0, 4), {}, 0),
        ((2, 5, 5, 4), (3, 3, 4, 0), {}, 0),
        ((2, 5, 5, 4), (1, 1, 4, 4), {}, 1),  # products of matrices
        ((2, 5, 5, 32), (3, 3, 32, 1), {}, 2),
        ((1, 4, 4, 256), (3, 3, 256, 256), {"padding": "SAME"}, 2),  # a large gradient of filters
        ((1, 2, 2, 2, 2, 4), (1, 2, 2, 2, 4, 4), {}, 0),
    ],
)
def test_what_is_no_better_by_kernels_is_left_to_xla(
    x: Any, filters: Any, geometry: dict[str, Any], kernels: int
) -> None:
    agree(three(**geometry), *arguments(x, filters, **geometry), kernels=kernels)


def test_float64_and_float16_are_left_to_xla() -> None:
    for dtype in (sg.float64, sg.float16, sg.bfloat16):
        with sg.Graph().as_default() as graph:
            x, filters = sg.placeholder(dtype, (2, 5, 5, 4)), sg.placeholder(dtype, (3, 3, 4, 4))
            y = sg.conv(x, filters)
        assert not convolution.regions(graph.operations, [y])


# --------------------------------------------------------------------------------- what follows, fused


def layer(*, relu: bool) -> Callable[..., Any]:
    def function(x: Any, filters: Any, g: Any, *bias: Any) -> Any:
        y = sg.conv(x, filters, padding="SAME")
        if bias:
            y = y + bias[0]
        if relu:
            y = sg.relu(y)
        return [y, *sg.gradients([y], [x, filters], [g])]

    return function


@pytest.mark.parametrize("features", [5, 16])
@pytest.mark.parametrize("shape", [None, (), (1,), (-1,), (1, -1), (1, 1, 1, -1), (7, 1), (2, 6, 7, -1)])
@pytest.mark.parametrize("relu", [False, True])
def test_a_bias_and_relu_join_the_convolution(shape: Any, relu: bool, features: int) -> None:
    shape = shape if shape is None else tuple(features if n == -1 else n for n in shape)
    given = arguments((2, 6, 7, 4), (3, 3, 4, features), padding="SAME")
    bias = [] if shape is None else [floats(*shape)]
    native = agree(layer(relu=relu), *given, *bias, kernels=3)
    joins = shape is not None and features in shape and shape != (2, 6, 7, features)
    expected = ["Conv"] + ["AddV2"] * joins + ["Relu"] * (relu and (joins or shape is None))
    assert native.computed[0] == expected


def test_what_is_read_elsewhere_is_not_hidden() -> None:
    x, filters = floats(2, 6, 7, 4), floats(3, 3, 4, 5)

    def both(x: Any, filters: Any) -> Any:
        y = sg.conv(x, filters)
        return [y, sg.relu(y)]

    assert agree(both, x, filters, kernels=1).computed == [["Conv"]]

    def twice(x: Any, filters: Any) -> Any:
        y = sg.conv(x, filters)
        return y + y

    assert agree(twice, x, filters, kernels=1).computed == [["Conv"]]


@pytest.mark.parametrize("strides", [1, 2])
def test_the_gate_of_a_relu_before_joins_the_input_s_gradient(strides: int) -> None:
    def function(x: Any, filters: Any, g: Any) -> Any:
        y = sg.conv(sg.relu(x), filters, strides, "SAME")
        return sg.gradients([y], [x], [g])

    given = arguments((2, 6, 7, 6), (3, 3, 6, 5), strides=strides, padding="SAME")
    native = agree(function, *given, kernels=1)
    assert native.computed == [["ConvBackpropInput", "ReluGrad"]]


# --------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_extremes_go_where_they_should(value: float, where: int) -> None:
    given = [np.abs(x) for x in arguments((2, 9, 9, 6), (3, 3, 6, 5), padding="SAME")]
    given[where].reshape(-1)[7] = value
    found = Native(three(padding="SAME"), *given)
    plain = sg.function(three(padding="SAME"), engine="xla", strict=True)(*given)
    assert len(found.computed) == 3
    for ours, theirs in zip(found.values, plain, strict=True):
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
        np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))


def test_nan_passes_relu_and_its_gate() -> None:
    x, filters = floats(1, 5, 5, 4), floats(3, 3, 4, 4)
    x[0, 2, 2, 1] = np.nan
    (found,) = Native(lambda x, f: sg.relu(sg.conv(x, f)), x, filters).values
    assert np.isnan(found).all()
    gated = Native(
        lambda y, f, g: sg.gradients([sg.conv(sg.relu(y), f)], [y], [g]), x, filters, floats(1, 3, 3, 4)
    )
    assert gated.values[0][0, 2, 2, 1] == 0


# ------------------------------------------------------------------------------------------ repeatable


def test_results_are_the_same_whenever_they_are_computed() -> None:
    given = arguments((16, 28, 28, 16), (3, 3, 16, 32), padding="SAME")
    native = Native(three(padding="SAME"), *given)
    for _ in range(20):
        for first, again in zip(native.values, native.run(*given), strict=True):
            np.testing.assert_array_equal(first, np.asarray(again))


PINNED = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path.insert(0, sys.argv[1])
import numpy as np
from native_kernels import Native, three
given = np.load(sys.argv[2])
np.savez(sys.argv[3], *Native(three(padding="SAME"), *[given[name] for name in given.files]).values)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be kept on one core here")
def test_the_number_of_threads_changes_nothing(tmp_path: Any) -> None:
    given = arguments((16, 28, 28, 16), (3, 3, 16, 32), padding="SAME")
    np.savez(tmp_path / "given.npz", *given)
    command = [sys.executable, "-c", PINNED, str(HELPERS)]
    subprocess.run([*command, tmp_path / "given.npz", tmp_path / "found.npz"], check=True)
    alone = np.load(tmp_path / "found.npz")
    for ours, name in zip(Native(three(padding="SAME"), *given).values, alone.files, strict=True):
        np.testing.assert_array_equal(ours, alone[name])


def test_many_at_once_do_not_wait_for_each_other() -> None:
    # Each handler runs in a thread of the pool that it asks for help.
    given = arguments((8, 28, 28, 16), (3, 3, 16, 32), padding="SAME")

    def function(x: Any, filters: Any, g: Any) -> Any:
        return [
            y
            for i in range(12)
            for y in sg.gradients([sg.conv(x * float(i), filters, padding="SAME")], [x, filters], [g])
        ]

    native = Native(function, *given)
    for i, (dx, dw) in enumerate(zip(native.values[::2], native.values[1::2], strict=True)):
        np.testing.assert_allclose(dx, native.values[2] * i, rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(dw, native.values[3] * i, rtol=1e-5, atol=1e-2)
