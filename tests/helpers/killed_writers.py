"""Writers of folders, kernels, programs and trained states that are killed: a program of its own.

It imports everything once, and forks what it kills: so a life costs milliseconds where a new interpreter
would need seconds. After each death it reads what is there, which must be whole, and at the end it says what
is left over.

    python killed_writers.py KIND KILLS SEED FOLDER

prints what happened, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from killed_training import wait_for

import stopgrad.onnx as sgo
from stopgrad.base.types import DTYPES, tensor_type
from stopgrad.engines.xla.native import library
from stopgrad.engines.xla.stored import Programs
from stopgrad.graph.files import ArrayFile
from stopgrad.interop.onnx.training.training_folders import write_folder
from stopgrad.trainer import Trainer

Write = Callable[[int], None]
Read = Callable[[], int]
"""The number that was written last; an error if what is there is not whole."""


def graphs(home: Path) -> tuple[Write, Read]:
    """Training folders, whose files all say one number."""

    def write(i: int) -> None:
        models = {}
        for name in ("train_step.onnx", "eval.onnx"):
            models[name] = onnx.ModelProto(ir_version=8, doc_string=str(i) * 20_000, model_version=i)
        manifest = {"format": "stopgrad.training", "number": i}
        write_folder(home / "out", models, {"w": np.full(10_000, float(i))}, manifest)

    def read() -> int:
        said = {json.loads((home / "out" / "manifest.json").read_text())["number"]}
        for name in ("train_step.onnx", "eval.onnx"):
            model = onnx.load(home / "out" / name)
            said.add(model.model_version)
            assert model.doc_string == str(model.model_version) * 20_000
        with ArrayFile(home / "out" / "state.safetensors") as file:
            said.update(file.read("w", tensor_type(DTYPES["float64"], (10_000,)), "w").tolist())
        (number,) = said
        return int(number)

    return write, read


def kernels(home: Path) -> tuple[Write, Read]:
    """The library of kernels, from a compiler that is quick and writes in pieces."""
    module = sys.modules[library.__module__]
    compiler = home.parent / f"{home.name}-compiler"
    compiler.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        'for i in 1 2 3 4; do head -c 20000 /dev/zero >> "$out"; done; echo $NUMBER >> "$out"\n'
    )
    compiler.chmod(0o755)

    def write(i: int) -> None:
        os.environ["NUMBER"] = str(i)
        module.build(home, f"k{i}", [str(compiler)], "native")

    def read() -> int:
        found = []
        for path in home.glob("*.so"):
            name = path.name.partition("-")[0]
            assert module._intact(home, name) == path
            assert path.read_bytes() == b"\0" * 80_000 + f"{name[1:]}\n".encode()
            found.append(int(name[1:]))
        for left in home.glob("build-*"):  # As if it had been left long ago: then the next one removes it.
            os.utime(left, (0, 0))
        return max(found)

    return write, read


def programs(home: Path) -> tuple[Write, Read]:
    """Compiled programs that the xla engine keeps."""
    kept = Programs.__new__(Programs)
    kept._serialize = SimpleNamespace(serialize=lambda compiled: (compiled, None, None))
    sys.modules[Programs.__module__].private_folder = lambda name: home  # type: ignore[attr-defined]
    last = 0

    def write(i: int) -> None:
        kept._save("program", b"note", str(i).encode() * 100_000)  # type: ignore[arg-type]

    def read() -> int:
        nonlocal last
        found = kept.stored("program")
        assert found is not None
        note, data = found
        last = int(data[: len(data) // 100_000])
        assert (note, data) == (b"note", str(last).encode() * 100_000)
        return last

    return write, read


def trainer(home: Path) -> tuple[Write, Read]:
    """A Trainer that steps, saves and exports."""
    from onnx_training_tools import batches, mlp  # With PyTorch, which the others need not wait for.

    mlp(home.parent / "mlp.onnx")
    folder = sgo.training(
        home.parent / "mlp.onnx", loss="cross-entropy", folder=home.parent / "trained"
    ).folder
    data, known = batches(40), Trainer(folder, threads=1)
    states, losses = [known.state], []
    for x, y in data:
        losses.append(known.step(x=x, labels=y))
        states.append(known.state)

    def saved() -> int:
        one = Trainer(folder, threads=1)
        if (home / "saved").exists():
            one.restore(home / "saved")
        state = one.state
        (number,) = (i for i, s in enumerate(states) if all(np.array_equal(s[n], state[n]) for n in s))
        return number

    def write(i: int) -> None:
        one, at = Trainer(folder, threads=1), i - 1
        if (home / "saved").exists():
            one.restore(home / "saved")
        x, y = data[at % 40]
        assert at >= 40 or one.step(x=x, labels=y) == losses[at]
        one.save(home / "saved")
        one.export(home / "exported.onnx")

    def read() -> int:
        if (home / "exported.onnx").exists():
            onnx.checker.check_model(onnx.load(home / "exported.onnx"))
        return saved()

    return write, read


KINDS = {"graphs": graphs, "kernels": kernels, "programs": programs, "trainer": trainer}


def life(write: Write, i: int) -> int:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        try:
            write(i)
        finally:
            os._exit(0)
    return child


def unfinished(home: Path) -> bool:
    """Whether something is being written there, or was left."""
    return any(name.endswith(".part") or name.startswith("build-") for name in os.listdir(home))


def killed(kind: str, kills: int, seed: int, home: Path) -> dict[str, Any]:
    """What is there after each death is from before or from the life that died."""
    r = random.Random(seed)
    write, read = KINDS[kind](home)
    write(1)
    now = read()
    start = time.perf_counter()
    os.waitpid(life(write, now + 1), 0)
    usual = time.perf_counter() - start
    now = read()
    found = {"kills": 0, "more": 0, "new": 0, "left": 0, "broken": 0, "usual": round(usual, 4)}
    # Whether one comes in the middle of writing is chance: more are tried until enough have.
    while found["kills"] < kills or (found["left"] <= kills // 25 and found["more"] < 19 * kills):
        if kind == "trainer" and now > 30:
            (home / "saved").unlink()
            now = 0
        child = life(write, now + 1)
        if r.random() < 0.5:
            time.sleep(r.uniform(0, 1.2 * usual))
        else:
            wait_for(lambda: unfinished(home), child, 10)
            time.sleep(r.uniform(0, 1e-3))
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:  # It is not a group yet.
            os.kill(child, signal.SIGKILL)
        counted = "kills" if found["kills"] < kills else "more"
        found[counted] += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        after = read()
        found["broken"] += after not in (now, now + 1)
        found["new"] += after == now + 1
        found["left"] += unfinished(home)
        now = after
    write(now + 1)
    found["broken"] += read() != now + 1
    found["after"] = sorted(path.name for path in home.iterdir() if not path.name.endswith(".so"))
    return found


if __name__ == "__main__":
    kind, kills, seed, folder = sys.argv[1:]
    (Path(folder) / "home").mkdir()
    print(json.dumps(killed(kind, int(kills), int(seed), Path(folder) / "home")))
