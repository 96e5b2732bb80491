"""Cross entropies with labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forms_tools import Case, agree, same_as_written

import stopgrad as sg

F32 = np.float32
INF, NAN = np.inf, np.nan


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


LABELS = np.array([2, 0, 4, 3, 2, 1], np.int32)


def loss_of(name: str) -> Any:
    def f(x: Any, y: Any) -> Any:
        if name == "operation":
            return sg.sparse_softmax_cross_entropy_with_logits(y, x)
        if name == "log softmax":
            return -sg.take_along_axis(sg.log_softmax(x), y[:, None], 1)
        z = x - sg.reduce_max(x, -1, True)
        if name == "log softmax as written":
            z = z - sg.log(sg.reduce_sum(sg.exp(z), -1, True))
            return -sg.take_along_axis(z, y[:, None], 1)
        p = sg.exp(z) / sg.reduce_sum(sg.exp(z), -1, True)
        if name == "one hot":
            return -sg.reduce_sum(sg.one_hot(y, 5, dtype=x.dtype) * sg.log(p), -1)
        return -sg.log(sg.take_along_axis(p, y[:, None], 1))

    return f


NAMES = ["operation", "log softmax", "log softmax as written", "log of softmax", "one hot"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_every_spelling_keeps_its_value_and_gradient(name: str, dtype: Any) -> None:
    case = agree(loss_of(name), normal(6, 5), LABELS.astype(dtype))
    assert not case.types()["ScatterAddAlongAxis"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [[-1, 0, 5], [7, -5, 100], [0, 1, 2]])
def test_labels_that_are_no_class(name: str, labels: list[int]) -> None:
    same_as_written(loss_of(name), normal(3, 5), np.array(labels, np.int32))


@pytest.mark.parametrize("labels", [[-1, 5, 2**31 - 1, -(2**31)]])
def test_a_label_that_is_no_class_gives_nan(labels: list[int]) -> None:
    case = Case(loss_of("operation"), [normal(4, 5), np.array(labels, np.int32)])
    assert np.isnan(case.run(case.plain)[0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_extremes(name: str) -> None:
    x = np.array(
        [[-INF] * 3, [0.0, -INF, 1.0], [INF, 0.0, 1.0], [NAN, 0.0, 1.0], [1e4, -1e4, 0.0], [2.0, 2.0, 2.0]],
        F32,
    )

    def f(x: Any, y: Any) -> Any:
        return loss_of(name)(x, y) if name != "one hot" else sg.zeros([6]) + 0 * sg.reduce_sum(x, -1)

    for label in range(3):
        same_as_written(f, x, np.full(6, label, np.int32))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_no_rows_and_no_classes(shape: tuple[int, int]) -> None:
    case = same_as_written(loss_of("operation"), normal(*shape), np.zeros(shape[0], np.int32))
    assert np.isnan(case.run(case.plain)[0]).all()


def test_more_classes_than_the_labels_can_name() -> None:
    x, y = normal(3, 300), np.array([0, 200, 255], np.uint8)
    agree(loss_of("operation"), x, y)
    agree(loss_of("log softmax"), x, y)


def test_more_than_one_label_per_row_is_scattered() -> None:
    y = np.array([[2, 0, 2], [1, 1, 1]], np.int32)
    case = agree(lambda x, y: sg.take_along_axis(sg.sin(x), y, 1), normal(2, 5), y)
    assert case.types()["ScatterAddAlongAxis"]


def test_another_axis() -> None:
    y = np.array([[2, 0, 1]], np.int32)
    case = agree(lambda x, y: sg.take_along_axis(sg.sin(x), y, 0), normal(4, 3), y)
    assert not case.types()["ScatterAddAlongAxis"]


@pytest.mark.parametrize("name", ["log softmax", "log softmax as written"])
def test_a_logarithm_is_computed_for_the_label_only(name: str) -> None:
    case = Case(loss_of(name), [normal(6, 5), LABELS])
    done = case.formed.graph.subgraph_to(case.formed.outputs)
    assert not case.types()["LogSoftmax"]
    assert [op.outputs[0].shape for op in done if op.type == "Log"] == [(6, 1)]
    # Max, Σ e, and what the test sums; nothing that the labels choose is summed up over the classes.
    assert not any(op.type == "Sum" and op.inputs[0].op.type in ("SelectV2", "Neg") for op in done)


def test_the_values_are_those_as_written_bit_for_bit() -> None:
    for name in ("log softmax", "log softmax as written"):
        case = Case(loss_of(name), [normal(6, 5), np.array([4, 0, -1, 5, 2, 1], np.int32)])
        made, want = case.run(case.formed)[0], case.run(case.plain)[0]
        np.testing.assert_array_equal(made, want)
