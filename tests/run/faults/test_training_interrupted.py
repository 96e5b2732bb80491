"""Interrupts and errors in a Trainer's steps, in checkpoints and in the writing of training graphs.

Afterwards everything is from before or from after, nothing is left over, and what comes next goes on.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine
from fault_tools import Counting, Injection, Interrupt, Sampling, settings
from onnx_training_tools import batches, mlp
from tiers import some

import stopgrad as sg
import stopgrad.onnx as sgo
import stopgrad_trainer
from stopgrad.scale import array_folders
from stopgrad.tools import cli
from stopgrad.train.monitoring.history import History
from stopgrad.trainer import Trainer
from stopgrad_trainer import memory

Alarm = Callable[[float, Callable[[], Any]], bool]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*cannot be written"),  # Of a checkpoint that nobody waits for.
]
ERRORS = (Interrupt, MemoryError)


def at_places(
    files: tuple[str, ...], act: Callable[[], Any], fresh: Callable[[], Any], most: int | None
) -> Iterator[str]:
    """Raise an error at the places of *act* in these files, or at so many of them; yields each afterwards."""
    fresh()
    counting = Injection(files)
    assert not counting(act)
    for at in range(0, counting.met, 1 if most is None else max(1, counting.met // most)):
        fresh()
        injection = Injection(files, at, ERRORS[at % len(ERRORS)])
        injection(act)
        assert injection.place
        yield injection.place


# --------------------------------------------------------------------------------------------- Trainer

TRAINER = (str(Path(stopgrad_trainer.__file__).parent),)


class Known:
    """A training of a few steps, and what it gives undisturbed."""

    def __init__(self, home: Path, kind: str) -> None:
        mlp(home / "mlp.onnx")
        self.folder = sgo.training(home / "mlp.onnx", loss="cross-entropy", folder=home / "out").folder
        assert self.folder is not None
        if kind == "held twice":  # As earlier versions wrote it.
            manifest = json.loads((self.folder / "manifest.json").read_text())
            del manifest["update"]
            (self.folder / "manifest.json").write_text(json.dumps(manifest))
        self.data, self.threads = batches(5), 2 if kind in ("in threads", "compiled") else 1
        self.compiled = kind == "compiled"
        trainer = self.trainer()
        self.states, self.losses, self.outputs = [trainer.state], [], [self.predict(trainer)]
        for i in range(5):
            self.losses.append(self.step(trainer, i))
            self.states.append(trainer.state)
            self.outputs.append(self.predict(trainer))

    def trainer(self) -> Trainer:
        return Trainer(self.folder, threads=self.threads, compiled=self.compiled)

    def step(self, trainer: Trainer, i: int) -> float:
        return trainer.step(x=self.data[i][0], labels=self.data[i][1])

    def predict(self, trainer: Trainer) -> Any:
        return trainer.predict(x=self.data[0][0])["logits"]

    def whole(self, trainer: Trainer, place: str) -> int:
        """How many steps a trainer has made; all that it says must agree."""
        assert not trainer._lock._is_owned(), place  # type: ignore[attr-defined]
        state = trainer.state
        found = [i for i, known in enumerate(self.states) if equal(state, known)]
        assert found, f"torn: {place}"
        np.testing.assert_array_equal(self.predict(trainer), self.outputs[found[0]], place)
        return found[0]


def equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in other)


@pytest.fixture(scope="module", params=["in place", "in threads", "compiled", "held twice"])
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(memory, "BLOCK", 32)  # So that there is a middle of an update.
        patched.setattr(memory, "COMPILED_BLOCK", 32)
        patched.setattr(memory, "FEW", 1)
        yield Known(tmp_path_factory.mktemp("trained"), request.param)


def interrupt_steps(known: Known, warm: bool, most: int | None = None) -> int:
    trainer, count = known.trainer(), 0

    def fresh() -> None:
        nonlocal trainer
        if not warm:
            trainer = known.trainer()
        trainer.reset()
        for i in range(2 * warm):
            known.predict(trainer)
            known.step(trainer, i)
        known.predict(trainer)

    now = 2 * warm
    for place in at_places(TRAINER, lambda: known.step(trainer, now), fresh, most):
        made = known.whole(trainer, place)
        assert made in (now, now + 1), place
        assert known.step(trainer, made) == known.losses[made], place
        assert known.whole(trainer, place) == made + 1
        count += 1
    return count


@pytest.mark.parametrize("warm", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_an_interrupt_at_every_place_of_a_trainers_step(known: Known, warm: bool) -> None:
    assert interrupt_steps(known, warm) > 50


@pytest.mark.parametrize(
    "known", some(["in place", "in threads", "compiled"], 3, pytest.mark.nightly), indirect=True
)
def test_an_interrupt_at_every_place_of_a_trainers_restore(known: Known, tmp_path: Path) -> None:
    trainer = known.trainer()
    known.step(trainer, 0)
    trainer.save(tmp_path / "one")

    def fresh() -> None:
        trainer.restore(tmp_path / "one")
        known.step(trainer, 1)
        known.predict(trainer)

    for place in at_places(TRAINER, lambda: trainer.restore(tmp_path / "one"), fresh, None):
        made = known.whole(trainer, place)
        assert made in (1, 2), place
        assert known.step(trainer, made) == known.losses[made], place


def trainer_signalled(known: Known, alarm: Alarm, tries: int) -> int:
    trainer, hits, made = known.trainer(), 0, 0
    for _ in range(tries):
        if made == 4:
            trainer.reset()
            made = 0
        hits += alarm(random.uniform(1e-6, 3e-4), lambda: known.step(trainer, made))
        now = known.whole(trainer, "a signal")
        assert now in (made, made + 1)
        made = now
    return hits


def test_a_signal_at_any_moment_of_a_trainers_step(known: Known, alarm: Alarm) -> None:
    assert trainer_signalled(known, alarm, 300) > 50


@pytest.mark.nightly
def test_signals_in_30_000_steps_of_a_trainer(known: Known, alarm: Alarm) -> None:
    assert trainer_signalled(known, alarm, 30_000) > 5_000


def test_within_a_step_the_state_can_be_saved_and_not_changed(known: Known, tmp_path: Path) -> None:
    """As a signal handler would that has to end the program."""
    trainer = known.trainer()
    graph = "gradients" if isinstance(trainer._memory, memory.InPlace) else "train_step"
    session = trainer._runtime.session(graph)
    told: list[str] = []

    class Interrupted:
        def io_binding(self) -> Any:
            return session.io_binding()

        def run_with_iobinding(self, binding: Any) -> None:
            session.run_with_iobinding(binding)
            trainer.save(tmp_path / "saved")
            assert equal(trainer.state, known.states[0])
            for change in (lambda: known.step(trainer, 1), trainer.reset):
                with pytest.raises(sg.GraphError, match="by a signal handler") as caught:
                    change()
                told.append(str(caught.value))

    trainer._runtime.sessions[graph] = Interrupted()
    assert known.step(trainer, 0) == known.losses[0]
    assert len(told) == 2
    assert known.whole(trainer, "") == 1
    trainer.restore(tmp_path / "saved")
    assert known.whole(trainer, "") == 0


# ----------------------------------------------------------------------------------------- checkpoints

SAVING = ("train/", "scale/", "run/session", "engines/")


class Saved:
    """A session of which checkpoints are made, each in a folder of its own."""

    def __init__(self, engine: str, home: Path, size: int) -> None:
        self.c, self.home = Counting(size), home
        self.session = sg.Session(self.c.graph, engine=engine)
        self.c.step(self.session)
        self.count = 0

    def saved(self, interrupted: Callable[[Callable[[], None]], object], place: Callable[[], str]) -> None:
        """Three checkpoints, of which the second is interrupted; those that are there hold what they must."""
        self.count += 1
        folder = self.home / str(self.count)
        checkpoints, expected = sg.Checkpoints(folder, self.session), {}
        for step in (1, 2, 3):
            self.c.step(self.session)
            expected[str(step)] = self.c.count(self.session)
            if step == 2:
                interrupted(lambda: checkpoints.save(2))
                assert not self.session._lock()._is_owned(), place()  # type: ignore[attr-defined]
            else:
                checkpoints.save(step)
            for _ in range(3):  # What was not copied would be written over.
                self.c.step(self.session)
        checkpoints.close()
        assert not array_folders._UNDER_WAY, place()
        names = sorted(os.listdir(folder))
        assert names in (["1", "3"], ["1", "2", "3"]), place()
        with sg.Session(self.c.graph, engine="numpy") as other:
            for name in names:
                other.restore(folder / name)
                assert self.c.count(other) == expected[name], place()
        shutil.rmtree(folder)


@pytest.mark.parametrize(("engine", "most"), [("xla", 14), ("numpy", 7)])
def test_an_interrupt_at_places_of_saving_a_checkpoint(engine: str, most: int, tmp_path: Path) -> None:
    save_interrupted_at_places(engine, most, tmp_path)


@pytest.mark.nightly
@each_engine
def test_an_interrupt_at_every_place_of_saving_a_checkpoint(engine: str, tmp_path: Path) -> None:
    save_interrupted_at_places(engine, None, tmp_path)


def save_interrupted_at_places(engine: str, most: int | None, home: Path) -> None:
    files = (*SAVING, threading.__file__)  # There a thread is waited for.
    saved, before = Saved(engine, home, 500), settings()
    counting = Injection(files)
    saved.saved(counting, lambda: "")
    for at in range(0, counting.met, 1 if most is None else max(1, counting.met // most)):
        injection = Injection(files, at, ERRORS[at % 2])
        saved.saved(injection, lambda: injection.place)
        assert settings() == before


def save_signalled(alarm: Alarm, tries: int, home: Path) -> int:
    saved, hits = Saved("xla", home, 300_000), 0
    for _ in range(tries):
        hits += saved_once(saved, alarm)
    return hits


def saved_once(saved: Saved, alarm: Alarm) -> bool:
    met: list[bool] = []
    saved.saved(lambda act: met.append(alarm(random.uniform(1e-5, 8e-3), act)), lambda: "a signal")
    return met[0]


def test_a_signal_while_a_checkpoint_is_copied_waits_for_the_copy(alarm: Alarm, tmp_path: Path) -> None:
    assert save_signalled(alarm, 12, tmp_path) > 3


@pytest.mark.nightly
def test_signals_in_1_000_saves_of_checkpoints(alarm: Alarm, tmp_path: Path) -> None:
    assert save_signalled(alarm, 1_000, tmp_path) > 300


# --------------------------------------------------------------------------------------- training graphs


class Written:
    """A training folder that is replaced by another one; afterwards the old or the new one is there."""

    def __init__(self, home: Path) -> None:
        self._home, self._out = home, home / "out"
        mlp(home / "m.onnx")
        self._write("0.1")
        self._old = self._content()
        self.act()
        self._new = self._content()

    def _write(self, rate: str) -> int:
        words = ["--loss", "cross-entropy", "--learning-rate", rate, "-o", str(self._out)]
        return cli.main(["train-graph", str(self._home / "m.onnx"), *words])

    def _content(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in self._out.iterdir()}

    def fresh(self) -> None:
        """The old folder."""
        shutil.rmtree(self._out)
        self._out.mkdir()
        for name, data in self._old.items():
            (self._out / name).write_bytes(data)

    def act(self) -> None:
        assert self._write("0.2") == cli.OK

    def is_alone(self) -> bool:
        """Whether nothing is beside the model and the folder."""
        return sorted(os.listdir(self._home)) == ["m.onnx", "out"]

    def check(self, place: str = "") -> None:
        assert self._content() in (self._old, self._new), place
        assert self.is_alone(), place
        assert sg.graph.build.default_graph() is None, place

    def goes_on(self) -> None:
        self.fresh()
        self.act()
        assert self._content() == self._new


WRITING = ("interop/onnx/training/folders", "graph/files")
ALL = (
    "interop/",
    "tools/",
    "graph/",
    "transforms/",
    "rewrite/",
    "ops/",
    "run/",
    "base/",
    "engines/onnxruntime",
)


def interrupt_writing(most: int | None, home: Path) -> int:
    """At places of the code that writes folders."""
    written, count = Written(home), 0
    for place in at_places(WRITING, lambda: written._write("0.2"), written.fresh, most):
        written.check(place)
        count += 1
    written.goes_on()
    return count


def interrupt_training_graphs(every: int, home: Path) -> int:
    """At places of everything else: in forks, but for those where the parent's folder is half written."""
    written = Written(home)
    written.fresh()
    sampling = Sampling(ALL, every, written.check, lambda: not written.is_alone())
    sampling(lambda: written._write("0.2"))
    assert sampling.broken == [], "\n\n".join(sampling.broken[:5])
    for at in sampling.left_out:
        written.fresh()
        injection = Injection(ALL, at, ERRORS[at % 2])
        injection(lambda: written._write("0.2"))
        written.check(injection.place)
    written.goes_on()
    print(f"{sampling.met} places, {sampling.tried} in forks, {len(sampling.left_out)} in this process")
    return sampling.tried


