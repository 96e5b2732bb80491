"""For pytest: fixtures for assertions about gradients, and a marker that checks a test's ``backward()``.

A failure shows the report at the test's line. The plugin is not found automatically, since it would then
import this package in every run of every project in the environment. In a project's topmost ``conftest.py``::

    pytest_plugins = ["stopgrad.pytest_plugin"]
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import stopgrad as sg
from stopgrad.base.errors import ArgumentError, GradientError, StopgradError
from stopgrad.base.namespaces import require
from stopgrad.flow.assertions import blocked_or_raise, flows_or_raise, only_flows_or_raise
from stopgrad.flow.flow_report import Flow
from stopgrad.flow.patterns import matching
from stopgrad.interop.value_worlds import TENSORFLOW, TORCH, is_module, is_optimizer
from stopgrad.interop.worlds import WORLDS, report

if TYPE_CHECKING:
    from stopgrad.interop.shared.trained import Trained

NAME = "gradient_flow"
"""The name of the fixture, the marker and the option in a project's configuration."""

# ------------------------------------------------------------------------------------------- fixtures


class FlowFixture:
    """The fixture ``flow``: :func:`explain`, and assertions about its report."""

    def __repr__(self) -> str:  # pytest shows it for every test that fails.
        return "<flow>"

    def __call__(self, ys: Any, *args: Any, **kwargs: Any) -> Flow:
        """The report of :func:`explain`."""
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


