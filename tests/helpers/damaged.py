"""Damaged files of trainings and real models, in a process of its own, which forks those that read them.

    python damaged.py FOLDER FIRST KIND=COUNT ...

KIND is ``models`` (five architectures, exported by PyTorch; mostly pieces of a few nodes, which together are
all of them), ``trainings`` (folders of `sgo.training`), ``checkpoints`` or ``programs`` (which the xla engine
keeps). The mutants have the numbers from FIRST on. How reading them ended is printed, as JSON: ``broken``
holds those that ended by a signal, never, or by an error that is not ours, and those that were believed
though they should not be. While it goes on, the same stands in FOLDER/KIND.json. The files are in memory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
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
BATCH = 1000
"""Mutants of one process."""


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


PIECE, WHOLE = 12, 0.01
"""Nodes of a piece, and how often a whole model is mutated: it takes thirty times as long."""


def pieces(model: Any) -> list[bytes]:
    """A model cut into pieces that load: what a piece reads of others is its input."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v for v in (*inferred.value_info, *inferred.input, *inferred.output)}
    stored = {x.name: x for x in model.graph.initializer}
    found = []
    for first in range(0, len(model.graph.node), PIECE):
        nodes = model.graph.node[first : first + PIECE]
        made = {name for node in nodes for name in node.output if name}
        read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
        piece = onnx.ModelProto()
        piece.CopyFrom(model)
        piece.graph.Clear()
        piece.graph.name = "piece"
        piece.graph.node.extend(nodes)
        piece.graph.input.extend(types[name] for name in read if name not in stored)
        piece.graph.initializer.extend(stored[name] for name in read if name in stored)
        piece.graph.output.extend(types[name] for name in made if name in types)
        content = piece.SerializeToString()
        if outcome(content)[0] == "loaded":
            found.append(content)
    return found


def models(home: Path) -> Read:
    from onnx_models import exported  # With PyTorch, which is not imported unless it is needed.

    names = ("resnet, training", "unet", "lstm", "bert", "gpt")
    whole = [exported(name, "script").path.read_bytes() for name in names]
    parts = [pieces(onnx.load_from_string(content)) for content in whole]
    assert all(len(found) > 1 for found in parts), [len(found) for found in parts]

    def read(r: random.Random) -> str:
        seeds = whole if r.random() < WHOLE else r.choice(parts)
        how, what = outcome(mutant(r, seeds), 2000)
        if how == "broken":
            raise AssertionError(what)
        return how

    return read


def trainings(home: Path) -> Read:
    """One file is damaged; what the others hold is read anew only where that file can name another."""
    from onnx_training_tools import batches, mlp

    mlp(home / "mlp.onnx")
    place = sgo.training(home / "mlp.onnx", loss="cross-entropy", folder=home / "place").folder
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    good, ((x, y),) = Trainer(place, threads=1), batches(1)
    acts: dict[str, Callable[[Trainer], Any]] = {
        "train_step": lambda one: one.step(x=x, labels=y),
        "saved": lambda one: one.restore(home / "saved"),
        "predict": lambda one: (one.predict(x=x), one.export(home / "exported.onnx")),
        "eval": lambda one: one.evaluate(x=x, labels=y),
        "gradients": lambda one: one.gradients(x=x, labels=y),
    }
    acts |= dict.fromkeys(("scalars", "update_0"), acts["train_step"])
    good.step(x=x, labels=y)
    good.save(home / "saved")
    for act in acts.values():
        act(good)
    saved = (home / "saved").read_bytes()
    paths = dict(good._contents.files)

    def read(r: random.Random) -> str:
        name = r.choice([*files, "manifest.json", "manifest.json", "saved"])
        target = home / "saved" if name == "saved" else place / name
        data = saved if name == "saved" else files[name]
        change = changed_json if name == "manifest.json" and r.random() < 0.8 else changed
        if name.endswith(".onnx") and r.random() < 0.5:
            change = lambda r, data: mutant(r, [data])
        target.write_bytes(change(r, data))
        graph = name.removesuffix(".onnx")
        try:
            one = Trainer(place, threads=1)
            same = {key for key, path in one._contents.files.items() if path == paths.get(key)}
            known = good._runtime.sessions
            one._runtime.sessions.update({key: known[key] for key in same & set(known) - {graph}})
            for act in [acts[graph]] if graph in acts else acts.values():
                act(one)
        except sg.InternalError:
            raise
        except sg.StopgradError:
            return "refused"
        finally:
            target.write_bytes(data)
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


def all_of(
    read: Read, kind: str, first: int, count: int, tell: Callable[[dict[str, Any]], object] = lambda _: None
) -> dict[str, Any]:
    total: Counter[str] = Counter()
    failures: list[str] = []
    start, at = time.monotonic(), first
    result: dict[str, Any] = {}
    while at < first + count and len(failures) < 20:
        found, broken, at = forked(read, kind, at, min(at + BATCH, first + count))
        total += found
        failures += broken
        seconds = round(time.monotonic() - start)
        result = {"tried": at - first, **total, "seconds": seconds, "broken": failures}
        tell(result)
    return result


def main(folder: Path, first: int, counts: dict[str, int]) -> dict[str, Any]:
    results = {}
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        for kind, count in counts.items():
            home, so_far = Path(place) / kind, folder / f"{kind}.json"
            home.mkdir()
            tell = lambda result, file=so_far: file.write_text(json.dumps(result))
            results[kind] = all_of(KINDS[kind](home), kind, first, count, tell)
    return results


if __name__ == "__main__":
    onnx_mutants.SECONDS = 10.0
    asked = (word.split("=") for word in sys.argv[3:])
    found = main(Path(sys.argv[1]), int(sys.argv[2]), {kind: int(count) for kind, count in asked})
    print(json.dumps(found))
