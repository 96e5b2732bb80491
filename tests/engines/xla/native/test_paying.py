"""Kernels that gain nothing on a machine step aside: measured once, kept, and again where that is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.engines.xla.native import candidates, kernels, paying, regions
from stopgrad.engines.xla.native.library import library
from stopgrad.graph.graph import Output

pytestmark = pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")
SLOW = ("labels, large", "ConvBackpropInput")


class Machine:
    """Compiles to busy loops: those with a kernel take twice as long where a probe's kernel is slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.asked: list[str] = []
        self.kinds: dict[Output, str] = {}
        monkeypatch.setenv("STOPGRAD_NATIVE", "")
        monkeypatch.setenv("STOPGRAD_CACHE_DIR", str(folder))
        monkeypatch.setattr(paying, "ROUNDS", 2)
        monkeypatch.setattr(paying, "TURN", 1e-9)
        monkeypatch.setattr(paying, "PROBES", {k: self._noting(k, make) for k, make in paying.PROBES.items()})
        self.forget = lambda: monkeypatch.setattr(paying._Slower, "kinds", {})
        self.forget()

    def _noting(self, kind: str, make: Callable[[], paying.Probe]) -> Callable[[], paying.Probe]:
        def made() -> paying.Probe:
            inputs, outputs = make()
            self.kinds[outputs[0]] = kind
            return inputs, outputs

        return made

    def compile(self, inputs: Sequence[Output], outputs: Sequence[Output], kernels: bool) -> Any:
        kind = self.kinds[outputs[0]]
        self.asked.append(kind)
        ms = 1.0 + (kernels if kind in SLOW else not kernels)

        def busy(values: Sequence[Any]) -> Sequence[Any]:
            assert [np.shape(x) for x in values] == [x.shape for x in inputs]
            end = time.process_time() + 1e-3 * ms
            while time.process_time() < end:
                pass
            return values

        return busy


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_kinds_that_gain_nothing_are_found_once_and_kept(machine: Machine) -> None:
    found = paying.slower(Path("kernels.so"), "1", machine.compile)
    assert found == {*SLOW}
    assert machine.asked == [kind for kind in paying.PROBES for _ in range(2)]
    assert paying.slower(Path("kernels.so"), "1", machine.compile) == found
    machine.forget()  # As in another process.
    assert paying.slower(Path("kernels.so"), "1", machine.compile) == found
    assert len(machine.asked) == 2 * len(paying.PROBES)


def test_another_version_and_a_damaged_file_are_measured_again(machine: Machine, tmp_path: Path) -> None:
    paying.slower(Path("kernels.so"), "1", machine.compile)
    paying.slower(Path("kernels.so"), "2", machine.compile)
    assert len(machine.asked) == 4 * len(paying.PROBES)
    (path,) = tmp_path.rglob("*.paying")
    path.write_bytes(path.read_bytes()[:-1])
    machine.forget()
    assert paying.slower(Path("kernels.so"), "2", machine.compile) == {*SLOW}
    assert len(machine.asked) == 6 * len(paying.PROBES)


def test_what_was_measured_under_other_flags_of_xla_is_not_taken(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    paying.slower(Path("kernels.so"), "1", machine.compile)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    for _ in ("in this process", "in another"):
        paying.slower(Path("kernels.so"), "1", machine.compile)
        assert len(machine.asked) == 4 * len(paying.PROBES)
        machine.forget()


def test_regions_of_slow_kinds_are_left_to_xla(machine: Machine) -> None:
    def kinds(*probes: str) -> list[str]:
        found = []
        for kind in probes:
            _, outputs = paying.PROBES[kind]()
            operations = outputs[0].op.graph.subgraph_to(outputs)
            assert {paying.kind_of(r) for r in candidates(operations, outputs)} == {kind}
            found += [
                paying.kind_of(r) for r in regions(operations, outputs, lambda: kernels(machine.compile))
            ]
        return found

    assert kinds("labels, large", "ConvBackpropInput") == []
    assert kinds("labels, small", "rows, large", "Conv") == ["labels, small", "rows, large", "Conv"]


def test_all_kernels_are_used_unmeasured_if_that_is_asked_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPGRAD_NATIVE", "1")
    assert not paying.slower(Path("kernels.so"), "1", machine.compile)
    assert not machine.asked


def test_the_time_of_threads_that_is_added_up_late_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    late = added = 0.0

    def sleep(seconds: float) -> None:
        nonlocal late, added
        late, added = 0.0, added + late

    def compile(inputs: Sequence[Output], outputs: Sequence[Output], kernels: bool) -> Any:
        def run(values: Sequence[Any]) -> Sequence[Any]:
            nonlocal late
            late += 3.0 if kernels else 2.0
            return values

        return run

    monkeypatch.setattr(paying.time, "sleep", sleep)
    monkeypatch.setattr(paying.time, "process_time", lambda: added)
    monkeypatch.setattr(paying, "TURN", 1e-9)
    assert paying.measured(compile) == dict.fromkeys(paying.PROBES, 1.5)


@pytest.mark.slow
def test_the_engine_measures_real_kernels_and_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    costs: list[dict[str, float]] = []
    measured = paying.measured

    def noted(compiling: paying.Compile) -> dict[str, float]:
        costs.append(measured(compiling))
        return costs[-1]

    monkeypatch.setattr(paying, "measured", noted)
    monkeypatch.setattr(paying._Slower, "kinds", {})
    monkeypatch.setenv("STOPGRAD_NATIVE", "")
    monkeypatch.setenv("STOPGRAD_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    y = sg.function(lambda x: sg.softmax(x) * 2.0, engine="xla")(x)
    np.testing.assert_allclose(np.asarray(y).sum(-1), 2.0, rtol=1e-5)
    assert [set(cost) for cost in costs] == [set(paying.PROBES)]
    assert all(0 < ratio < 100 for ratio in costs[0].values())