class GradientFlowFixture:
    """The fixture ``gradient_flow``: the same for functions and losses of all worlds."""

    def __repr__(self) -> str:
        return "<gradient_flow>"

    def watch(self) -> Any:
        """Watch PyTorch or TensorFlow code, as the ``watch`` of these; its losses can be asked about here.

        TensorFlow is watched if it is imported, and PyTorch is not.
        """
        if "tensorflow" in sys.modules and "torch" not in sys.modules:
            return require("stopgrad.tensorflow", "watching TensorFlow code").watch()
        return _torch().watch()

    def explain(self, ys: Any, *args: Any, **kwargs: Any) -> Any:
        """The report on outputs or a loss and the tensors asked about; or on a function and its arguments."""
        return self._report(ys, args, kwargs)[0]

    def _report(self, ys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """The report, and a note on it."""
        return report("gradient_flow", ys, args, kwargs)

    def assert_flows(
        self,
        ys: Any,
        *args: Any,
        to: str | Sequence[str] | None = None,
        only: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Fail unless gradients arrive.

        Args:
            ys: outputs, a loss of PyTorch or TensorFlow, or a function.
            args: what is asked about; or the function's arguments.
            to: patterns of the names at which gradients must arrive; all that can have one unless given.
            only: patterns of the names at which, and only at which, gradients must arrive.
            kwargs: the function's keyword arguments, ``argnums`` and ``model``.
        """
        __tracebackhide__ = True
        if only is not None:
            self.assert_only_flows(ys, *args, to=only, **kwargs)
            return
        keys = [] if to is None else to
        _asserted(lambda: self._check(flows_or_raise, "assert_flows", ys, args, keys, kwargs))

    def assert_blocked(
        self,
        ys: Any,
        *args: Any,
        to: str | Sequence[str] | None = None,
        by: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Fail if a gradient arrives, or if anything other than *by* cuts it; the arguments are as above."""
        __tracebackhide__ = True
        keys = [] if to is None else to

        def blocked(what: str, flow: Any, keys: Sequence[Any]) -> None:
            blocked_or_raise(what, flow, keys, by)

        _asserted(lambda: self._check(blocked, "assert_blocked", ys, args, keys, kwargs))

    def assert_only_flows(self, ys: Any, *args: Any, to: str | Sequence[str], **kwargs: Any) -> None:
        """Fail unless gradients arrive at the names that match *to*, and at no others."""
        __tracebackhide__ = True

        def only(what: str, flow: Any, keys: Sequence[Any]) -> None:
            only_flows_or_raise(what, flow, list(flow), keys)

        _asserted(lambda: self._check(only, "assert_only_flows", ys, args, to, kwargs))

    def _check(
        self,
        check: Callable[..., None],
        what: str,
        ys: Any,
        args: Sequence[Any],
        names: str | Sequence[str],
        kwargs: dict[str, Any],
    ) -> None:
        """Check the keys of a report whose names match; without names, all that can have a gradient."""
        flow, unseen = self._report(ys, args, kwargs)
        by_label = dict(zip(flow.xs, flow, strict=True))
        if names:
            keys = [by_label[name] for name in matching(what, names, by_label)]
        else:
            keys = [key for name, key in by_label.items() if flow.xs[name].type.differentiable]
        if not keys:
            raise ArgumentError(f"{what}: nothing is asked about that can have a gradient")
        try:
            check(what, flow, keys)
        except GradientError as error:
            error.args = ("\n\n".join(filter(None, [error.message, unseen])),)
            raise


def _asserted(check: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a check returns; if it fails, the test fails at the test's own line."""
    __tracebackhide__ = True
    try:
        return check(*args, **kwargs)
    except GradientError as error:
        raise AssertionError(error.message) from None


def _torch() -> ModuleType:
    require("torch", "watching PyTorch code", "torch")
    return require("stopgrad.torch", "watching PyTorch code", "torch")


@pytest.fixture(scope="session")
def flow() -> FlowFixture:
    """Where gradients flow: ``flow(f, *args)`` explains, ``flow.assert_blocked(loss, w)`` asserts."""
    return FlowFixture()


@pytest.fixture
def gradient_flow() -> GradientFlowFixture:
    """Where gradients flow, in any world: ``gradient_flow.assert_flows(loss, model)``."""
    return GradientFlowFixture()


@pytest.fixture(scope="session")
def check_gradients() -> Callable[..., Any]:
    """Compares gradients with finite differences, as :func:`check_gradients`, and fails with its report."""

    def check_gradients(ys: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return _asserted(sg.check_gradients, ys, *args, **kwargs)

    return check_gradients


# ------------------------------------------------------------------------------- the marker and the option

_PATTERNS = ("only", "blocked", "ignore")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that checks all tests."""
    parser.addini(
        NAME, "check what every test that uses PyTorch or TensorFlow trains", type="bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, which ``pytest --markers`` shows."""
    config.addinivalue_line(
        "markers",
        f"{NAME}(only=[...], blocked=[...], ignore=[...]): fail unless backward() or tape.gradient() gives "
        "gradients to all parameters that the test trains, to these only, to none of these; patterns such as "
        "'encoder.*'",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch and check marked tests, or all tests that use PyTorch or TensorFlow if the option says so."""
    marker = item.get_closest_marker(NAME)
    used = [world for world in _WATCHED if WORLDS[world].package in sys.modules]
    if marker is None and not (item.config.getini(NAME) and used):
        return (yield)
    options = {} if marker is None else _options(marker)
    fixtures = getattr(item, "funcargs", {})
    named = {name: value for name, value in fixtures.items() if is_module(value) or is_optimizer(value)}
    watches = [_training(world)(named, leaves=marker is not None) for world in used or [TORCH]]
    with contextlib.ExitStack() as watching:
        for watch in watches:
            watching.enter_context(watch)
        result = yield
    _check([watch.trained() for watch in watches], options, marker in item.own_markers)
    return result


_WATCHED = (TORCH, TENSORFLOW)
"""The worlds whose gradients can be watched while a test runs."""


def _training(world: str) -> Any:
    """The class that watches what code of a world trains."""
    purpose = f"the marker {NAME}"
    package, extra, module = WORLDS[world]
    require(package, purpose, extra)
    return require(module, purpose, extra).Training


def _options(marker: pytest.Mark) -> dict[str, list[str]]:
    """The options of a marker, with patterns as lists."""
    unknown = [name for name in marker.kwargs if name not in _PATTERNS]
    if marker.args or unknown:
        wrong = unknown[0] if unknown else repr(marker.args[0])
        pytest.fail(f"the marker {NAME} takes {', '.join(_PATTERNS)}, not {wrong}", pytrace=False)
    return {name: _patterns(name, value) for name, value in marker.kwargs.items()}


def _patterns(name: str, value: object) -> list[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(pattern, str) for pattern in patterns):
        pytest.fail(
            f"the marker {NAME} takes {name} as a pattern, or a list of patterns, not {value!r:.60}",
            pytrace=False,
        )
    return list(patterns)


def _check(trained: Sequence[Trained], options: dict[str, list[str]], itself: bool) -> None:
    """Fail the test that just ran if it did not train what it should."""
    called = [training for training in trained if training.calls]
    if not called:
        if itself:  # The test itself is marked, not only its file or class.
            does = " or ".join(training.does for training in trained)
            why = f"the test calls {does} nowhere, so that its marker checks nothing"
            if "jax" in sys.modules:
                why += "; of a JAX function, call stopgrad.jax.assert_flows(f, *args)"
            pytest.fail(f"{NAME}: {why}", pytrace=False)
        return
    for training in called:
        try:
            wrong = training.wrong(**options)
        except StopgradError as error:
            wrong = error.message
        if wrong:
            pytest.fail(f"{NAME}: {wrong}", pytrace=False)
