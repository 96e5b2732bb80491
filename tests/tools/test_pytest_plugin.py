"""The fixtures for pytest: a failure shows the report, at the line of the test."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

import stopgrad as sg

pytest_plugins = ["pytester"]

HEAD = """
import numpy as np
import pytest
import stopgrad as sg

def loss(online, target):
    return sg.reduce_sum((online - sg.stop_gradient(target * 0.9)) ** 2.0)

ONES = np.ones(3)
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests, of which one conftest.py asks for the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(sg.__file__).parents[1]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest('pytest_plugins = ["stopgrad.pytest_plugin"]')
    return pytester


def run(tests: pytest.Pytester, text: str) -> pytest.RunResult:
    tests.makepyfile(HEAD + text)
    return tests.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")


def test_what_holds_passes_on_functions_and_graphs(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
def test_function(flow):
    report = flow(loss, ONES, ONES)
    assert report["target"].status == "stopped"
    flow.assert_flows(loss, ONES, ONES, to="online")

def test_graph(flow):
    with sg.Graph().as_default():
        w, t = sg.parameter(ONES, name="w"), sg.parameter(ONES, name="t")
        y = loss(w, t)
        flow.assert_flows(y, w)
        flow.assert_blocked(y, t)
        flow.assert_only_flows(y, to=[w])

def test_gradients(check_gradients):
    assert check_gradients(loss, ONES, ONES).passed
""",
    )
    result.assert_outcomes(passed=3)


def test_what_fails_shows_the_report_at_the_tests_line(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
def test_blocked(flow):
    with sg.Graph().as_default():
        w, t = sg.parameter(ONES, name="w"), sg.parameter(ONES, name="t")
        flow.assert_blocked(loss(w, t), w)

def test_flows(flow):
    with sg.Graph().as_default():
        w, t = sg.parameter(ONES, name="w"), sg.parameter(ONES, name="t")
        flow.assert_flows(loss(w, t), t)
""",
    )
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert re.search(r"^> +flow.assert_flows\(loss\(w, t\), t\)$", text, re.MULTILINE)
    assert re.search(r"^> +flow.assert_blocked\(loss\(w, t\), w\)$", text, re.MULTILINE)
    assert "AssertionError: assert_flows: " in text
    assert "sg.stop_gradient(target * 0.9)" in text
    assert "pytest_plugin.py" not in text
    assert "explain.py" not in text


def test_a_wrong_rule_shows_the_comparison(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
@sg.custom_gradient
def wrong(x):
    return sg.exp(x), lambda g: 2.0 * g * sg.exp(x)

def test_gradients(check_gradients):
    check_gradients(lambda x: sg.reduce_sum(wrong(x)), ONES)
""",
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert ">       check_gradients(lambda x" in text
    assert "AssertionError: check_gradients" in text
    assert "pytest_plugin.py" not in text


def test_no_run_of_pytest_loads_the_package_unasked() -> None:
    points = importlib.metadata.entry_points(group="pytest11")
    assert not [point for point in points if "stopgrad" in point.value]


@pytest.mark.slow
def test_in_several_processes_failures_of_all_kinds_are_told(tests: pytest.Pytester) -> None:
    """Collections that fail, here and in our own code, a failing assertion, and a process that dies."""
    tests.makepyfile(
        test_imports="import there_is_no_such_module",
        test_syntax="def broken(:",
        test_ours="import stopgrad as sg\nx = sg.placeholder(sg.float32, [3])",
        test_fails=HEAD + "def test_report(flow):\n    flow.assert_flows(loss, ONES, ONES, to='target')\n",
        test_dies="import os\ndef test_dies(flow):\n    os.kill(os.getpid(), 9)\n",
        test_holds=HEAD + "def test_holds(flow):\n    flow.assert_flows(loss, ONES, ONES, to='online')\n",
    )
    result = tests.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", timeout=120)
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for told in ("there_is_no_such_module", "SyntaxError", "needs a graph; build it inside"):
        assert told in text
    assert re.search(r"FAILED test_fails\.py::test_report", text)
    assert "stopped" in text
    assert re.search(r"worker 'gw\d' crashed while running 'test_dies\.py::test_dies'", text)
    assert "INTERNALERROR" not in text + result.stderr.str()
    assert re.search(r"\b1 passed", text)


@pytest.mark.slow
def test_a_file_that_cannot_be_collected_is_an_error_beside_others_in_several_processes(
    tests: pytest.Pytester,
) -> None:
    pytest.importorskip("xdist")
    tests.makepyfile(test_bad="import a_module_that_is_not_there\n", test_good=HEAD + GOOD)
    result = tests.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", timeout=120)
    result.assert_outcomes(errors=1, passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


GOOD = """
@pytest.mark.parametrize("n", [1, 2])
def test_one(flow, n):
    flow.assert_blocked(loss, ONES, ONES, to="target")
"""
