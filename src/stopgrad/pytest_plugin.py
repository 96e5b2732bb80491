"""Fixtures for pytest: what a test says of gradients, and failures that show the report at the test's line.

Not found by itself, since that would import this package in every run of every project of its environment
(0.5 s). In a project's topmost ``conftest.py``::

    pytest_plugins = ["stopgrad.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stopgrad as sg
from stopgrad.errors import GradientError


class FlowFixture:
    """The fixture ``flow``: :func:`explain`, and the assertions about what it says."""

    def __repr__(self) -> str:  # It stands in the report of every test that fails.
        return "<flow>"

    def __call__(self, ys: Any, *args: Any, **kwargs: Any) -> Any:
        """The report, as of :func:`explain`."""
        return sg.explain(ys, *args, **kwargs)

    def assert_flows(self, ys: Any, *args: Any, **kwargs: Any) -> Any:
        """Fail unless gradients arrive; as :func:`assert_flows`."""
        __tracebackhide__ = True
        return _asserted(sg.assert_flows, ys, *args, **kwargs)

    def assert_blocked(self, ys: Any, *args: Any, **kwargs: Any) -> Any:
        """Fail if a gradient arrives; as :func:`assert_blocked`."""
        __tracebackhide__ = True
        return _asserted(sg.assert_blocked, ys, *args, **kwargs)

    def assert_only_flows(self, ys: Any, *args: Any, **kwargs: Any) -> Any:
        """Fail unless gradients arrive at these and at no other; as :func:`assert_only_flows`."""
        __tracebackhide__ = True
        return _asserted(sg.assert_only_flows, ys, *args, **kwargs)


def _asserted(check: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a check returns; where it finds something, a failure of the test at the test's own line."""
    __tracebackhide__ = True
    try:
        return check(*args, **kwargs)
    except GradientError as error:
        raise AssertionError(error.message) from None


@pytest.fixture(scope="session")
def flow() -> FlowFixture:
    """Where gradients flow: ``flow(f, *args)`` explains, ``flow.assert_blocked(loss, w)`` asserts."""
    return FlowFixture()


@pytest.fixture(scope="session")
def check_gradients() -> Callable[..., Any]:
    """Compares gradients with finite differences, as :func:`check_gradients`, and fails with its report."""

    def check_gradients(ys: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return _asserted(sg.check_gradients, ys, *args, **kwargs)

    return check_gradients
