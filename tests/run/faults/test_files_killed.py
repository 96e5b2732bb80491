"""A writer that is killed, at whatever moment, leaves the old file or the new one; the next one clears up."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

KILLS = """
import json, os, random, signal, sys, time
import numpy as np
from stopgrad.graph.files import ArrayFile, write_arrays
from stopgrad.base.types import float64, tensor_type

path, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
r = random.Random(seed)
TYPE = tensor_type(float64, (20_000,))


def value():
    with ArrayFile(path) as file:
        array = file.read("w", TYPE, "w")
    assert (array == array[0]).all(), "torn"
    return array[0]


write_arrays(path, {"w": np.zeros(20_000)})
took = []
for _ in range(20):
    start = time.perf_counter()
    write_arrays(path, {"w": np.zeros(20_000)})
    took.append(time.perf_counter() - start)
usual = sorted(took)[10]
found = {"kills": 0, "new": 0, "left": 0, "most_left": 0, "broken": 0}
i = 0
while found["kills"] < kills:
    i += 1
    before = value()
    child = os.fork()
    if child == 0:
        write_arrays(path, {"w": np.full(20_000, float(i))})
        os._exit(0)
    time.sleep(r.uniform(0, usual))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    found["kills"] += os.WIFSIGNALED(status)
    try:
        now = value()
        found["new"] += bool(now == i)
        found["broken"] += now not in (before, i)
    except Exception as error:
        found["broken"] += 1
    parts = [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".part")]
    found["left"] += len(parts) > 0
    found["most_left"] = max(found["most_left"], len(parts))
write_arrays(path, {"w": np.zeros(20_000)})
found["after"] = os.listdir(os.path.dirname(path))
print(json.dumps(found))
"""


MEMORY = Path("/dev/shm")


def killed(kills: int, seed: int) -> dict:
    """What was found, in a process without engines, whose children are cheap to fork."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        run = subprocess.run(
            [sys.executable, "-c", KILLS, str(Path(folder) / "w"), str(kills), str(seed)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def check(found: dict, kills: int) -> None:
    print(found)
    assert found["broken"] == 0
    assert found["kills"] == kills
    assert (
        found["new"] > 0
    )  # Some were killed when they had just replaced it, and after the file was replaced.
    assert found["left"] > 0  # Some writers were in the middle of writing,
    assert found["most_left"] <= 2  # whose part files the next writer removed.
    assert found["after"] == ["w"]


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_killed_writer_damages_nothing_and_the_next_clears_up() -> None:
    check(killed(300, seed=0), 300)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_killed_writers(seed: int) -> None:
    check(killed(1000, seed), 1000)
