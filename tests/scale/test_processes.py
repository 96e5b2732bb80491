"""Several processes on this machine, by ``stopgrad launch``: one device's numbers, errors in all, no hang."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import HELPERS
from process_program import CHECKS, HEARTBEAT
from process_tools import Run, launch

import stopgrad as sg

pytestmark = pytest.mark.slow

PROGRAM = HELPERS / "process_program.py"


def checked(run: Run, count: int) -> None:
    """All checks went well in all processes."""
    for i in range(count):
        found = [json.loads(line) for line in run.lines.get(i, ()) if line.startswith("{")]
        failed = "\n".join([f"{one['check']}: {one['failed']}" for one in found if "failed" in one])
        assert failed == "", f"process {i}: {failed}"
        assert [one["check"] for one in found] == [*CHECKS], run.text(i)


def ended(run: Run, count: int) -> None:
    """One was killed in a run: the others ended soon, and none is left."""
    assert run.status == 137
    assert run.said[-1].startswith("stopgrad: process 1 failed first, ended by SIGKILL")
    died = float(re.findall(r"time ([\d.]+)", run.text(1))[0])
    assert run.ended - died < HEARTBEAT + 15
    pids = [int(re.findall(r"pid (\d+)", run.text(i))[0]) for i in range(count)]
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


@pytest.mark.first
def test_four_processes() -> None:
    run = launch(PROGRAM)
    checked(run, 4)
    ended(run, 4)
    # With several devices each, those wait for each other, until the launcher or the heartbeat ends them.
    told = [i for i in (0, 2, 3) if "DistributedError: another process of the run has ended" in run.text(i)]
    assert told or "Terminating process" in run.text(0)


@pytest.mark.nightly
@pytest.mark.parametrize(("count", "devices"), [(2, 4), (4, 2)])
def test_processes_of_several_devices(count: int, devices: int) -> None:
    run = launch(PROGRAM, "--all", count=count, devices=devices, seconds=600)
    checked(run, count)
    ended(run, count)


def test_one_process_started_by_hand_runs_the_same_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "import stopgrad as sg\n"
        "sg.distributed.initialize()\n"
        "with sg.Mesh(data=-1) as mesh, sg.Graph().as_default() as graph:\n"
        "    x = sg.placeholder(sg.float32, [None], sharding=('data',))\n"
        "    y = sg.reduce_sum(x)\n"
        "    with sg.Session(graph) as session:\n"
        "        part = np.ones(8 // sg.distributed.process_count(), np.float32)\n"
        "        print(mesh.size, session.run(y, {x: part}))\n"
    )
    alone = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(Path(sg.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (alone.stdout, alone.returncode) == ("2 8.0\n", 0)
    run = launch(script, count=2)
    assert [run.lines[i][-1] for i in range(2)] == ["2 8.0"] * 2
    assert run.status == 0


def test_a_process_that_raises_ends_the_run_with_its_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import stopgrad as sg\n"
        "sg.distributed.initialize()\n"
        "if sg.distributed.process_index() == 1:\n"
        "    raise ValueError('mine')\n"
        "from stopgrad.scale.distributed import agree\n"
        "agree('the weather', [])\n"
    )
    run = launch(script, count=2)
    assert run.status == 1
    assert run.lines[1][-1] == "ValueError: mine"
    told = r"DistributedError: process 1 \(\S+\) does not come to the weather: it failed: ValueError: mine"
    assert re.search(told, run.text(0))
    assert run.seconds < 60  # JAX's own end would wait 300 s for process 0, which waits for this one.


def test_a_process_that_never_comes_is_named_by_all_that_did(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "if os.environ['STOPGRAD_PROCESS_ID'] == '1':\n"
        "    sys.exit(0)\n"
        "import stopgrad as sg\n"
        "sg.distributed.initialize(timeout=8 if os.environ['STOPGRAD_PROCESS_ID'] == '0' else 60)\n"
    )
    run = launch(script, count=3)
    assert run.seconds < 90
    for i in (0, 2):
        assert "DistributedError: distributed.initialize: process 1 of 3 did not come within 8 s" in run.text(
            i
        )
    assert run.status == 1
