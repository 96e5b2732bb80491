"""Training that is killed again and again, and taken up: a program of its own, which forks what it kills.

It imports everything once. What it forks makes JAX's client, compiles, restores and trains: so a life costs
half a second where a new interpreter would need two or three. Each life appends the losses it meets, bit for
bit, to one log. At the end the same is trained without being killed, and every line must be one of its lines.

    python killed_training.py FOLDER KILLS SEED MESH [PROCESSES]    # MESH as "data=4,model=2", or "none"

prints what happened, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EVERY = 7
"""Steps from checkpoint to checkpoint: saving takes longer, so that much of the time something is written."""


class Batches:
    """Random batches, each a function of its number alone."""

    def __init__(self) -> None:
        self.next = 0

    def take(self) -> tuple[Any, Any]:
        r = np.random.Generator(np.random.Philox(key=1, counter=self.next << 64))
        self.next += 1
        x = r.standard_normal((16, 8), dtype=np.float32)
        return x, np.sin(x.sum(1))

    def state(self) -> dict[str, int]:
        return {"next": self.next}

    def restore(self, state: dict[str, int]) -> None:
        self.next = state["next"]


def model(sg: Any, divided: bool) -> tuple[Any, Any, Any, Any]:
    """A network with dropout, its key a parameter: x, y, the loss, and what makes a step."""
    r = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return r.standard_normal(shape, dtype=np.float32) / 4

    def by(*spec: str | None) -> Any:
        return {"sharding": spec} if divided else {}

    x = sg.placeholder(sg.float32, [16, 8], name="x", **by("data", None))
    y = sg.placeholder(sg.float32, [16], name="y", **by("data"))
    w = sg.parameter(weights(8, 64), name="hidden/w", **by(None, "model"))
    v = sg.parameter(weights(64, 1), name="out/w", **by("model", None))
    b = sg.parameter(np.zeros(64), name="hidden/b", **by("model"))  # float64
    key = sg.parameter(np.array([0, 3], np.uint32), name="key")
    hidden = sg.dropout(sg.tanh(x @ w + sg.cast(b, sg.float32)), 0.2, key=key)
    loss = sg.reduce_mean(sg.square((hidden @ v)[:, 0] - y))
    update = sg.optimizers.adamw(loss, [w, v, b], learning_rate=1e-3)
    return x, y, loss, [update.run, sg.assign(key, sg.random_fold_in(key, 1))]


def train(folder: str, log: str, until: int, mesh: str) -> None:
    """One life: from the newest checkpoint on."""
    import stopgrad as sg

    graph, data = sg.Graph(), Batches()
    axes = {} if mesh == "none" else dict(a.split("=") for a in mesh.split(","))
    on = sg.Mesh(**{name: int(size) for name, size in axes.items()}) if axes else None
    part, parts = (0, 1) if on is None else on.part("data")
    own = slice(16 // parts * part, 16 // parts * (part + 1))
    with graph.as_default():
        x, y, loss, step = model(sg, bool(axes))
    first = sg.distributed.process_index() == 0
    file = os.open(log if first else os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with (
        sg.Session(graph, engine="xla", mesh=on) as session,
        sg.Checkpoints(folder, session, data=data) as checkpoints,
    ):
        for i in range(checkpoints.restore() or 0, until):
            bx, by = data.take()
            value = session.run([loss, step], {x: bx[own], y: by[own]})[0]
            os.write(file, f"{i} {float(value).hex()}\n".encode())
            if (i + 1) % EVERY == 0:
                checkpoints.save(i + 1)
    os.close(file)


# -------------------------------------------------------------------------------------------- killing


def forked(*arguments: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            train(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def wait_for(condition: Any, child: int, seconds: float) -> bool:
    """Whether it came true while the child lived, in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end or os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        time.sleep(0.0005)
    return True


def steps_after(log: Path, before: int, r: random.Random) -> Callable[[], bool]:
    """Whether a life has made so many steps that one to four checkpoints have been begun."""
    wanted = before + EVERY * r.randint(1, 4)
    return lambda: len(lines_of(log)) >= wanted


def writing(folder: Path, since: float) -> bool:
    """Whether a checkpoint is being written, or an old one removed; what was left before is neither."""
    try:
        parts = [file.stat().st_ctime for file in folder.glob(".*.part")]
    except FileNotFoundError:
        return False
    return any(time > since for time in parts)


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def launched(count: int, *arguments: Any) -> subprocess.Popen[bytes]:
    """A life in so many processes of one device."""
    command = [
        sys.executable,
        "-m",
        "stopgrad",
        "launch",
        "-n",
        str(count),
        "--devices",
        "1",
        __file__,
        "life",
    ]
    with open(Path(arguments[-1]) / "output", "ab") as output:
        return subprocess.Popen([*command, *map(str, arguments)], stdout=output, stderr=output)


