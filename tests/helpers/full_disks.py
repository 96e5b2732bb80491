"""Everything that writes, on disks that refuse: a program of its own, since a limit holds for all of it.

    python full_disks.py FOLDER HOW=EVERY ...

HOW is ``limit`` (files may grow to so many bytes), ``full`` (so many bytes are left on a small disk that is
mounted for it, if that is permitted) or ``closed`` (it cannot be written to); rooms that are EVERY bytes
apart are tried. What happened is printed, as JSON: for each writer how often it wrote, was refused by an
error of ours, said nothing, and what was wrong.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx_training_tools import batches, mlp
from privileges import without_privileges

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.engines.xla.native import library
from stopgrad.engines.xla.stored import Programs
from stopgrad.run import tuning
from stopgrad.tools.cli.common import write_text
from stopgrad.trainer import Trainer

SILENT = {"program", "kernels", "tuned"}
"""What is only made again where it cannot be kept."""


def writers(home: Path) -> dict[str, Callable[[Path], object]]:
    """By name, functions that write to a path."""
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.arange(400.0), name="w")
        x = sg.placeholder(sg.float64, [400], name="x")
        loss = sg.reduce_sum(sg.sin(w * x))
    session = sg.Session(graph, engine="numpy")
    mlp(home / "mlp.onnx")
    folder = sgo.training(home / "mlp.onnx", loss="mse", folder=home / "trained").folder
    trainer = Trainer(folder, threads=1)
    ((data, _),) = batches(1)
    trainer.predict(x=data)
    flow = sg.explain(loss, w)
    kept = Programs.__new__(Programs)
    kept._serialize = SimpleNamespace(serialize=lambda compiled: (compiled, None, None))  # type: ignore[assignment]
    compiler = home / "c++"
    compiler.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        'head -c 5000 /dev/zero > "$out"\n'
    )
    compiler.chmod(0o755)
    module = sys.modules[library.__module__]

    def keep(path: Path) -> None:
        with suppress(sg.FileError, OSError):  # As in `Programs.make`.
            kept._save(str(path), b"", b"program" * 1000)  # type: ignore[arg-type]

    def build(path: Path) -> None:
        os.environ["CXX"], os.environ["STOPGRAD_CACHE_DIR"] = str(compiler), str(path)
        module._Loaded.library = None
        module._registered = lambda path: module.Library(None, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A closed folder is not ours.
            library()

    def remember(path: Path) -> None:
        os.environ["STOPGRAD_CACHE_DIR"] = str(path)
        way = SimpleNamespace(engine=SimpleNamespace(name="numpy"), variant=SimpleNamespace(name="x" * 3000))
        tuning.remember("graph", [], "quick", way, [])  # type: ignore[arg-type]

    def checkpoint(path: Path) -> None:
        with sg.Checkpoints(path, session) as checkpoints:
            checkpoints.save(1 + max(checkpoints.steps, default=0))

    return {
        "session": session.save,
        "graph": graph.save,
        "onnx": lambda path: sgo.save(path, {"loss": loss}, {"x": x}),
        "training": lambda path: sgo.training(home / "mlp.onnx", loss="cross-entropy", folder=path),
        "trainer": trainer.save,
        "export": trainer.export,
        "page": flow.to_html,
        "text": lambda path: write_text(path, flow.to_json() * 20),
        "checkpoint": checkpoint,
        "program": keep,
        "kernels": build,
        "tuned": remember,
    }


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Limit:
    """Files may grow to so many bytes."""

    def __init__(self, home: Path) -> None:
        self.place = home / "place"
        self.place.mkdir()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def __call__(self, room: int | None, act: Callable[[], object]) -> None:
        size = resource.RLIM_INFINITY if room is None else room
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            act()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Full:
    """So many bytes are left on a disk of 4 MiB."""

    def __init__(self, home: Path) -> None:
        self.place = home / "disk"
        self.place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", self.place], check=True)

    def __call__(self, room: int | None, act: Callable[[], object]) -> None:
        filler = self.place / ".filler"
        if room is not None:
            found = os.statvfs(self.place)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - room))
        try:
            act()
        finally:
            filler.unlink(missing_ok=True)

    def end(self) -> None:
        subprocess.run(["umount", self.place], check=True)


class Closed:
    """Nothing can be written."""

    def __init__(self, home: Path) -> None:
        self.place = home / "closed"
        self.place.mkdir()

    def __call__(self, room: int | None, act: Callable[[], object]) -> None:
        if room is None:
            act()
            return
        for path in (self.place, *self.place.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            with without_privileges():
                act()
        finally:
            for path in (self.place, *self.place.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)


HOWS = {"limit": Limit, "full": Full, "closed": Closed}


def refused(write: Callable[[Path], object], name: str, how: Any, every: int) -> dict[str, Any]:
    """A writer, with more and more room, until it has enough twice; where something was written before."""
    found: dict[str, Any] = {"written": 0, "refused": 0, "silent": 0, "wrong": []}
    target = how.place / name
    how(None, lambda: write(target))
    room = 0
    while found["written"] < 2 and room < 1_000_000:
        if name in SILENT:
            remove(target)
        before = content(how.place)
        try:
            how(room, lambda: write(target))
            kept = bool(content(how.place)) or name not in SILENT
            found["written" if kept else "silent"] += 1
        except sg.InternalError as error:
            found["wrong"].append(f"{room}: {error!r}"[:300])
        except sg.StopgradError:
            found["refused"] += 1
            if content(how.place) != before:
                found["wrong"].append(f"{room}: {sorted(set(content(how.place)) ^ set(before))} changed")
        except BaseException as error:
            found["wrong"].append(f"{room}: {error!r}"[:300])
        left = [p.name for p in how.place.rglob(".*") if p.name.endswith(".part")]
        left += [p.name for p in how.place.rglob("build-*")]
        if left:
            found["wrong"].append(f"{room}: {left} left")
        if how.__class__ is Closed:
            break
        room += every if room < 40 * every else 16 * every
    remove(target)
    return found


def remove(target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)


if __name__ == "__main__":
    folder, results = Path(sys.argv[1]), {}
    folder.chmod(0o755)
    (folder / "home").mkdir()
    all_writers = writers(folder / "home")
    for kind, every in (word.split("=") for word in sys.argv[2:]):
        try:
            how = HOWS[kind](folder)
        except subprocess.CalledProcessError:  # This user may not mount a disk.
            continue
        try:
            results[kind] = {n: refused(write, n, how, int(every)) for n, write in all_writers.items()}
        finally:
            if isinstance(how, Full):
                how.end()
    print(json.dumps(results))
