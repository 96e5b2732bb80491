"""Processes that read batches and are killed: an error says so, and the batches go on where they were."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from places import HELPERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which processes there are"),
]


def killed(kills: int, seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", HELPERS / "killed_workers.py", str(kills), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    found = json.loads(run.stdout)
    assert found["left"] == []
    assert 0 < found["told"] <= kills


def test_a_process_that_reads_is_killed() -> None:
    killed(1, seed=0)


@pytest.mark.nightly
def test_processes_that_read_are_killed_a_hundred_times() -> None:
    killed(100, seed=1)
