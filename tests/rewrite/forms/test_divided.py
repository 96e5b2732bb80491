"""Forms for graphs that are divided over devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forms_tools import Case, agree, same_as_written

import stopgrad as sg
from stopgrad.rewrite import formed
from stopgrad.rewrite.forms import DIVIDED
from stopgrad.rewrite.forms.divided import contract_in_place

F32 = np.float32
INF, NAN = np.inf, np.nan


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


# -------------------------------------------------------------------------------------- cross entropies


def sparse(x: Any, y: Any) -> Any:
    return sg.sparse_softmax_cross_entropy_with_logits(y, x)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_a_cross_entropy_and_its_gradient_share_their_parts(dtype: Any) -> None:
    case = agree(sparse, normal(6, 5), np.array([2, 0, 4, 3, 2, 1], dtype), forms=DIVIDED)
    found = case.types()
    assert found["SparseSoftmaxCrossEntropyWithLogits"] == found["Softmax"] == 0
    assert (found["Max"], found["Exp"]) == (1, 1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_so_does_that_of_probabilities(axis: int) -> None:
    labels = np.abs(normal(2, 3, 4, seed=1))
    labels[0, 0] = 0.0
    f = lambda x, y: sg.softmax_cross_entropy_with_logits(y, x, axis)
    found = agree(f, normal(2, 3, 4), labels, forms=DIVIDED).types()
    assert found["SoftmaxCrossEntropyWithLogits"] == 0
    assert (found["Max"], found["Exp"]) == (1, 1)


@pytest.mark.parametrize("labels", [[-1, 0, 5, 2], [7, -5, 100, 4], [2**31 - 1, -(2**31), 0, 1]])
def test_labels_that_are_no_class(labels: list[int]) -> None:
    same_as_written(sparse, normal(4, 5), np.array(labels, np.int32), forms=DIVIDED)


def test_more_classes_than_the_labels_can_name() -> None:
    same_as_written(sparse, normal(3, 300), np.array([-1, 0, 127], np.int8), forms=DIVIDED)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_extremes(label: int) -> None:
    x = np.array(
        [[-INF] * 3, [0.0, -INF, 1.0], [INF, 0.0, 1.0], [NAN, 0.0, 1.0], [1e4, -1e4, 0.0], [2.0, 2.0, 2.0]],
        F32,
    )
    same_as_written(sparse, x, np.full(6, label, np.int32), forms=DIVIDED)
    hot = np.eye(3, dtype=F32)[np.full(6, label)]
    same_as_written(lambda x, y: sg.softmax_cross_entropy_with_logits(y, x), x, hot, forms=DIVIDED)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_no_rows_and_no_classes(shape: tuple[int, int]) -> None:
    same_as_written(sparse, normal(*shape), np.zeros(shape[0], np.int32), forms=DIVIDED)


def test_half_precision_is_rounded_once_in_the_operation_as_a_whole() -> None:
    case = Case(sparse, [normal(3, 5).astype(np.float16), np.array([0, 1, 2], np.int32)], DIVIDED)
    assert case.types()["SparseSoftmaxCrossEntropyWithLogits"] == 1


# ------------------------------------------------------------------------------------ sums of products


def contracted(f: Any, *arrays: Any) -> Case:
    """Forms and the pass; the same values as without either."""
    case = Case(f, arrays)
    case.formed = formed(case.plain, DIVIDED, (contract_in_place,))
    for a, b in zip(case.run(case.formed), case.run(case.plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    return case


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5)])
def test_the_gradient_of_a_weight_sums_over_all_axes_as_they_are(shape: tuple[int, ...]) -> None:
    found = contracted(lambda w, x: sg.tanh(x @ w), normal(5, 6), normal(*shape)).types()
    assert found["Einsum"] == 1
    assert found["Reshape"] == 0


def test_so_does_that_over_all_steps_of_a_loop() -> None:
    step = lambda h, u, w: (sg.tanh(h @ w + u), None)
    f = lambda w, x: sg.scan(lambda h, u: step(h, u, w), sg.zeros((3, 5)), x)[0]
    assert contracted(f, normal(5, 5), normal(4, 3, 5)).types()["Einsum"] == 1


def test_so_does_that_of_matrices() -> None:
    found = contracted(lambda w, x: x @ w, normal(5, 6), normal(3, 5)).types()
    assert (found["Einsum"], found["MatMul"]) == (1, 2)


@pytest.mark.parametrize(
    ("a", "b", "undone"),
    [((2, 3, 4), (2, 3, 5), True), ((2, 3, 4), (3, 2, 5), False), ((2, 12), (2, 3, 5), False)],
)
def test_only_rows_of_the_same_axes_are_taken_apart(
    a: tuple[int, ...], b: tuple[int, ...], undone: bool
) -> None:
    f = lambda a, b: sg.matmul(sg.reshape(a, [6, 4]), sg.reshape(b, [6, 5]), transpose_a=True)
    case = contracted(f, normal(*a), normal(*b))
    (made,) = [op for op in case.formed.graph.operations if op.type == "Einsum"]
    assert made.equation == ("aby,abz->yz" if undone else "ay,az->yz")
