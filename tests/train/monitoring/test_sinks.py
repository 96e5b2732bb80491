"""Where monitors report to: lines of text, a file of JSON lines, TensorBoard, Weights & Biases."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stopgrad as sg
from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.train.monitoring.monitor import Monitor
from stopgrad.train.monitoring.verdicts import Verdict

GOOD = Verdict("arrives", "", Magnitude(0.5, 4, 1, 0, 0, 2.0))
BAD = Verdict("not finite", "net.py:3 log", Magnitude(math.nan, 4, 0, 4, 0, 2.0))


def run(to: Any, *steps: dict[str, Verdict]) -> Monitor:
    """A monitor that has taken these samples, at steps 0, 10, 20, ..."""
    monitor = Monitor(1, to)
    for step, verdicts in enumerate(steps):
        monitor.step = 10 * step
        monitor._take(verdicts)
    return monitor


def test_the_standard_output_gets_changes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = run(None, {"w": GOOD}, {"w": GOOD}, {"w": BAD}, {"w": BAD})
    told = "since step 20, the gradient of w is NaN or infinite: net.py:3 log"
    assert capsys.readouterr().out == f"stopgrad: {told}\n"
    assert [str(change) for change in monitor.changes] == [told]


def test_a_stream_gets_changes_alone() -> None:
    stream = io.StringIO()
    run(stream, {"w": GOOD}, {"w": BAD})
    assert stream.getvalue().count("\n") == 1


def test_a_file_gets_a_line_of_json_for_each_sample(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run(path, {"w": GOOD}, {"w": BAD})
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert (first["format"], first["version"], first["step"], first["changes"]) == (
        "stopgrad.monitor",
        1,
        0,
        [],
    )
    assert first["parameters"]["w"] == {
        "state": "arrives",
        "cause": None,
        "magnitude": {
            **{"norm": 0.5, "parameter_norm": 2.0, "ratio": 0.25, "elements": 4},
            **{"zeros": 1, "nans": 0, "infs": 0},
        },
    }
    (change,) = second["changes"]
    assert (change["state"], change["keys"], change["cause"]) == ("not finite", ["w"], "net.py:3 log")
    assert change["text"] == "since step 10, the gradient of w is NaN or infinite: net.py:3 log"
    assert second["parameters"]["w"]["magnitude"]["norm"] == "nan"


def test_a_file_is_continued_and_a_broken_last_line_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st')
    run(str(path), {"w": GOOD}, {"w": GOOD})
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"step": 1}', '{"st']
    assert [json.loads(line)["step"] for line in lines[2:]] == [0, 10]


def test_a_path_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Monitor(1, tmp_path / "no" / "such" / "folder")


class Writer:
    """As ``torch.utils.tensorboard.SummaryWriter``."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        self.texts: list[tuple[str, str, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        assert global_step is not None
        self.scalars.append((tag, scalar_value, global_step))

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        assert global_step is not None
        self.texts.append((tag, text_string, global_step))


def test_tensorboard_gets_norms_ratios_counts_and_changes() -> None:
    writer = Writer()
    run(writer, {"w": GOOD, "v": Verdict("stopped")})
    assert writer.scalars == [
        ("stopgrad/arrives", 1, 0),
        ("stopgrad/stopped", 1, 0),
        ("stopgrad/norm/w", 0.5, 0),
        ("stopgrad/ratio/w", 0.25, 0),
    ]
    assert writer.texts == [("stopgrad/changes", "- since step 0, no gradient arrives at v (stopped)", 0)]


class Run:
    """As a run of Weights & Biases: what is not committed belongs to the user's next step."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = [{}]

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.rows[-1].update(data)
        if commit is not False:
            self.rows.append({})


def test_weights_and_biases_gets_them_with_what_the_user_logs_next() -> None:
    wandb = Run()
    monitor = Monitor(1, wandb)
    for step in range(2):
        monitor.step = step
        monitor._take({"w": GOOD if step == 0 else BAD})
        wandb.log({"loss": 1.0})
    first, second, _ = wandb.rows
    assert first == {
        **{"stopgrad/arrives": 1, "stopgrad/norm/w": 0.5, "stopgrad/ratio/w": 0.25},
        **{"stopgrad/step": 0, "loss": 1.0},
    }
    assert second["stopgrad/changes"] == "since step 1, the gradient of w is NaN or infinite: net.py:3 log"
    assert second["loss"] == 1.0


def test_several_sinks_all_get_it(tmp_path: Path) -> None:
    stream, path = io.StringIO(), tmp_path / "a.jsonl"
    run([stream, path, Writer()], {"w": BAD})
    assert stream.getvalue()
    assert path.read_text()


@pytest.mark.parametrize("to", [3, object(), [None, 1.5]])
def test_what_is_no_sink_is_refused(to: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="SummaryWriter of TensorBoard"):
        Monitor(1, to)


@pytest.mark.parametrize("every", [0, -1, 1.5, "10", None])
def test_every_is_a_number_of_steps(every: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="every is a number of steps"):
        Monitor(every, None)


def test_a_sink_that_fails_warns_once_and_the_others_go_on() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left on device")

    stream = io.StringIO()
    monitor = Monitor(1, [Full(), stream])
    with pytest.warns(RuntimeWarning, match="failed at step 0, writing to Lines .OSError: no space left"):
        monitor._take({"w": BAD})
    monitor._take({"w": GOOD})  # No further warning, which would be an error here.
    assert stream.getvalue().count("\n") == 2


def test_steps_are_sampled_as_often_as_said_also_when_their_numbers_jump() -> None:
    monitor, sampled = Monitor(10, io.StringIO()), []
    for step in (
        *range(25),
        100,
        101,
        111,
        5,
    ):  # A training that goes on from a checkpoint, and an older one.
        monitor.step = step
        if monitor.due:
            sampled.append(step)
            monitor._take({"w": GOOD})
    assert sampled == [0, 10, 20, 100, 111, 5]


PROGRAM = """
import signal, sys
from stopgrad.train.monitoring.monitor import Monitor
from stopgrad.train.monitoring.verdicts import Verdict

signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background processes ignore it.
monitor = Monitor(1, sys.argv[1])
for monitor.step in range(10**5):
    monitor._take({f"layer.{i}": Verdict("arrives") for i in range(300)})
    if monitor.step == 20:
        print("writing", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_killed_training_leaves_whole_lines(number: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "writing\n"
        os.kill(program.pid, getattr(signal, number))
    lines = path.read_text().splitlines()
    assert path.read_bytes().endswith(b"\n")
    assert [json.loads(line)["step"] for line in lines] == list(range(len(lines)))
    assert len(lines) > 20
