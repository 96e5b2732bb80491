"""The example of a loop that survives: it learns, and killed it goes on where it was."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import EXAMPLES

pytestmark = pytest.mark.slow

PROGRAM = EXAMPLES / "scale" / "train.py"


def program() -> Any:
    spec = importlib.util.spec_from_file_location("scale_train", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_killed_and_goes_on_where_it_was(tmp_path: Path) -> None:
    train = program().train
    losses = train(tmp_path / "whole", 200)
    assert list(losses) == list(range(200))
    assert losses[199] < 0.6 * losses[0]

    folder = tmp_path / "run"
    command = [sys.executable, "-W", "error", str(PROGRAM), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        while not (folder / "50").exists() and run.poll() is None:
            time.sleep(0.005)
        os.kill(run.pid, signal.SIGKILL)
        assert run.stderr is not None
        assert run.stderr.read() == b""
    again = train(folder, 200)
    assert 50 <= min(again) < 200, "it was killed too late, or did not go on where it was"
    assert again == {step: losses[step] for step in again}
    assert train(folder, 200) == {}  # Nothing is left to do.
