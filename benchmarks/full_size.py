"""Training steps of models of the sizes that people train, in a Trainer, beside PyTorch and JAX, in one run.

    python benchmarks/full_size.py [--quick] [--only gpt2,vit,whisper,llama] [--rounds 5] [--threads 2]
                                   [--ways eager,compile,jax,trainer,uncompiled] [--folder kept]
                                   [--json out.json] [--batch 2] [--length 512] [--memory 3GB]

One step is forward, cross entropy, backward and AdamW, on one batch in single precision. The modules, with
random weights, are those of `runtime/full_size_models.py`; a Trainer runs the folder that `sgo.training`
makes of what PyTorch's dynamo exporter writes, with `split_shared=True`, since fresh parameters begin equal.
PyTorch has its fused AdamW; *jax* is GPT-2 alone, written out, jitted, and its state donated. In a *trainer*
numba compiles AdamW; in an *uncompiled* one ONNX Runtime computes it.

Each way has a process of its own; they take turns, and a round is at least 2.5 s of steps. *load* is what it
takes to have model and optimiser in memory (a `Trainer`, or the module with its first state read from a
file), without imports; *first* is from the start of the process to the end of its first step; *ms* is the
least of the rounds' medians, *processor* what a step took of it; *peak* is the most memory that the process
held. With ``--folder``, what was exported and written is kept there, and used again.

With ``--memory`` there is one more way, *budget*: a Trainer of a folder that was written with this budget.
It also says what the folder's manifest estimates, and whether gradients are those without a budget.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from runtime.workers import Worker, peak_mb, timed

CASES = ("gpt2", "vit", "whisper", "llama")
WAYS = ("eager", "compile", "jax", "trainer", "uncompiled", "budget")
NAMES = {"gpt2": ("words",), "vit": ("image",), "whisper": ("sound", "words"), "llama": ("words",)}
RATE = 1e-5  # So small that the loss of one batch does not vanish, and gradients stay normal numbers.
LIMIT = 600.0
LOSS = "cross-entropy:axis=-1"
Step = Callable[[], float]
Options = dict[str, Any]

# ---------------------------------------------------------------------------------------- in a worker


def with_trainer(case: str, here: Path, options: Options, folder: str = "out", compiled: bool = True) -> Step:
    """A step of a Trainer."""
    from stopgrad_trainer import Trainer  # What the process imports is what is measured.

    start = time.perf_counter()
    trainer = Trainer(here / folder, threads=options["threads"], compiled=None if compiled else False)
    LOADED.append(time.perf_counter() - start)
    batch = dict(np.load(here / "batch.npz"))
    return lambda: trainer.step(**batch, learning_rate=RATE)


def with_torch(case: str, here: Path, options: Options, compiled: bool) -> Step:
    """A step of PyTorch's."""
    import torch
    from runtime.full_size_models import CASES as MODULES
    from torch.nn import functional

    torch.set_num_threads(options["threads"])
    start = time.perf_counter()
    with torch.device("meta"):
        model = MODULES[case](options["quick"], options["batch"], options["length"])[0]
    model.load_state_dict(torch.load(here / "module.pt"), assign=True)
    if case == "gpt2":
        model.head.weight = model.words.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    LOADED.append(time.perf_counter() - start)
    batch = {name: torch.tensor(array) for name, array in np.load(here / "batch.npz").items()}
    labels = batch.pop("labels")
    given = [batch[name] for name in NAMES[case]]
    forward = lambda: functional.cross_entropy(model(*given).flatten(0, -2), labels.flatten())
    if compiled:
        forward = torch.compile(forward)

    def step() -> float:
        optimizer.zero_grad()
        loss = forward()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def with_jax(case: str, here: Path, options: Options) -> Step:
    """A step of JAX's."""
    from runtime import full_size_jax

    arrays = dict(np.load(here / "module.npz"))
    batch = dict(np.load(here / "batch.npz"))
    start = time.perf_counter()
    state, step = full_size_jax.training(case, arrays, RATE)
    LOADED.append(time.perf_counter() - start)

    def again() -> float:
        nonlocal state
        state, loss = step(state, batch["words"], batch["labels"])
        return float(loss)

    return again


