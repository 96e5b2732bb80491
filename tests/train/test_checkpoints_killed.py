"""A training run that is killed, at whatever moment, goes on to the same losses, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS

pytestmark = pytest.mark.slow

HERE = HELPERS


def killed(where: Path, kills: int, seed: int, mesh: str, *count: str) -> dict[str, Any]:
    """What ``killed_training.py`` found. The lives share what one of them has compiled."""
    environment = {**os.environ, "STOPGRAD_CACHE_DIR": str(where / "cache"), "STOPGRAD_COMPILED": "1"}
    run = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            str(HERE / "killed_training.py"),
            str(where),
            str(kills),
            str(seed),
            mesh,
            *count,
        ],
        capture_output=True,
        text=True,
        timeout=100 + 30 * kills,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def check(found: dict[str, Any], kills: int) -> None:
    assert found["kills"] == kills
    assert found.get("deaths_of_their_own", 0) == found["end_of_log"] == found["end_of_reference"] == 0
    assert found["other_losses"] == 0
    assert found["steps_met"] == found["steps"] == found["reference"]
    assert found["left"] == []
    assert found["kept"] == 3


def test_a_run_that_is_killed_goes_on_to_the_same_losses(tmp_path: Path) -> None:
    found = killed(tmp_path, 4, 1, "none")
    check(found, 4)
    assert found["lines"] > found["steps"]  # Steps were made again.


@pytest.mark.nightly
@pytest.mark.parametrize("mesh", ["none", "data=4,model=2"])
def test_a_run_that_is_killed_two_hundred_times(mesh: str, tmp_path: Path) -> None:
    found = killed(tmp_path, 200, 2, mesh)
    check(found, 200)
    assert found["while_writing"] > 50
    assert found["before_the_first_step"] > 20


@pytest.mark.nightly
def test_a_run_of_several_processes_of_which_one_or_all_are_killed(tmp_path: Path) -> None:
    found = killed(tmp_path, 20, 3, "data=2,model=2", "4")
    check(found, 20)
    assert 0 < found["of_all"] < 20