@pytest.mark.usefixtures("capsys")
def test_an_interrupt_while_training_graphs_are_written(tmp_path: Path) -> None:
    assert interrupt_writing(20, tmp_path) >= 20


@pytest.mark.usefixtures("capsys")
def test_an_interrupt_while_training_graphs_are_made(tmp_path: Path) -> None:
    assert interrupt_training_graphs(2000, tmp_path) > 20


@pytest.mark.nightly
@pytest.mark.usefixtures("capsys")
def test_interrupts_while_training_graphs_are_written(tmp_path: Path) -> None:
    assert interrupt_writing(None, tmp_path) > 500


@pytest.mark.nightly
def test_interrupts_at_2_000_places_while_training_graphs_are_made(tmp_path: Path) -> None:
    assert interrupt_training_graphs(30, tmp_path) > 2_000


# --------------------------------------------------------------------------------------------- monitors

MONITORING = ("train/monitoring", "flow/magnitudes", "run/session")


def monitored() -> tuple[sg.Session, Callable[[], None], Callable[[], None], list[Any]]:
    """A session with a monitor: what samples a step, what lets a layer die, the monitor and its stream."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3, 2], name="x")
        w, b = sg.parameter(np.ones((2, 4), np.float32), name="w"), sg.parameter(np.ones(4), name="b")
        loss = sg.reduce_sum(sg.relu(x @ w + sg.cast(b, sg.float32)))
        dies = sg.assign(b, b - 100.0)
    session, told = sg.Session(graph, engine="numpy"), io.StringIO()
    monitor = sg.monitor(session, loss, every=1, to=told)
    feeds = {x: np.ones((3, 2), np.float32)}
    return session, lambda: monitor(feeds), lambda: session.run(dies), [monitor, told]


def test_an_interrupt_of_a_monitor_loses_no_change_and_tells_none_twice() -> None:
    counting = Injection(MONITORING)
    _, sample, die, _ = monitored()
    sample()
    die()
    assert not counting(sample)
    assert counting.met > 50
    for at in range(0, counting.met, max(1, counting.met // 40)):
        session, sample, die, (monitor, told) = monitored()
        sample()
        die()
        before = [session.value(p) for p in session._all_parameters()]
        injection = Injection(MONITORING, at)
        assert injection(sample)
        sample()
        assert [(change.state, change.keys) for change in monitor.changes] == [("zero", ("w:0", "b:0"))], (
            injection.place
        )
        assert told.getvalue().count("\n") <= 1, injection.place
        for one, other in zip(before, [session.value(p) for p in session._all_parameters()], strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_error_in_a_monitor_is_a_warning_and_the_training_goes_on() -> None:
    counting = Injection(MONITORING)
    _, sample, die, _ = monitored()
    sample()
    die()
    counting(sample)
    for at in range(7, counting.met, max(1, counting.met // 20)):
        _, sample, die, (monitor, _) = monitored()
        sample()
        die()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            injection = Injection(MONITORING, at, MemoryError)
            injection(sample)
        sample()
        assert monitor.step in (2, 3), injection.place
        assert all("the monitor failed" in str(one.message) for one in caught), injection.place
        assert [change.keys for change in monitor.changes] == [("w:0", "b:0")], injection.place


class Cycle:
    """What is monitored lets a layer die, and live again; each sample tells what has changed."""

    def __init__(self, sample: Callable[[], object], flip: Callable[[], object], monitor: Any) -> None:
        self._sample, self._flip, self._monitor = sample, flip, monitor
        for _ in range(2):
            self.known = self.told(sample)

    def told(self, first: Callable[[], object]) -> list[Any]:
        """The changes of a layer's death, of which the first sample may be interrupted, and of its return."""
        before = len(self._monitor.changes)
        self._monitor._history = History()  # One that changes too often is no longer told.
        self._sample()
        self._flip()
        first()
        self._sample()
        self._flip()
        self._sample()
        return [(change.state, change.keys) for change in self._monitor.changes[before:]]

    def interrupted(self, files: tuple[str, ...], most: int, whole: Callable[[], object]) -> int:
        """The same changes are told wherever a sample is interrupted; returns how often it was."""
        assert {state for state, _ in self.known} == {"zero", "arrives"}
        counting = Injection(files)
        self.told(lambda: counting(self._sample))
        assert counting.met > 50
        count = 0
        for at in range(0, counting.met, max(1, counting.met // most)):
            injection = Injection(files, at)
            assert self.told(lambda: injection(self._sample)) == self.known, injection.place
            whole()
            count += 1
        return count


SAMPLING = ("train/monitoring", "interop/torch/monitoring", "interop/jax/monitoring")


def torch_cycle() -> tuple[Cycle, Callable[[], object]]:
    torch = pytest.importorskip("torch")
    sgt = pytest.importorskip("stopgrad.torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    monitor = sgt.monitor(net, every=1, to=io.StringIO())
    x, biases = torch.ones(3, 2), [torch.full((4,), -100.0), torch.full((4,), 100.0)]

    def sample() -> None:
        net.zero_grad()
        with monitor:
            net(x).sum().backward()

    def flip() -> None:
        with torch.no_grad():
            net[0].bias.copy_(biases[0])
        biases.reverse()

    def patched() -> list[Any]:
        module, mode = torch.nn.Module, torch.inference_mode
        return [module.__call__, mode.__enter__, mode.__exit__, torch.compile, torch.nn.Parameter.__new__]

    cycle = Cycle(sample, flip, monitor)
    before = patched()

    def whole() -> None:
        assert patched() == before

    return cycle, whole


def jax_cycle() -> tuple[Cycle, Callable[[], object]]:
    jnp = pytest.importorskip("jax.numpy")
    sgj = pytest.importorskip("stopgrad.jax")

    def loss(params: Any, x: Any) -> Any:
        return jnp.sum(jnp.maximum(x @ params["w"] + params["b"], 0.0) @ params["v"])

    params = {"w": jnp.ones((2, 4)), "b": jnp.ones(4), "v": jnp.ones((4, 1))}
    biases = [jnp.full(4, -100.0), jnp.ones(4)]
    monitor = sgj.monitor(loss, every=1, to=io.StringIO())

    def flip() -> None:
        params["b"] = biases[0]
        biases.reverse()

    x = jnp.ones((3, 2))
    before = settings()

    def whole() -> None:
        assert settings() == before

    return Cycle(lambda: monitor(params, x), flip, monitor), whole


@pytest.mark.parametrize("world", [torch_cycle, jax_cycle])
def test_interrupts_of_monitors_of_other_worlds_lose_no_change(world: Callable[[], Any]) -> None:
    cycle, whole = world()
    assert cycle.interrupted(SAMPLING, 20, whole) >= 20


@pytest.mark.nightly
@pytest.mark.parametrize("world", [torch_cycle, jax_cycle])
def test_interrupts_of_monitors_of_other_worlds_at_every_place(world: Callable[[], Any]) -> None:
    cycle, whole = world()
    deeper = (*SAMPLING, "flow/magnitudes", "interop/torch/watching", "interop/shared", "run/session")
    print(cycle.interrupted(SAMPLING, 10**9, whole), cycle.interrupted(deeper, 300, whole))
