"""Immediate calls that are remembered give what the first of their kind gave, never another call's result."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph import immediate
from stopgrad.graph.public import guarded
from stopgrad.ops.structural.sources import fill


@pytest.fixture(autouse=True)
def forgotten() -> None:
    immediate._PLANS.clear()
    immediate._CALLS.clear()


@guarded("called", by_type=True)
def summed(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """A public function of one operation."""
    return sg.reduce_sum(x, axis, keepdims)


@guarded("called", by_type=True)
def shifted(x: Any, y: float) -> Any:
    """Two operations, the second with a setting as operand."""
    return sg.add(sg.exp(x), y)


def test_calls_of_one_kind_are_one_operation() -> None:
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(2, 3))
        for axis in (0, 1, -1, None, (0, 1), [0]):
            for keepdims in (False, True):
                wanted = np.sum(x, tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)
                np.testing.assert_array_equal(summed(x, axis, keepdims=keepdims), wanted)
    assert immediate._CALLS


def test_what_python_takes_for_equal_is_told_apart() -> None:
    x = np.ones((2, 3))
    assert summed(x, 1).shape == (2,)
    with pytest.raises(sg.StopgradError):
        summed(x, True)
    with pytest.raises(sg.StopgradError):
        summed(x, 1.0)
    assert summed(x, axis=0).shape == (3,)
    assert summed(np.ones((2, 3), np.float32), 1).dtype == np.float32
    assert summed(np.ones((2, 3), ">f8"), 1).dtype.isnative


def test_a_function_of_several_operations_is_computed_whole() -> None:
    for y in (1.0, 2.0, -0.0, 0.0):
        np.testing.assert_array_equal(shifted(np.zeros(2), y), [1.0 + y] * 2)
    assert not [key for key in immediate._CALLS if key[0].__name__ == "shifted"]


def test_in_a_graph_a_remembered_call_builds() -> None:
    x = np.ones(3)
    summed(x)
    sg.exp(x)
    with sg.Graph().as_default():
        assert isinstance(summed(x), sg.Output)
        assert isinstance(sg.exp(x), sg.Output)
    assert isinstance(sg.function(lambda: sg.exp(x))(), np.ndarray)


def test_signed_zeros_are_operands_of_their_own() -> None:
    x = np.zeros(1)
    assert np.signbit(sg.multiply(x, -0.0))[0]
    assert not np.signbit(sg.multiply(x, 0.0))[0]


def test_errors_stay_errors() -> None:
    x = np.ones(3, np.int8)
    assert sg.add(x, 1).dtype == np.int8
    for _ in range(2):
        with pytest.raises(sg.DTypeError, match="300"):
            sg.add(x, 300)
        with pytest.raises(sg.ShapeError, match=r"\(C2\)"):
            sg.add(x, np.ones(4, np.int8))
        with pytest.raises(sg.GraphError, match="name"):
            sg.add(x, x, 5)


def test_nothing_warns_and_no_setting_of_numpy_changes() -> None:
    with np.errstate(all="raise"):
        for _ in range(3):
            assert np.isinf(sg.divide(np.ones(1), np.zeros(1)))[0]
            assert np.isnan(summed(np.array([np.inf, -np.inf])))
        with pytest.raises(FloatingPointError):
            np.ones(1) / np.zeros(1)


def test_threads_do_not_meet() -> None:
    wrong = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(4, 5))
        for axis in [0, 1] * 200:
            if not np.array_equal(summed(x, axis), x.sum(axis)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(immediate, "PLANS", 8)
    for n in range(1, 30):
        sg.exp(np.ones(n))
        summed(np.ones(n))
        assert len(immediate._PLANS) <= 8
        assert len(immediate._CALLS) <= 8


def test_an_array_that_is_no_operand_is_read_each_time() -> None:
    @guarded("called", by_type=True)
    def of_shape(x: Any, shape: Any) -> Any:
        return sg.reshape(x, [int(n) for n in shape])

    x = np.arange(6.0)
    assert of_shape(x, np.array([2, 3])).shape == (2, 3)
    assert of_shape(x, np.array([3, 2])).shape == (3, 2)
    assert fill([2], np.float32(3)).tolist() == [3.0, 3.0]


def test_an_array_that_is_given_twice_does_not_stand_for_two() -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[7.0, 11.0], [13.0, 17.0]])
    for function in (sg.matmul, lambda x, y: sg.concat([x, y], 0), lambda x, y: sg.tensordot(x, y, 1)):
        function(a, a)
        np.testing.assert_array_equal(function(a, b), function(a.copy(), b.copy()))
        assert not np.array_equal(function(a, b), function(b, b))
