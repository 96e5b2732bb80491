"""The benchmark of control flow runs; how fast anything is, no test asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.slow


def test_loops_are_measured_beside_jax(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "control.py"), "--quick", "--json", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "stopgrad" in shown.stdout
    rows = json.loads(out.read_text())
    assert {row["group"] for row in rows} == {"run", "memory", "build", "compile"}
    assert all(row["stopgrad"] > 0 and row["jax"] > 0 and row["ratio"] > 0 for row in rows)
