"""Checkpoints of several processes: each writes its own part, and what fails in one is an error in all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoints_processes import Position, model
from places import HELPERS

import stopgrad as sg

pytestmark = pytest.mark.slow

PROGRAM = HELPERS / "checkpoints_processes.py"


def test_two_processes_save_and_restore(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stopgrad", "launch", "-n", "2", "--devices", "2", str(PROGRAM)]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = [json.loads((tmp_path / f"found.{i}").read_text()) for i in range(2)]
    for i, one in enumerate(found):
        assert one["at first"] is None
        assert one["restored"] == 3
        assert one["position"] == [3, i]
        assert one["values"] == [496 + 32 * 3, 496 + 32 * 3, 15 + 6 * 3]
        assert one["broken passed over"] == 2
        assert len(one["warned"]) == 1
        assert "run/3 is broken" in one["warned"][0]
        assert one["as at two"]
        assert "cannot be written: the disk is full; make room" in one["error"]
        assert one["steps"] == [2, 3]
        assert one["after"] == [2, 5]  # What was broken is gone.
        assert one["saved and restored"]
    assert "failed in another process" in found[0]["error"]
    assert "process 1" in found[0]["error"]
    restored_by_one_process(tmp_path)


def restored_by_one_process(folder: Path) -> None:
    graph, _ = model()
    for mesh in (None, sg.Mesh(data=4, model=2)):
        with sg.Session(graph, mesh=mesh) as session:
            session.restore(folder / "saved")
            assert (session.value(graph.output("both")) == np.arange(32.0).reshape(8, 4) + 2).all()
            assert session.value(graph.output("none")).shape == (0, 4)
            assert sg.Checkpoints(folder / "run", session).restore() == 5
            with pytest.raises(sg.CheckpointError, match="by 2 processes, each at another position"):
                sg.Checkpoints(folder / "run", session, data=Position()).restore()
