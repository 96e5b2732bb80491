"""Programs as NumPy's user guide has them, with tensors for arrays: they run, or the error names the cure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopgrad as sg

X = np.arange(6.0).reshape(2, 3)


def test_functions_of_numpy_on_tensors() -> None:
    f = sg.function(lambda x: np.exp(x).sum(axis=0) + np.concatenate([x[0, :2], x[1, 2:]]) * np.mean(x))
    np.testing.assert_allclose(f(X), np.exp(X).sum(0) + np.concatenate([X[0, :2], X[1, 2:]]) * X.mean())


def test_indexing_broadcasting_and_methods() -> None:
    f = sg.function(lambda x: (x[:, None, ::-1] * x.T[None]).reshape(-1)[-2:].astype("float32"))
    x = np.arange(4.0).reshape(2, 2)
    np.testing.assert_array_equal(f(x), (x[:, None, ::-1] * x.T[None]).reshape(-1)[-2:])


def test_python_loops_and_sums_over_rows() -> None:
    f = sg.function(lambda x: sum(row @ row for row in x) + len(x))
    assert f(X) == (X**2).sum() + 2


def test_zeros_that_are_filled() -> None:
    table = sg.zeros((2, 2))
    table[0, 1] = 3.0
    table *= 2
    np.testing.assert_array_equal(table, [[0, 6], [0, 0]])


def test_linear_algebra_and_transforms() -> None:
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    np.testing.assert_allclose(sg.linalg.inv(a) @ a, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(sg.linalg.norm(a), np.linalg.norm(a))
    U, S, Vh = sg.linalg.svd(a)
    np.testing.assert_allclose(U @ np.diag(S) @ Vh, a)
    np.testing.assert_allclose(sg.fft.fft(X[0]), np.fft.fft(X[0]))
    np.testing.assert_allclose(sg.grad(lambda x: np.linalg.norm(x))(np.array([3.0, 4.0])), [0.6, 0.8])


def test_numbers_of_results() -> None:
    y = sg.reduce_sum(X)
    assert float(y) == y.item() == 15.0
    assert math.sqrt(sg.grad(lambda x: x * x)(8.0)) == 4.0
    assert bool(y > 3)
    assert f"{y:.1f}" == "15.0"


def test_checking_a_gradient_by_differences() -> None:
    f = lambda x: sg.reduce_sum(sg.sin(x) * x)
    x, eps = np.array([0.3, 0.7]), 1e-6
    steps = [(f(x + eps * e) - f(x - eps * e)) / (2 * eps) for e in np.eye(2)]
    np.testing.assert_allclose(sg.grad(f)(x), steps, rtol=1e-6)


def traced(f: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: sg.function(f)(X[0])


def clamp(x: Any) -> Any:
    while x[0] < 3:
        x = x + 1
    return x


def checked(x: Any) -> Any:
    assert x[0] > 0
    return x


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "while": (traced(clamp), "In clamp, line .* use sg.while_loop"),
    "assert": (traced(checked), "use sg.debug_callback"),
    "max of Python": (traced(lambda x: max(x[0], 1.0)), "use sg.maximum"),
    "math.exp": (traced(lambda x: math.exp(x[0])), r"use sg.exp\(x\)"),
    "float": (traced(lambda x: float(x[0])), "use x itself"),
    "f-string": (traced(lambda x: f"{x[0]:.2f}"), "use sg.print"),
    "asarray": (traced(lambda x: np.asarray(x)), "NumPy's functions take"),
    "assignment": (traced(lambda x: x.__setitem__(0, 1.0)), r"x.at\[index\].set\(value\)"),
    "a mask": (traced(lambda x: x[x > 1]), "sg.where|sg.boolean_mask"),
    "an index of a list": (traced(lambda x: [1, 2][sg.argmax(x)]), "sg.gather"),
    "a size from a value": (traced(lambda x: np.zeros(sg.cast(x[1], sg.int32))), "a size that is known"),
    "unique": (traced(lambda x: np.unique(x)), "np.unique"),
    "median": (lambda: sg.median, "sg.sort"),
    "nan_to_num": (lambda: sg.nan_to_num, "sg.is_finite"),
    "arange": (lambda: sg.arange(3), "it is sg.range"),
    "sum": (lambda: sg.sum(X), "it is sg.reduce_sum"),
    "dot": (lambda: sg.dot(X, X), "it is sg.matmul"),
    "vstack": (lambda: sg.vstack([X, X]), "it is sg.concat"),
    "pi": (lambda: sg.pi, "math.pi"),
    "random": (lambda: sg.random.randn(3), "it is sg.random_normal"),
    "shapes that differ": (lambda: sg.add(np.ones(2), np.ones(3)), r"\(C2\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_work_names_the_cure(name: str) -> None:
    wrong, says = WRONG[name]
    with pytest.raises((sg.StopgradError, AttributeError), match=says):
        wrong()
