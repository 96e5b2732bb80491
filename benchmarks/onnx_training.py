"""Training steps written by `stopgrad.onnx`, in ONNX Runtime, against PyTorch; gradients against onnx-ad's.

    python benchmarks/onnx_training.py [--quick] [--only mlp,resnet] [--ways eager,stock] [--rounds 8]
                                       [--threads 1] [--json out.json]

**Steps.** One step is forward, loss, backward and AdamW, on one batch in single precision. PyTorch runs it
eagerly and compiled, with its fused AdamW; ONNX Runtime runs the ``train_step.onnx`` that was made of the
module's export, under a Trainer (*trainer*), and by itself, in a loop that feeds back (*stock*). Each
way has a process of its own; the processes take turns, and a round is half a second of steps; the figure is
the least of the rounds' medians; *processor* is what a step took of it. *first* is from the start of a cold
process to the end of its first step (the least of three processes; of one, with empty caches, for the
compiler); *peak* is the most memory that the
process held. *model* and *packages* are what must be on disk: the files of the model, and the installed
packages that run it, with all that they require.

**Gradients.** Of the weighted sum of the outputs, by all parameters, of the module exported as it
rests: the graph that `sgo.to_model` writes and the one that `onnx_ad.reverse` makes of the same file, in one
process of ONNX Runtime, by turns.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
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

CASES = ("mlp", "resnet", "transformer")
WAYS = ("eager", "compile", "trainer", "stock")
RATE = 1e-3
LIMIT = 600.0
PACKAGES = {
    "eager": ["torch"],
    "compile": ["torch"],
    "trainer": ["stopgrad", "onnxruntime", "numpy", "ml_dtypes", "optree", "safetensors", "rich"],
    "stock": ["onnxruntime", "numpy", "safetensors"],
}

# ---------------------------------------------------------------------------------------- in a worker


def step_of(way: str, case: str, folder: Path, quick: bool, threads: int) -> Callable[[], float]:
    """A function that makes one step and returns its loss."""
    if way == "stock":
        return stock(folder / case, threads)
    if way == "trainer":
        from stopgrad_trainer import Trainer  # What the process imports is what is measured.

        trainer = Trainer(folder / case / "out", threads=threads)
        batch = dict(np.load(folder / case / "batch.npz"))
        return lambda: trainer.step(**batch, learning_rate=RATE)
    import torch
    from runtime.training_models import loss_of, made

    torch.set_num_threads(threads)
    model, x, labels = made(case, quick)
    forward = (
        torch.compile(lambda: loss_of(model(x), labels))
        if way == "compile"
        else lambda: loss_of(model(x), labels)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)

    def step() -> float:
        optimizer.zero_grad()
        loss = forward()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def stock(folder: Path, threads: int) -> Callable[[], float]:
    """The same without this package: what somebody writes who has the files and ONNX Runtime."""
    import onnxruntime
    from safetensors.numpy import load_file

    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    graph = manifest["graphs"]["train_step"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    path = str(folder / "out" / graph["file"])
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    fed = load_file(folder / "out" / manifest["state_file"]) | dict(np.load(folder / "batch.npz"))
    fed["learning_rate"] = np.array(RATE, np.float32)
    names = [y["name"] for y in graph["outputs"]]
    updates = [y.get("updates") for y in graph["outputs"]]

    def step() -> float:
        made = session.run(names, fed)
        fed.update((name, value) for name, value in zip(updates, made, strict=True) if name)
        return float(made[updates.index(None)])

    return step


def work(column: str) -> None:
    """Make the first step, say so, and then answer what is asked, one line of JSON each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    way, case = column.split()
    options = json.loads(os.environ["STOPGRAD_BENCH"])
    step = step_of(way, case, Path(options["folder"]), options["quick"], options["threads"])
    losses = [step()]
    print(json.dumps({"version": way}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["what"] == "time":
            answer = timed(step, request["seconds"])
        else:
            losses += [step() for _ in range(4)]
            answer = {"losses": losses}
        print(json.dumps(answer | {"rss_mb": peak_mb()}), file=answers, flush=True)


# ---------------------------------------------------------------------------------------- making files


def export(case: str, quick: bool, folder: Path) -> None:
    """Write a module as ONNX, as it trains, and its batch."""
    import torch
    from runtime.training_models import made

    model, x, labels = made(case, quick)
    here = folder / case
    here.mkdir(parents=True, exist_ok=True)
    (here / "trained.json").write_text(json.dumps([name for name, _ in model.named_parameters()]))
    for name in ("model", "resting"):
        torch.onnx.export(
            model,
            (x,),
            str(here / f"{name}.onnx"),
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            opset_version=17,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            dynamic_axes={"x": {0: "batch"}},
        )
        model.eval()  # As which onnx-ad differentiates batch norms.
    np.savez(here / "batch.npz", x=x.numpy(), labels=labels.numpy())


def write(case: str, folder: Path) -> dict[str, Any]:
    """Write the training graphs of an exported module."""
    import stopgrad.onnx as sgo

    here = folder / case
    start = time.perf_counter()
    sgo.training(here / "model.onnx", loss="cross-entropy:axis=-1", optimizer="adamw", folder=here / "out")
    files = ("train_step.onnx", "state.safetensors", "manifest.json")
    size = sum(
        path.stat().st_size for path in (here / "out").iterdir() if path.name in files or ".data" in path.name
    )
    return {"made_s": time.perf_counter() - start, "files_mb": size / 2**20}


def gradients(case: str, folder: Path, rounds: int, threads: int) -> dict[str, Any]:
    """Gradient models of one export, ours and onnx-ad's: size, and time in ONNX Runtime by turns."""
    import onnx
    import onnx_ad
    import onnxruntime

    import stopgrad as sg
    import stopgrad.onnx as sgo

    model = onnx.load(folder / case / "resting.onnx")
    batch = len(np.load(folder / case / "batch.npz")["x"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch  # Which onnx-ad must know.
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model = onnx.shape_inference.infer_shapes(model)
    x = np.load(folder / case / "batch.npz")["x"]
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    loaded = sgo.load(model)
    trained = [
        name for name in json.loads((folder / case / "trained.json").read_text()) if name in loaded.parameters
    ]
    parameters = {name: loaded.parameters[name] for name in trained}
    seed = np.random.default_rng(0).standard_normal(loaded(x).shape).astype(np.float32)
    made: dict[str, Any] = {}
    feeds = {"x": x, **{name: weights[name] for name in trained}}
    with loaded.graph.as_default():
        (y,) = loaded.outputs.values()
        g = sg.placeholder(y.dtype, y.shape, name="adj_y")
        found = sg.gradients(y, list(parameters.values()), grad_ys=g)
        outputs = {f"adj_{name}": d for name, d in zip(trained, found, strict=True) if d is not None}
        made["stopgrad"] = sgo.to_model({"y": y, **outputs}, {**loaded.inputs, **parameters, "adj_y": g})
    try:
        made["onnx-ad"] = _by_onnx_ad(
            onnx, onnx_ad, model, [name for name in trained if f"adj_{name}" in outputs]
        )
    except Exception as error:
        made["onnx-ad"] = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    report: dict[str, Any] = {}
    runs: dict[str, Callable[[], Any]] = {}
    for name, one in made.items():
        if isinstance(one, str):
            report[name] = {"left_out": one}
            continue
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        try:
            session = onnxruntime.InferenceSession(
                one.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            given = feeds | {"adj_y": seed if name == "stopgrad" else seed[..., None]}
            fed = {i.name: given[i.name] for i in session.get_inputs()}
            runs[name] = lambda session=session, fed=fed: session.run(None, fed)
            names = [o.name for o in session.get_outputs()]
            report[name] = {"nodes": len(one.graph.node), "kb": one.ByteSize() / 1024, "ms": None}
            report[name]["values"] = {
                k: v for k, v in zip(names, runs[name](), strict=True) if k.startswith("adj_")
            }
        except Exception as error:
            report[name] = {"left_out": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
            runs.pop(name, None)
    for _ in range(rounds):
        for name, run in runs.items():
            ms = timed(run, 0.3)["ms"]
            report[name]["ms"] = min(ms, report[name]["ms"] or ms)
    values = [report[name].pop("values") for name in runs]
    if len(values) == 2:
        report["differ"] = max(_far(a, values[1][key]) for key, a in values[0].items())
    return report


def _by_onnx_ad(onnx: Any, onnx_ad: Any, model: Any, trained: list[str]) -> Any:
    """onnx-ad's adjoint model with respect to what was initializers: they become inputs."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    for tensor in [t for t in opened.graph.initializer if t.name in trained]:
        opened.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
        opened.graph.initializer.remove(tensor)
    opened = onnx.shape_inference.infer_shapes(opened)
    return onnx_ad.reverse(opened, inputs=trained, layout="onnx")


def _far(a: Any, b: Any) -> float:
    b = b.reshape(a.shape)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6))


# -------------------------------------------------------------------------------------------- on disk


def installed_mb(packages: list[str]) -> float:
    """The size of installed packages, with all that they require."""
    waiting, seen, total = list(packages), set(), 0
    while waiting:
        name = re.split(r"[ <>=!~;\[(]", waiting.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # For other systems or Pythons, or stopgrad itself from its sources.
        paths = [Path(str(found.locate_file(file))) for file in found.files or ()]
        total += sum(path.stat().st_size for path in paths if path.is_file())
        waiting += [r for r in found.requires or () if "extra ==" not in r]
    return total / 2**20


def own_mb() -> float:
    """The size of this package's sources."""
    folder = Path(importlib.import_module("stopgrad").__file__).parent
    return sum(path.stat().st_size for path in folder.rglob("*.py")) / 2**20


# ------------------------------------------------------------------------------------------- measuring


def separately(job: str, *arguments: Any) -> dict[str, Any]:
    """A job in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps([job, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"left_out": (done.stderr.strip().splitlines() or ["it died"])[-1][:300]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def started(way: str, case: str, folder: Path) -> tuple[Worker, float | None]:
    """A process that has made its first step, and how long that took since it was started."""
    with tempfile.TemporaryDirectory() as cold:
        start = time.perf_counter()
        worker = Worker(f"{way} {case}", Path(__file__), "cpu", Path(cold))
        ready = worker.begin(LIMIT)
        return worker, time.perf_counter() - start if ready else None


def measured(case: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All ways of one case, by turns."""
    row: dict[str, Any] = {"case": case}
    workers: dict[str, Worker] = {}
    for way in options.ways.split(","):
        firsts = []
        for _ in range(1 if options.quick or way == "compile" else 3):
            if way in workers:
                workers[way].close()
            workers[way], first = started(way, case, folder)
            firsts.append(first)
        row[way] = (
            {"first_s": min(firsts), "ms": None} if None not in firsts else {"left_out": workers[way].why}
        )
    running = {way: worker for way, worker in workers.items() if "left_out" not in row[way]}
    for way, worker in running.items():
        row[way]["losses"] = worker.ask(LIMIT, what="losses")["losses"]
    for _ in range(options.rounds):
        for way, worker in running.items():
            answer = worker.ask(LIMIT, what="time", seconds=0.1 if options.quick else 0.5)
            for key in ("ms", "cpu_ms"):
                row[way][key] = min(answer[key], row[way].get(key) or answer[key])
            row[way]["rss_mb"] = answer["rss_mb"]
    for worker in workers.values():
        worker.close()
    return row


# --------------------------------------------------------------------------------------------- showing


def show_steps(rows: list[dict[str, Any]]) -> None:
    print(
        "| case | way | ms/step | ÷ eager | processor ms | ÷ eager | first s | eager ÷ "
        "| peak MB | eager ÷ | model MB | packages MB | loss differs |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        eager = row["eager"]
        for way in [way for way in WAYS if way in row]:
            cell = row[way]
            if "left_out" in cell:
                print(f"| {row['case']} | {way} | {cell['left_out']} |")
                continue
            differs = max(abs(a - b) / abs(b) for a, b in zip(cell["losses"], eager["losses"], strict=True))
            cells = [f"{cell['ms']:.3g}", f"{cell['ms'] / eager['ms']:.2f}"]
            cells += [f"{cell['cpu_ms']:.3g}", f"{cell['cpu_ms'] / eager['cpu_ms']:.2f}"]
            cells += [f"{cell['first_s']:.2f}", f"{eager['first_s'] / cell['first_s']:.1f}"]
            cells += [f"{cell['rss_mb']:.0f}", f"{eager['rss_mb'] / cell['rss_mb']:.1f}"]
            cells += [f"{row['files_mb'][way]:.1f}", f"{row['packages_mb'][way]:.0f}", f"{differs:.0e}"]
            print(f"| {row['case']} | {way} | {' | '.join(cells)} |")


def show_gradients(rows: list[dict[str, Any]]) -> None:
    print("\n| gradients of | made by | nodes | kB | ms | differ |")
    print("|---|---|--:|--:|--:|--:|")
    for row in rows:
        for name, cell in row["gradients"].items():
            if name in ("differ", "left_out"):
                continue
            if "left_out" in cell:
                print(f"| {row['case']} | {name} | {cell['left_out']} |")
                continue
            differ = row["gradients"].get("differ")
            shown = "" if differ is None else f"{differ:.0e}"
            print(
                f"| {row['case']} | {name} | {cell['nodes']} "
                f"| {cell['kb']:.1f} | {cell['ms']:.3g} | {shown} |"
            )
        if "left_out" in row["gradients"]:
            print(f"| {row['case']} | {row['gradients']['left_out']} |")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--device", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="tiny models")
    parser.add_argument("--only", default=",".join(CASES), help="cases, comma-separated")
    parser.add_argument("--ways", default=",".join(WAYS), help="eager among them, comma-separated")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


JOBS: dict[str, Callable[..., Any]] = {
    "export": lambda case, quick, folder: export(case, quick, Path(folder)),
    "write": lambda case, folder: write(case, Path(folder)),
    "gradients": lambda case, folder, *more: gradients(case, Path(folder), *more),
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
        folder = Path(name)
        given = {"folder": name, "quick": options.quick, "threads": options.threads}
        os.environ["STOPGRAD_BENCH"] = json.dumps(given)
        packages = {way: installed_mb(names) for way, names in PACKAGES.items()}
        packages["trainer"] += own_mb()
        for case in options.only.split(","):
            separately("export", case, options.quick, name)
            written = separately("write", case, name)
            row = measured(case, folder, options)
            exported = (folder / case / "model.onnx").stat().st_size / 2**20
            row["files_mb"] = dict.fromkeys(WAYS, written.get("files_mb", 0.0)) | {
                "eager": exported,
                "compile": exported,
            }
            row["packages_mb"], row["written"] = packages, written
            row["gradients"] = separately("gradients", case, name, options.rounds, options.threads)
            rows.append(row)
    load = os.getloadavg()[0]
    versions = " ".join(f"{p} {importlib.metadata.version(p)}" for p in ("torch", "onnxruntime", "onnx-ad"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} threads"
    machine = f"{machine}, {versions}; load {load:.1f}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}\n")
    show_steps(rows)
    show_gradients(rows)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
