"""Damaged models, training folders, checkpoints and programs are refused, or read as what they say.

Those of texts and graph files are in `tests/graph/text/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
]


def damaged(folder: Path, first: int, **counts: int) -> dict[str, Any]:
    words = [f"{kind}={count}" for kind, count in counts.items()]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", HELPERS / "damaged.py", folder, str(first), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    print(run.stdout)
    found: dict[str, Any] = json.loads(run.stdout)
    for kind, count in counts.items():
        assert found[kind]["broken"] == [], "\n\n".join(found[kind]["broken"])
        assert found[kind]["tried"] == count
        assert found[kind]["refused"] > count // 2
    return found


def test_what_is_damaged_is_refused_or_is_what_it_says(tmp_path: Path) -> None:
    found = damaged(tmp_path, 0, checkpoints=100, programs=500, trainings=200, models=60)
    assert found["models"]["loaded"] > 3
    assert found["trainings"]["loaded"] > 20


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["checkpoints", "programs", "trainings", "models"])
def test_50_000_damaged_files(kind: str, tmp_path: Path) -> None:
    damaged(tmp_path, 100_000, **{kind: 50_000})


def test_what_breaks_a_promise_is_seen() -> None:
    text = f"""
import json, os, sys, time
sys.path.insert(0, {str(HELPERS)!r})
import damaged
damaged.SECONDS = 1
ways = [lambda: 1 / 0, lambda: time.sleep(9), lambda: os.kill(os.getpid(), 9), lambda: "refused"]
print(json.dumps(damaged.all_of(lambda r: r.choice(ways)(), "x", 0, 12)))
"""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, check=True, timeout=100
    )
    found = json.loads(run.stdout)
    assert found["tried"] == 12 == found["refused"] + len(found["broken"])
    for wrong in ("ZeroDivisionError", "signal 14", "signal 9"):
        assert any(wrong in one for one in found["broken"]), wrong
