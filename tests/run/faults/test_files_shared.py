"""Writers of one path, in many threads and processes, never break each other or a reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from stopgrad.base.types import float64, tensor_type
from stopgrad.graph.files import ArrayFile, write_arrays

pytestmark = pytest.mark.slow

SHARE = """
import json, sys, threading, time
import numpy as np
from stopgrad.graph.files import ArrayFile, write_arrays
from stopgrad.base.types import float64, tensor_type

path, mark, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
size = int(sys.argv[4])
TYPE = tensor_type(float64, (size,))
until = time.monotonic() + seconds
found = {"writes": 0, "reads": 0, "broken": [], "failed": []}
lock = threading.Lock()


def count(name, value=1):
    with lock:
        found[name] += value


def write(mine):
    while time.monotonic() < until:
        try:
            write_arrays(path, {"w": np.full(size, mine)})
            count("writes")
        except Exception as error:
            count("failed", [repr(error)])


def read():
    while time.monotonic() < until:
        try:
            with ArrayFile(path) as file:
                array = file.read("w", TYPE, "w")
            if (array != array[0]).any():
                count("broken", ["torn"])
            count("reads")
        except Exception as error:
            count("broken", [repr(error)])


threads = [threading.Thread(target=write, args=(mark + i,)) for i in range(2)]
threads += [threading.Thread(target=read) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(found))
"""


def shared(path: Path, processes: int, seconds: float, size: int) -> dict:
    write_arrays(path, {"w": np.zeros(size)})
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SHARE, str(path), str(10.0 * (i + 1)), str(seconds), str(size)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    found = [json.loads(process.communicate(timeout=600)[0]) for process in running]
    return {name: sum((one[name] for one in found), type(found[0][name])()) for name in found[0]}


def check(found: dict, path: Path) -> None:
    print({name: n if isinstance(n, int) else len(n) for name, n in found.items()})
    assert found["broken"] == []
    assert found["failed"] == []
    assert found["writes"] > 20
    assert found["reads"] > 20
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_readers_beside_writers_in_threads_and_processes(tmp_path: Path) -> None:
    check(shared(tmp_path / "w", processes=3, seconds=2.5, size=20_000), tmp_path / "w")


@pytest.mark.nightly
def test_readers_of_a_large_file_beside_writers(tmp_path: Path) -> None:
    check(shared(tmp_path / "w", processes=6, seconds=60, size=2_000_000), tmp_path / "w")


def part_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.name.endswith(".part")]


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_a_part_file_is_removed_only_if_its_writer_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w"
    waiting, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(file: int) -> None:
        if threading.current_thread() is writer and not waiting.is_set():
            waiting.set()
            go_on.wait(60)
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    writer = threading.Thread(target=lambda: write_arrays(path, {"w": np.full(3, 1.0)}))
    writer.start()
    assert waiting.wait(60)
    (alive,) = part_files(tmp_path)
    dead = alive.with_name(f"{alive.name[:18]}00000000.part")
    dead.write_bytes(b"half")
    others = [tmp_path / ".0123456789abcdef.00000000.part", tmp_path / "w.part"]
    for other in others:
        other.write_bytes(b"not for this path")
    write_arrays(path, {"w": np.full(3, 2.0)})
    assert sorted(part_files(tmp_path)) == sorted([alive, *others])
    go_on.set()
    writer.join(60)
    assert part_files(tmp_path) == sorted(others, key=part_files(tmp_path).index)
    with ArrayFile(path) as file:
        assert file.read("w", tensor_type(float64, (3,)), "w").tolist() == [1.0, 1.0, 1.0]