LOADED: list[float] = []
MAKING: dict[str, Callable[[str, Path, Options], Step]] = {
    "trainer": with_trainer,
    "uncompiled": lambda *given: with_trainer(*given, compiled=False),
    "budget": lambda *given: with_trainer(*given, "out_budget"),
    "eager": lambda *given: with_torch(*given, False),
    "compile": lambda *given: with_torch(*given, True),
    "jax": with_jax,
}


def work(column: str) -> None:
    """Make the first step, say so, and then answer what is asked, one line of JSON each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    way, case = column.split()
    options = json.loads(os.environ["STOPGRAD_BENCH"])
    step = MAKING[way](case, Path(options["folder"]) / case, options)
    losses = [step()]
    print(json.dumps({"version": way}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["what"] == "time":
            answer = timed(step, request["seconds"])
        else:
            losses += [step() for _ in range(3)]
            answer = {"losses": losses, "load_s": LOADED[0]}
        print(json.dumps(answer | {"rss_mb": peak_mb()}), file=answers, flush=True)


# ---------------------------------------------------------------------------------------- making files


def export(case: str, quick: bool, batch: int, length: int, here: Path) -> None:
    """Write a module as ONNX and as PyTorch does, and its batch."""
    import torch
    from runtime.full_size_models import made

    model, inputs, labels = made(case, quick, batch, length)
    here.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), here / "module.pt")
    np.savez(here / "module.npz", **{name: x.detach().numpy() for name, x in model.named_parameters()})
    given = dict(zip(NAMES[case], [x.numpy() for x in inputs], strict=True))
    np.savez(here / "batch.npz", **given, labels=labels.numpy())
    path = str(here / "model.onnx")
    torch.onnx.export(model.eval(), inputs, path, dynamo=True, input_names=list(given), output_names=["y"])


def write(here: Path, memory: str | None = None) -> dict[str, Any]:
    """Write the training folder of an exported module; with a budget, one beside it."""
    import stopgrad.onnx as sgo

    start, used = time.perf_counter(), time.process_time()
    folder = here / ("out_budget" if memory else "out")
    made = sgo.training(here / "model.onnx", loss=LOSS, folder=folder, split_shared=True, memory=memory)
    seconds = {"made_s": time.perf_counter() - start, "made_cpu_s": time.process_time() - used}
    trained = [one for one in made.manifest["tensors"].values() if one["use"] == "trained"]
    count = sum(int(np.prod(one["shape"])) for one in trained)
    return {**seconds, "made_mb": peak_mb(), "numbers": count, "memory": made.manifest["memory"]}


def differing(here: Path, threads: int) -> dict[str, Any]:
    """By how much the first gradients with a budget differ from those without, of the largest of all."""
    from stopgrad_trainer import Trainer

    batch = dict(np.load(here / "batch.npz"))
    one = Trainer(here / "out", threads=threads).gradients(**batch)
    other = Trainer(here / "out_budget", threads=threads).gradients(**batch)
    top = max(float(np.abs(x).max()) for name, x in one.items() if name != "loss")
    return {"gradients": max(float(np.abs(x - other[name]).max()) for name, x in one.items()) / top}


def separately(job: str, *arguments: Any) -> dict[str, Any]:
    """A job in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps([job, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


# ------------------------------------------------------------------------------------------- measuring


def measured(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """All ways of one case, by turns."""
    row: dict[str, Any] = {"case": case}
    workers: dict[str, Worker] = {}
    with tempfile.TemporaryDirectory() as cold:
        for way in options.ways.split(","):
            if (way == "jax" and case != "gpt2") or (way == "budget" and not options.memory):
                continue
            start = time.perf_counter()
            worker = Worker(f"{way} {case}", Path(__file__), "cpu", Path(cold))
            if not worker.begin(LIMIT):
                row[way] = {"left_out": worker.why}
                continue
            workers[way] = worker
            row[way] = {"first_s": time.perf_counter() - start, "ms": None}
            row[way] |= worker.ask(LIMIT, what="losses")
        for _ in range(options.rounds):
            for way, worker in workers.items():
                answer = worker.ask(LIMIT, what="time", seconds=0.1 if options.quick else 2.5)
                for key in ("ms", "cpu_ms"):
                    row[way][key] = min(answer[key], row[way].get(key) or answer[key])
                row[way]["rss_mb"] = answer["rss_mb"]
        for worker in workers.values():
            worker.close()
    return row


def show(rows: list[dict[str, Any]]) -> None:
    heads = (
        "load s | first step after s | ms/step | ÷ eager | processor ms | peak MB | ÷ eager | loss differs"
    )
    print(f"| model | way | {heads} |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        eager = row["eager"]
        for way in [way for way in WAYS if way in row]:
            cell = row[way]
            if "left_out" in cell:
                print(f"| {row['case']} | {way} | {cell['left_out']} |")
                continue
            differs = max(abs(a - b) / abs(b) for a, b in zip(cell["losses"], eager["losses"], strict=True))
            cells = [f"{cell['load_s']:.2f}", f"{cell['first_s']:.1f}"]
            cells += [f"{cell['ms']:.3g}", f"{cell['ms'] / eager['ms']:.2f}", f"{cell['cpu_ms']:.3g}"]
            cells += [f"{cell['rss_mb']:.0f}", f"{cell['rss_mb'] / eager['rss_mb']:.2f}", f"{differs:.0e}"]
            print(f"| {row['case']} | {way} | {' | '.join(cells)} |")


def show_budget(made: dict[str, Any]) -> None:
    memory = made["memory"]
    print(
        f"with a budget of {memory['budget'] / 1e6:.0f} MB: made in {made['made_cpu_s']:.1f} s of the "
        "processor; "
        f"estimated {memory['estimate'] / 1e6:.0f} MB, without {memory['without'] / 1e6:.0f} MB; "
        f"{memory['again']} nodes again, {memory['share']:.0%} more time; "
        f"gradients differ by {made['gradients']:.0e} of the largest at most"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--device", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="tiny models")
    parser.add_argument("--only", default=",".join(CASES), help="cases, comma-separated")
    parser.add_argument("--ways", default=",".join(WAYS), help="eager among them, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1, help="examples in a batch")
    parser.add_argument("--length", type=int, default=64, help="words of an example")
    parser.add_argument("--memory", help="a budget, as --memory of train-graph: one more way")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where exported files are kept")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


JOBS: dict[str, Callable[..., Any]] = {
    "export": lambda *given: export(*given[:-1], Path(given[-1])),
    "write": lambda here, *memory: write(Path(here), *memory),
    "differing": lambda here, threads: differing(Path(here), threads),
}


def main() -> None:
    options = parsed()
    if options.worker:
        work(options.worker)
        return
    if options.job:
        job, *arguments = json.loads(options.job)
        print(json.dumps(JOBS[job](*arguments) or {}), flush=True)
        return
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).resolve()
        given = {name: getattr(options, name) for name in ("quick", "threads", "batch", "length")}
        given["folder"] = str(folder)
        os.environ["STOPGRAD_BENCH"] = json.dumps(given)
        for case in options.only.split(","):
            here = folder / case
            if not (here / "model.onnx").exists():
                separately("export", case, options.quick, options.batch, options.length, str(here))
            rows.append({"written": separately("write", str(here))})
            if options.memory:
                rows[-1]["fitted"] = separately("write", str(here), options.memory)
                rows[-1]["fitted"] |= separately("differing", str(here), options.threads)
            rows[-1] |= measured(case, options)
            if options.json:  # After each case: a run may be ended early.
                options.json.write_text(json.dumps(rows, indent=1))
    versions = " ".join(f"{p} {importlib.metadata.version(p)}" for p in ("torch", "onnxruntime", "jax"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} threads"
    print(f"{datetime.now():%Y-%m-%d}, {machine}, {versions}; load {os.getloadavg()[0]:.1f}\n")
    show(rows)
    for row in rows:
        made = row["written"]
        print(
            f"\n{row['case']}: {made['numbers']:,} numbers are trained; "
            f"the folder was made in {made['made_s']:.1f} s within {made['made_mb']:.0f} MB"
        )
        if "fitted" in row:
            show_budget(row["fitted"])


if __name__ == "__main__":
    main()
