"""Training that saves every few steps, killed at any moment: the file is always one whole set of values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from all_engines import each_engine
from places import HELPERS

pytestmark = pytest.mark.slow

# One process forks those that train, which is quick; JAX is imported there, but first runs in the children.
TRAINING = """
import json, os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from fault_tools import Counting
import stopgrad as sg

engine, kills, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
random.seed(kills)
c, path = Counting(20_000), folder / "saved.safetensors"

def train(started):
    session = sg.Session(c.graph, engine=engine)
    if path.exists():
        session.restore(path)
    c.step(session)
    begun = time.perf_counter()
    save_after_three(session)
    os.write(started, json.dumps(time.perf_counter() - begun).encode())
    while True:
        save_after_three(session)

def save_after_three(session):
    for _ in range(3):
        c.step(session)
    session.save(path)

last, counts = 0.0, []
looking = sg.Session(c.graph, engine="numpy")
for _ in range(kills):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            train(writing)
        finally:
            os._exit(1)
    os.close(writing)
    seconds = json.loads(os.read(reading, 100) or "null")
    assert seconds is not None, "the training ended by itself"
    os.close(reading)
    time.sleep(random.uniform(0.0, 4 * seconds))
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    if path.exists():
        looking.restore(path)
        count = c.count(looking)  # One number, or the state is torn.
        assert count >= last, (count, last)
        last = count
    counts.append(last)
print(json.dumps([len(counts), len(set(counts))]))
"""


def train_and_kill(engine: str, kills: int, folder: Path) -> tuple[int, int]:
    """How often training was killed, and how many different files were found then."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, engine, str(kills), str(folder), str(HELPERS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    return found[0], found[1]


def test_training_killed_40_times_leaves_a_whole_file_each_time(tmp_path: Path) -> None:
    kills, files = train_and_kill("numpy", 40, tmp_path)
    assert kills == 40
    assert files == 40  # Each training saved once or more before it was killed.


@pytest.mark.nightly
@each_engine
def test_training_killed_1_000_times_leaves_a_whole_file_each_time(engine: str, tmp_path: Path) -> None:
    kills, files = train_and_kill(engine, 1_000, tmp_path)
    assert kills == 1_000
    assert files == 1_000
