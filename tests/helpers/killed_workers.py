"""Batches that processes read which are killed: a program of its own, which they import.

    python killed_workers.py KILLS SEED

prints how often they were killed, how often that was told, and which of them are left at the end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import stopgrad as sg


def slow(x: float) -> float:
    time.sleep(0.001)
    return x * 2


def workers() -> list[int]:
    """Processes of this one that read."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            words = path.with_name("cmdline").read_text()
        except OSError:  # It has ended meanwhile.
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z" and "spawn_main" in words:
            found.append(int(path.parent.name))
    return found


def killed(kills: int, seed: int) -> dict[str, object]:
    """Every batch is what it would have been, and each death an error of ours; then reading goes on."""
    r, source = random.Random(seed), np.arange(1000.0)
    batches = sg.data.batches(source, 8, key=0, workers=2, transform=slow)
    plain = sg.data.batches(source, 8, key=0)
    told = 0
    for _ in range(kills):
        signal.alarm(100)  # Ends this process, should anything wait for ever.
        for _ in range(r.randrange(1, 30)):
            np.testing.assert_array_equal(next(batches), next(plain) * 2)
        time.sleep(r.uniform(0, 0.05))
        for pid in r.sample(workers(), r.choice([1, 2])):
            os.kill(pid, signal.SIGKILL)
        for _ in range(40):
            try:
                found = next(batches)
            except sg.EngineError as error:
                told += "a process that reads was ended" in str(error)
            else:
                np.testing.assert_array_equal(found, next(plain) * 2)
    batches.close()
    time.sleep(0.2)
    return {"kills": kills, "told": told, "left": workers()}


if __name__ == "__main__":
    print(json.dumps(killed(int(sys.argv[1]), int(sys.argv[2]))))
