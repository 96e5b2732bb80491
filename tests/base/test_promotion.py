"""Promotion: NumPy 2's dtypes, weak Python numbers, and errors that say where a dtype came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from together import together

import stopgrad as sg

NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


def in_graph(f: Callable[..., Any], *arrays: Any) -> Any:
    with sg.Graph().as_default() as graph:
        fed = [sg.placeholder(a.dtype, a.shape) if isinstance(a, np.ndarray) else a for a in arrays]
        y = f(*fed)
    with sg.Session(graph, engine="numpy") as session:
        feeds = {x: a for x, a in zip(fed, arrays, strict=True) if isinstance(x, sg.Output)}
        return session.run(y, feeds)


@together("a, b", [(a, b) for b in NAMES for a in NAMES])
def test_two_tensors_have_the_dtype_that_numpy_gives_them(a: str, b: str) -> None:
    x, y = np.ones(3, a), np.ones(3, b)
    expected = np.result_type(a, b)
    assert sg.concat([x, y], 0).dtype == expected
    assert in_graph(lambda x, y: sg.concat([x, y], 0), x, y).dtype == expected
    if expected != np.dtype("bool"):
        assert in_graph(lambda x, y: x * y, x, y).dtype == sg.multiply(x, y).dtype == expected


@pytest.mark.parametrize("a", NAMES)
@pytest.mark.parametrize("number", [True, 2, 2.0, 2j])
def test_a_python_number_takes_the_dtype_of_what_it_meets(a: str, number: Any) -> None:
    x = np.ones(3, a)
    default = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}[type(number)]
    order = "biufc"
    higher = order.replace("u", "i").index(np.dtype(default).kind) > order.index(
        x.dtype.kind.replace("u", "i")
    )
    expected = np.result_type(a, default) if higher else x.dtype
    assert sg.concat([x, [number]], 0).dtype == expected
    assert in_graph(lambda x: sg.concat([x, [number]], 0), x).dtype == expected


def test_bfloat16_counts_as_float16_does() -> None:
    x = np.ones(2, sg.bfloat16)
    dtypes = {
        "bool": "bfloat16",
        "int8": "bfloat16",
        "int32": "float64",
        "float16": "float32",
        "float32": "float32",
    }
    for name, expected in dtypes.items():
        assert (
            sg.add(x, np.ones(2, name)).dtype == sg.multiply(np.ones(2, name), x).dtype == np.dtype(expected)
        )
    assert sg.multiply(x, 2.5).dtype == sg.bfloat16


def test_where_floating_point_is_needed_integers_become_it() -> None:
    expected = {
        "bool": "float32",
        "int8": "float32",
        "int16": "float32",
        "int32": "float64",
        "int64": "float64",
    }
    for name, dtype in expected.items():
        x = np.ones(3, name)
        for f in (sg.sqrt, sg.reduce_mean, lambda x: sg.divide(x, x), sg.sin, sg.softmax):
            assert f(x).dtype == in_graph(f, x).dtype == dtype
    assert sg.sqrt(2).dtype == sg.sqrt(2.0).dtype == np.float32


def test_what_new_users_type_first() -> None:
    done, q = np.array([True, False]), np.array([1.0, 2.0], np.float32)
    assert in_graph(lambda done, q: q * (1.0 - done), done, q).tolist() == [0.0, 2.0]
    assert in_graph(lambda done, q: done * q, done, q).tolist() == [1.0, 0.0]
    found = in_graph(lambda x: x @ [1.0, 2.0, 3.0], np.ones((2, 3)))
    assert found.dtype == np.float64
    assert found.tolist() == [6.0, 6.0]
    assert in_graph(lambda c: sg.where(c, 1, 0.0), done).tolist() == [1.0, 0.0]
    assert in_graph(lambda step: 0.9**step, np.array(2, np.int32)) == pytest.approx(0.81)
    assert (
        in_graph(lambda x: x * np.float64(2.0), q).dtype == np.float64
    )  # NumPy's own numbers are no Python's.


def test_casts_stand_in_the_graph_and_gradients_come_back_in_the_dtype_of_their_operand() -> None:
    with sg.Graph().as_default() as graph:
        x, y = sg.placeholder(sg.float32, [2]), sg.placeholder(sg.float64, [2])
        dx, dy = sg.gradients(x * y, [x, y])
    assert [op.type for op in graph.operations][2:4] == ["Cast", "Mul"]
    assert (dx.dtype, dy.dtype) == (sg.float32, sg.float64)


def test_a_dtype_that_does_not_fit_any_more_names_what_widened_it() -> None:
    with sg.Graph().as_default():
        w = sg.parameter(np.zeros(3, np.float32), name="w")
        step = sg.placeholder(sg.int32, [], name="step")
        rate = 0.9**step
        with pytest.raises(sg.DTypeError) as caught:
            sg.assign(w, w - rate * w)
        message = str(caught.value)
        assert "float64 came in with Pow" in message
        assert "0.9**step" in message
        assert "'step' int32[]" in message
        with pytest.raises(sg.DTypeError, match=r"carry must keep its dtype(.|\n)*float64 came in with Mul"):
            sg.scan(lambda c, _: (c * rate, c), w, length=3)
        with pytest.raises(sg.DTypeError) as caught:
            sg.assign(w, sg.cast(w, sg.float64))  # Nothing was promoted: it was asked for.
        assert "came in" not in str(caught.value)


@pytest.mark.parametrize(
    "f", [lambda d: d + d, lambda d: -d, lambda d: d - True, lambda d: sg.reduce_sum(d), lambda d: sg.abs(d)]
)
def test_booleans_are_no_numbers_among_themselves(f: Callable[..., Any]) -> None:
    with pytest.raises(sg.DTypeError, match=r"sg\.cast"):
        in_graph(f, np.array([True, False]))


def test_a_number_beyond_the_dtype_it_meets_is_refused() -> None:
    with pytest.raises(sg.DTypeError, match="300"):
        sg.add(np.ones(2, np.int8), 300)
