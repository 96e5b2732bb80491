"""The measured choice between several ways to run a graph: what is chosen, told and remembered."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.engines import ENGINES, PLAIN, Compiled, Engine, Variant, register, registry
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import NUMPY_BACKEND, program
from stopgrad.run import tuning

SLOW = 0.02


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """An engine, two_ways, whose preferred way is slow and whose third does not work; what it compiled."""
    monkeypatch.setenv("STOPGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "BUDGETS", {"off": 0.0, "quick": 0.01, "full": 0.02})
    known, made, found = dict(ENGINES), dict(registry._INSTANCES), []

    class TwoWays(Engine):
        name = "two_ways"
        priority = 300
        variants = (Variant("slow"), Variant("broken"), PLAIN)

        def compile(
            self,
            inputs: Sequence[Output],
            outputs: Sequence[Output],
            donate: Sequence[int] = (),
            variant: Variant = PLAIN,
        ) -> Compiled:
            found.append(variant.name)
            if variant.name == "broken":
                raise ValueError("a cable is missing")
            run = program(inputs, outputs, NUMPY_BACKEND)
            if variant is PLAIN:
                return run
            return lambda arrays: time.sleep(SLOW) or run(arrays)

        def hold(self, array: Any) -> Any:
            return np.array(array)

        def is_native(self, x: Any) -> bool:
            return type(x) is np.ndarray

    register(TwoWays)
    yield found
    for mapping, before in ((ENGINES, known), (registry._INSTANCES, made)):
        mapping.clear()
        mapping.update(before)


def double(x: Any) -> Any:
    return x * 2.0


def test_untuned_the_preferred_way_is_taken(compiled: list[str]) -> None:
    f = sg.function(double, engine="two_ways")
    assert f(1.5) == 3.0
    (report,) = f.report()
    assert (report.engine, report.variant, report.tried) == ("two_ways", "slow", ())
    assert compiled == ["slow"]


def test_a_report_says_how_long_compiling_took() -> None:
    began = time.perf_counter()
    f = sg.function(lambda x: sg.exp(x) * 3.0, engine="numpy")
    f(np.ones(3))
    assert 0.0 <= f.report()[-1].compiling <= time.perf_counter() - began


def test_strict_is_the_plain_way_whatever_is_measured(compiled: list[str]) -> None:
    assert sg.function(double, engine="two_ways", strict=True, tune="full")(1.5) == 3.0
    assert compiled == ["plain"]


@pytest.mark.parametrize("kind", ["function", "session"])
def test_the_fastest_way_is_taken_told_and_remembered(compiled: list[str], kind: str) -> None:
    def run() -> Any:
        if kind == "function":
            f = sg.function(double, engine="two_ways", tune="quick")
            assert f(1.5) == 3.0
            return f.report()
        graph = sg.Graph()
        with graph.as_default():
            w = sg.parameter(np.float32(1.0))
            step = sg.assign(w, w * 2.0)
        session = sg.Session(graph, "two_ways", tune="quick")
        assert [session.run(step), session.run(step)] == [2.0, 4.0]
        return session.report()

    (report,) = run()
    assert (report.engine, report.variant, report.remembered) == ("two_ways", "plain", False)
    slow, broken, plain = sorted(report.tried, key=lambda one: ("slow", "broken", "plain").index(one.variant))
    assert plain.seconds < SLOW <= slow.seconds
    assert (broken.seconds, broken.compiling) == (None, 0.0)
    assert "a cable is missing" in broken.failure
    assert {"plain:", "ms"} <= {*str(report).split()}
    assert compiled == ["slow", "broken", "plain"]
    (again,) = run()
    assert (again.remembered, again.variant, again.tried) == (True, "plain", report.tried)
    assert compiled == ["slow", "broken", "plain", "plain"]


def test_all_engines_are_measured_where_any_may_run_it(compiled: list[str]) -> None:
    f = sg.function(double, tune="full")
    assert f(1.5) == 3.0
    (report,) = f.report()
    assert {one.engine for one in report.tried} == {"two_ways", "xla", "onnxruntime", "numpy"}
    assert report.variant == "plain" or report.engine != "two_ways"


def test_a_session_that_holds_values_stays_with_its_engine(compiled: list[str]) -> None:
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(np.float32(1.0))
        step, shown = sg.assign(w, w * 2.0), w + 1.0
    session = sg.Session(graph, tune="full")
    session.run(step)
    engine = session.engine
    assert session.run(shown) == 3.0
    assert session.engine == engine
    assert {one.engine for one in session.report()[-1].tried} == {engine}


@pytest.mark.parametrize("damage", ["", "[]", '{"engine": "two_ways", "variant": "gone", "tried": []}'])
def test_a_damaged_memory_is_made_anew(compiled: list[str], tmp_path: Path, damage: str) -> None:
    tune: Callable[[], Any] = lambda: sg.function(double, engine="two_ways", tune="quick")(1.5)
    tune()
    (path,) = (tmp_path / "tuned").iterdir()
    path.write_text(damage)
    assert tune() == 3.0
    assert len(compiled) == 6


@pytest.mark.parametrize("tune", ["fast", None, True])
def test_other_settings_are_refused(tune: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="tune is 'off', 'quick' or 'full'"):
        sg.function(double, tune=tune)
    with pytest.raises(sg.ArgumentError, match="tune is 'off', 'quick' or 'full'"):
        sg.Session(sg.Graph(), tune=tune)


def test_what_was_measured_with_is_let_go(compiled: list[str]) -> None:
    f = sg.function(double, engine="two_ways", tune="quick")
    array = np.ones(3)
    f(array)
    seen = weakref.ref(array)
    del array
    gc.collect()
    assert seen() is None
    assert f(np.ones(3))[0] == 2.0
    assert len(f.report()) == 1
