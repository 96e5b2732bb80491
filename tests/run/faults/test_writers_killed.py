"""Writers of training folders, kernels, programs and trained states that are killed leave what is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fault_tools import Counting
from places import HELPERS

import stopgrad as sg

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
]

MEMORY = Path("/dev/shm")
LEFT = {"graphs": ["out"], "kernels": [], "programs": ["program"], "trainer": ["exported.onnx", "saved"]}
"""What is in the folder at the end, of each kind of writer."""


def killed(kind: str, kills: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        program = [sys.executable, "-W", "ignore", HELPERS / "killed_writers.py"]
        run = subprocess.run(
            [*program, kind, str(kills), str(seed), folder],
            capture_output=True,
            text=True,
            timeout=100 + kills,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def check(found: dict[str, Any], kind: str, kills: int) -> None:
    assert found["broken"] == 0, found
    assert found["kills"] == kills
    assert found["left"] > kills // 25  # So many were in the middle of writing,
    assert found["after"] == LEFT[kind]  # and what they left was removed.


@pytest.mark.parametrize("kind", LEFT)
def test_what_a_killed_writer_leaves_is_whole(kind: str) -> None:
    check(killed(kind, 25, seed=0), kind, 25)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", LEFT)
def test_a_thousand_killed_writers(kind: str) -> None:
    check(killed(kind, 1000, seed=1), kind, 1000)


TOGETHER = """
import sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from fault_tools import Counting
import stopgrad as sg

folder, first = sys.argv[1], int(sys.argv[2])
c, refused, saved = Counting(2000), 0, 0
session = sg.Session(c.graph, engine="xla")
print("ready", flush=True)
sys.stdin.readline()
checkpoints = sg.Checkpoints(folder, session, keep=3)
checkpoints.restore()
for step in range(first, first + 40, 2):
    while c.count(session) < step:
        c.step(session)
    try:
        checkpoints.save(step, wait=True)
        saved += 1
    except sg.CheckpointError as error:
        told = str(error)
        assert "another program saves there" in told or "holds later steps" in told, told
        refused += 1
print(saved, refused)
"""


def test_two_programs_that_save_checkpoints_into_one_folder(tmp_path: Path) -> None:
    """Each save is whole or refused, whichever comes first."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", TOGETHER, str(tmp_path / "run"), first, str(HELPERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for first in ("1", "2")
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    counts = []
    for program in programs:
        out, error = program.communicate(timeout=120)
        assert program.returncode == 0, error
        counts.append([int(n) for n in out.split()])
    assert sum(saved for saved, _ in counts) > 0, counts
    c = Counting(2000)
    with sg.Session(c.graph, engine="numpy") as session:
        for path in (tmp_path / "run").iterdir():
            session.restore(path)
            assert c.count(session) == float(path.name.partition(".")[0])