def killed_processes(where: Path, kills: int, seed: int, mesh: str, count: int) -> dict[str, Any]:
    """The same with several processes, of which one or all are killed."""
    r = random.Random(seed)
    folder, log = where / "run", where / "log"
    found = {"kills": 0, "of_all": 0, "while_writing": 0, "before_the_first_step": 0}
    while found["kills"] < kills:
        before, start = len(lines_of(log)), time.time()
        life = launched(count, folder, log, 10**9, mesh, where)
        while len(list(where.glob("pid.*"))) < count:
            time.sleep(0.01)
        pids = [int(file.suffix[1:]) for file in where.glob("pid.*")]
        if r.random() < 0.3:
            time.sleep(r.uniform(0, 4))
        else:
            wait_for(steps_after(log, before, r), life.pid, 60)
            wait_for(lambda start=start: writing(folder, start), life.pid, 60)
            time.sleep(r.uniform(0, 0.3))
        found["while_writing"] += writing(folder, start)
        found["before_the_first_step"] += len(lines_of(log)) == before
        if life.poll() is not None:
            raise RuntimeError((where / "output").read_text())
        victims = pids if r.random() < 0.5 else [r.choice(pids)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        found["kills"] += 1
        found["of_all"] += len(victims) > 1
        life.wait(120)
        for file in where.glob("pid.*"):
            file.unlink()
    last = last_step(log) + 3 * EVERY
    for name in ("log", "reference"):
        place = folder if name == "log" else where / "other"
        found[f"end_of_{name}"] = launched(count, place, where / name, last, mesh, where).wait(300)
    return compared(where, last, found)


def killed(where: Path, kills: int, seed: int, mesh: str) -> dict[str, Any]:
    """Train and kill so many times: half of them while a checkpoint is written, half at any time."""
    r = random.Random(seed)
    folder, log = where / "run", where / "log"
    found = {"kills": 0, "while_writing": 0, "before_the_first_step": 0, "deaths_of_their_own": 0}
    while found["kills"] < kills:
        before, start = len(lines_of(log)), time.time()
        child = forked(str(folder), str(log), 10**9, mesh)
        if r.random() < 0.5:  # At any time: while it starts, restores or trains.
            time.sleep(r.uniform(0, 1.0))
        elif wait_for(steps_after(log, before, r), child, 60):
            wait_for(lambda start=start: writing(folder, start), child, 60)
            time.sleep(r.uniform(0, 0.2))
        found["while_writing"] += writing(folder, start)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            found["kills"] += 1
        else:
            found["deaths_of_their_own"] += 1
            if found["deaths_of_their_own"] > 3:
                break
        found["before_the_first_step"] += len(lines_of(log)) == before
    last = last_step(log) + 3 * EVERY
    for name in ("log", "reference"):  # Once more to the end; and all of it in one life.
        place = folder if name == "log" else where / "other"
        child = forked(str(place), str(where / name), last, mesh)
        found[f"end_of_{name}"] = os.waitpid(child, 0)[1]
    return compared(where, last, found)


def last_step(log: Path) -> int:
    return max((int(line.split()[0]) for line in lines_of(log)), default=0)


def compared(where: Path, last: int, found: dict[str, Any]) -> dict[str, Any]:
    lines, reference = lines_of(where / "log"), set(lines_of(where / "reference"))
    names = os.listdir(where / "run")
    return {
        **found,
        "steps": last,
        "lines": len(lines),
        "steps_met": len({line.split()[0] for line in lines}),
        "reference": len(reference),
        "other_losses": sum(line not in reference for line in lines),
        "left": sorted(name for name in names if name.startswith(".")),
        "kept": len(names),
    }


if __name__ == "__main__":
    if sys.argv[1] == "life":
        import stopgrad as sg

        _, _, folder, log, until, mesh, where = sys.argv
        (Path(where) / f"pid.{os.getpid()}").touch()
        sg.distributed.initialize()
        train(folder, log, int(until), mesh)
    else:
        import stopgrad  # noqa: F401

        where, kills, seed, mesh, *count = sys.argv[1:]
        arguments = (Path(where), int(kills), int(seed), mesh)
        print(json.dumps(killed_processes(*arguments, int(count[0])) if count else killed(*arguments)))
