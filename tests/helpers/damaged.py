"""Damaged files of trainings and real models, in a process of its own, which forks those that read them.

    python damaged.py FOLDER FIRST KIND=COUNT ...

KIND is ``models`` (five architectures, exported by PyTorch), ``trainings`` (folders of `sgo.training`),
``checkpoints`` or ``programs`` (which the xla engine keeps). The mutants have the numbers from FIRST on. How
reading them ended is printed, as JSON: ``broken`` holds those that ended by a signal, never, or by an error
that is not ours, and those that were believed though they should not be.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_mutants
from fault_tools import Counting
from onnx_mutants import BYTE_WISE, mutant, outcome

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.base.folders import seal, unsealed
from stopgrad.trainer import Trainer

Read = Callable[[random.Random], str]
"""Makes a mutant and reads it; returns in a word how that ended."""
ODD = [7, -1, 1.5, 2**62, "zz", "../x", "", None, True, [1, "a"], {"a": 1}, [], {}, "\x1b[31m", "9" * 5000]
SECONDS = 20
"""For one mutant; more is never."""


def changed(r: random.Random, data: bytes) -> bytes:
    for _ in range(r.choice((1, 1, 1, 2, 8))):
        data = r.choice(BYTE_WISE)(r, data)
    return data


def changed_json(r: random.Random, data: bytes) -> bytes:
    """Another value in a place of a JSON text, or one place's value in another."""
    value = json.loads(data)
    for _ in range(r.choice((1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        waiting: list[Any] = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, (dict, list)):
                keys = list(one) if isinstance(one, dict) else list(range(len(one)))
                places += [(one, key) for key in keys]
                waiting += [one[key] for key in keys]
        held, key = r.choice(places)
        other, name = r.choice(places)
        if r.random() < 0.2:
            del held[key]
        else:
            held[key] = json.loads(json.dumps(r.choice(ODD) if r.random() < 0.7 else other[name]))
    return json.dumps(value).encode()


# ----------------------------------------------------------------------------------------------- kinds


def models(home: Path) -> Read:
    from onnx_models import exported  # With PyTorch, which is not imported unless it is needed.

    names = ("resnet, training", "unet", "lstm", "bert", "gpt")
    seeds = [exported(name, "script").path.read_bytes() for name in names]

    def read(r: random.Random) -> str:
        how, what = outcome(mutant(r, seeds), 2000)
        if how == "broken":
            raise AssertionError(what)
        return how

    return read


def trainings(home: Path) -> Read:
    from onnx_training_tools import batches, mlp

    mlp(home / "mlp.onnx")
    good = sgo.training(home / "mlp.onnx", loss="cross-entropy", folder=home / "good").folder
    files = {path.name: path.read_bytes() for path in good.iterdir()}
    trainer, ((x, y),) = Trainer(good, threads=1), batches(1)
    trainer.step(x=x, labels=y)
    trainer.save(home / "saved")
    saved = (home / "saved").read_bytes()
    place = home / "place"
    place.mkdir()

    def read(r: random.Random) -> str:
        name = r.choice([*files, "manifest.json", "manifest.json", "saved"])
        for other, data in files.items():
            (place / other).write_bytes(data)
        (home / "saved").write_bytes(changed(r, saved) if name == "saved" else saved)
        if name in files:
            change = changed_json if name == "manifest.json" and r.random() < 0.8 else changed
            if name.endswith(".onnx") and r.random() < 0.5:
                change = lambda r, data: mutant(r, [data])
            (place / name).write_bytes(change(r, files[name]))
        try:
            one = Trainer(place, threads=1)
            one.step(x=x, labels=y)
            one.restore(home / "saved")
            for act in (one.predict, one.evaluate, one.gradients):
                act(x=x) if act == one.predict else act(x=x, labels=y)
            one.export(home / "exported.onnx")
        except sg.InternalError:
            raise
        except sg.StopgradError:
            return "refused"
        return "loaded"

    return read


def checkpoints(home: Path) -> Read:
    c = Counting(300)
    child = os.fork()
    if child == 0:  # What orbax has begun here would not survive the forks to come.
        with sg.Session(c.graph, engine="numpy") as session:
            made = sg.Checkpoints(home / "good", session)
            for step in (1, 2):
                c.step(session)
                made.save(step, wait=True)
        os._exit(0)
    os.waitpid(child, 0)
    good = home / "good"
    files = {path.relative_to(good): path.read_bytes() for path in good.rglob("*") if path.is_file()}
    newer = sorted(path for path in files if path.parts[0] == "2")
    place = home / "place"
    shutil.copytree(good, place)
    session = sg.Session(c.graph, engine="numpy")
    reader = sg.Checkpoints(place, session)

    def read(r: random.Random) -> str:
        name = r.choice(newer)
        data = changed(r, files[name])
        match r.randrange(8):
            case 0:
                (place / name).unlink()
            case 1:
                (place / name).write_bytes(files[r.choice(newer)])
            case 2:
                (place / name).write_bytes(data[: r.randrange(len(data) + 1)])
            case _:
                (place / name).write_bytes(data)
        whole = (place / name).exists() and (place / name).read_bytes() == files[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step = reader.restore()
        (place / name).write_bytes(files[name])
        assert step == c.count(session) == (2 if whole else 1), (step, name)
        return "loaded" if whole else "refused"

    return read


def programs(home: Path) -> Read:
    good = [random.Random(i).randbytes(3000) for i in range(2)]
    sealed = [seal(key, data) + data for key, data in zip("ab", good, strict=True)]
    path = home / "program"

    def read(r: random.Random) -> str:
        which = r.randrange(2)
        data = changed(r, sealed[which]) if r.random() < 0.95 else sealed[1 - which]
        path.write_bytes(data)
        found = unsealed(path, "ab"[which])
        if data == sealed[which]:
            assert found == good[which]
            return "loaded"
        assert found is None
        assert not path.exists()
        return "refused"

    return read


KINDS: dict[str, Callable[[Path], Read]] = {
    "models": models,
    "trainings": trainings,
    "checkpoints": checkpoints,
    "programs": programs,
}


# --------------------------------------------------------------------------------------------- forking


def forked(read: Read, kind: str, first: int, last: int) -> tuple[Counter[str], list[str], int]:
    """How mutants ended in one process, until one has broken; and the number of the next."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for i in range(first, last):
            signal.alarm(SECONDS)
            try:
                how = read(random.Random(f"{kind} {i}"))
            except BaseException:
                how = f"broken {traceback.format_exc()[-900:]}"
            os.write(sending, json.dumps([i, how]).encode() + b"\n")
        os._exit(0)
    os.close(sending)
    found: Counter[str] = Counter()
    broken, following = [], first
    with os.fdopen(receiving) as lines:
        for line in lines:
            i, how = json.loads(line)
            following = i + 1
            if how.startswith("broken"):
                broken.append(f"{kind} {i}: {how}")
            else:
                found[how] += 1
    status = os.waitpid(child, 0)[1]
    if status:
        broken.append(f"{kind} {following}: ended by signal {status}")
        following += 1
    return found, broken, following


def all_of(read: Read, kind: str, first: int, count: int) -> dict[str, Any]:
    total: Counter[str] = Counter()
    failures: list[str] = []
    start, at = time.monotonic(), first
    while at < first + count and len(failures) < 20:
        found, broken, at = forked(read, kind, at, first + count)
        total += found
        failures += broken
    seconds = round(time.monotonic() - start)
    return {"tried": at - first, **total, "seconds": seconds, "broken": failures}


if __name__ == "__main__":
    onnx_mutants.SECONDS = 10.0
    results = {}
    for kind, count in (word.split("=") for word in sys.argv[3:]):
        home = Path(sys.argv[1]) / kind
        home.mkdir()
        results[kind] = all_of(KINDS[kind](home), kind, int(sys.argv[2]), int(count))
    print(json.dumps(results))
