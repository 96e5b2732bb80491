"""The backend node tests of the ``onnx`` package, through the importer."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from onnx_node_tools import LEFT_OUT, Count, count, one_of_each


def test_one_node_test_of_each_operator_passes() -> None:
    found = count(among=one_of_each())
    assert not found.failed, str(found)
    assert len(found.passed) > 150


@pytest.fixture(scope="module")
def on_numpy() -> Count:
    return count()


@pytest.mark.nightly  # The command of the helper, which CI runs, says the same.
def test_node_tests_pass(on_numpy: Count) -> None:
    assert not on_numpy.failed, str(on_numpy)


@pytest.mark.nightly
def test_few_are_left_out_and_each_for_a_reason(on_numpy: Count) -> None:
    total = len(on_numpy.passed) + len(on_numpy.left_out)
    assert total > 1500
    numbers = [name for name, why in on_numpy.left_out.items() if why in LEFT_OUT]
    assert set(on_numpy.left_out.values()) >= set(LEFT_OUT), "a reason for which nothing is left out any more"
    assert len(numbers) / (len(on_numpy.passed) + len(numbers)) < 0.05


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "step"), [("xla", 4), ("onnxruntime", 1)])
def test_node_tests_pass_on_other_engines(engine: str, step: int) -> None:
    found = count(engine, step)
    assert not found.failed, str(found)
    assert len(found.passed) > 200
