"""What it costs to save and restore the parameters of a session, beside plain orbax of the same arrays.

    python benchmarks/checkpoints.py [--megabytes 1024] [--folder FOLDER] [--rounds 5] [--json out.json]

64 matrices of float32, random numbers, on one device: eight times their size of memory. The ways go round;
medians of the rounds, after one that is not counted. *returns*: when the program goes on. *written*: when all
is on the disk, or said to be. *read*: when the values are back on the device, checked where the way checks.
What is read was just written, so it comes from the system's memory, not from the disk. *work*: processor time
of all threads, which says more where others use the machine.

- ``Session.save``: one file of safetensors.
- ``Checkpoints``: a folder, checked by its sums when read; the program goes on while it is written.
- ``orbax``: its AsyncCheckpointer with the handler for trees as it stands, which compresses; and without.

At last: how long a step of training takes while nothing is written, and while a checkpoint is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

import stopgrad as sg

Way = tuple[Callable[[Path], Callable[[], None]], Callable[[Path], None]]
"""Begins to write into a folder, and returns what waits for the end; and reads from it."""


class Model:
    """Matrices, a step that changes all of them, and a small one that only computes."""

    def __init__(self, size: int, count: int = 64) -> None:
        rng = np.random.default_rng(0)
        width = round((size / 4 / count) ** 0.5)
        with sg.Graph().as_default() as graph:
            self.ps = [
                sg.parameter(rng.standard_normal((width, width), np.float32), name=f"layer_{i}/w")
                for i in range(count)
            ]
            self.step = [sg.assign(p, p * 0.999) for p in self.ps]
        self.session = sg.Session(graph, engine="xla")
        for _ in range(3):
            self.session.run(self.step)
        self.nbytes = sum(4 * width * width for _ in self.ps)

    def arrays(self) -> dict[str, Any]:
        """The same as arrays of JAX's, for orbax."""
        return {p.op.name: jax.device_put(self.session.value(p)) for p in self.ps}


def file_of(model: Model) -> Way:
    def write(folder: Path) -> Callable[[], None]:
        folder.mkdir()
        model.session.save(folder / "file")
        return lambda: None

    return write, lambda folder: model.session.restore(folder / "file")


def checkpoints(model: Model) -> Way:
    def write(folder: Path) -> Callable[[], None]:
        made = sg.Checkpoints(folder, model.session)
        made.save(1)
        return made.close

    def read(folder: Path) -> None:
        assert sg.Checkpoints(folder, model.session).restore() == 1

    return write, read


def orbax(model: Model, compress: bool) -> Way:
    arrays = model.arrays()
    checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler(use_compression=compress))

    def write(folder: Path) -> Callable[[], None]:
        checkpointer.save(folder, args=ocp.args.PyTreeSave(arrays))
        return checkpointer.wait_until_finished  # type: ignore[no-any-return]

    def read(folder: Path) -> None:
        asked = {name: ocp.ArrayRestoreArgs(sharding=x.sharding) for name, x in arrays.items()}
        jax.block_until_ready(checkpointer.restore(folder, args=ocp.args.PyTreeRestore(restore_args=asked)))

    return write, read


def measured(way: Way, folder: Path) -> dict[str, float]:
    write, read = way
    os.sync()
    start, busy = time.perf_counter(), time.process_time()
    wait = write(folder)
    returned = time.perf_counter()
    wait()
    written, worked = time.perf_counter(), time.process_time() - busy
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    begun, busy = time.perf_counter(), time.process_time()
    read(folder)
    ended, checked = time.perf_counter(), time.process_time() - busy
    shutil.rmtree(folder)
    seconds = {"returns": returned - start, "written": written - start, "read": ended - begun}
    return {**seconds, "work of writing": worked, "work of reading": checked, "bytes": size}


def steps(model: Model, folder: Path) -> dict[str, float]:
    """Milliseconds of a step, alone and while a checkpoint is written."""

    def timed() -> float:
        start = time.perf_counter()
        model.session.run(model.step)
        return 1000 * (time.perf_counter() - start)

    alone = [timed() for _ in range(10)]
    beside = []
    with sg.Checkpoints(folder, model.session) as made, ThreadPoolExecutor(1) as pool:
        for i in range(3):
            made.save(i)
            written = pool.submit(made.wait)
            while not written.done():
                beside.append(timed())
            written.result()
    shutil.rmtree(folder)
    return {"alone": statistics.median(alone), "beside": statistics.median(beside), "steps": len(beside)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = Model(options.megabytes << 20)
    ways: dict[str, Way] = {
        "Session.save": file_of(model),
        "Checkpoints": checkpoints(model),
        "orbax": orbax(model, True),
        "orbax, uncompressed": orbax(model, False),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for i in range(options.rounds + 1):
            for name, way in ways.items():
                result = measured(way, Path(folder) / f"{i}")
                if i:
                    found[name].append(result)
        beside = steps(model, Path(folder) / "steps")
    print(f"{model.nbytes / 1e9:.2f} GB; seconds, and GB/s until written and until read")
    heads = f"{'written':>10}{'GB/s':>8}{'work':>8}{'read':>10}{'GB/s':>8}{'work':>8}{'on disk':>10}"
    print(f"{'':22}{'returns':>10}{heads}")
    rows = []
    for name, results in found.items():
        row = {key: statistics.median(r[key] for r in results) for key in results[0]}
        rows.append({"way": name, **row})
        speeds = [model.nbytes / 1e9 / row[key] for key in ("written", "read")]
        print(
            f"{name:22}{row['returns']:10.3f}{row['written']:10.3f}{speeds[0]:8.2f}"
            f"{row['work of writing']:8.3f}{row['read']:10.3f}{speeds[1]:8.2f}"
            f"{row['work of reading']:8.3f}{row['bytes'] / 1e9:10.3f}"
        )
    print(f"a step: {beside['alone']:.1f} ms, while a checkpoint is written {beside['beside']:.1f} ms")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "steps": beside, "bytes": model.nbytes}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
