"""The benchmark scripts run; how fast anything is, no test asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=True
    ).stdout


def test_generation_measures_stopgrad_alone(tmp_path: Path) -> None:
    shown = run(
        "generation.py",
        "--quick",
        "--peers",
        "none",
        "--repetitions",
        "1",
        "--json",
        str(tmp_path / "out.json"),
    )
    assert "Operations: forward" in shown
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["case"] for row in rows} == {"chain", "mlp", "fan_out", "stopped", "live_tenth", "derivative"}
    assert all(row["libraries"]["stopgrad"]["live"] > row["libraries"]["stopgrad"]["forward"] for row in rows)


def test_batching_measures_both_and_gives_the_same_values(tmp_path: Path) -> None:
    shown = run("batching.py", "--quick", "--rounds", "2", "--json", str(tmp_path / "out.json"))
    assert "gradients of 8 examples" in shown
    *rows, built = json.loads((tmp_path / "out.json").read_text())
    assert [set(row["run_ms"]) for row in rows] == [{"stopgrad", "jax"}] * 4
    assert built["operations"] < 50
