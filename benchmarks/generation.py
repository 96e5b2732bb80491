"""Building graphs and generating gradients, side by side with the peers.

    python benchmarks/generation.py [--quick] [--peers tensorflow,jax,pytensor,torch,mlx]
                                    [--only chain,mlp] [--json out.json]

The peers: TensorFlow graph mode, JAX, PyTensor, PyTorch and MLX. Every library runs in a process of its own,
warmed on a tiny case. The repetitions of a case go round the libraries, one at a time, so that a busy spell
of the machine meets all of them. What is measured is the processor time of the building thread, median of the
repetitions; garbage is collected before each, and the collector is left on, as users have it. A size that a
library would need longer than ``--limit`` seconds for, judged by its last size, is left out, and so are all
after it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import libraries

HERE = Path(__file__).resolve()
SIZES = {
    "chain": (100, 1_000, 10_000, 100_000, 1_000_000),
    "mlp": (10, 100, 1_000),
    "fan_out": (100, 1_000, 10_000, 100_000),
    "stopped": (1_000, 10_000, 100_000),
    "live_tenth": (1_000, 10_000, 100_000),
    "derivative": (1, 2, 3, 4, 5, 6),
}
QUICK = {
    "chain": (100, 1_000),
    "mlp": (10,),
    "fan_out": (100,),
    "stopped": (1_000,),
    "live_tenth": (1_000,),
    "derivative": (1, 2, 3),
}
WARM = {"chain": 20, "mlp": 2, "fan_out": 20, "stopped": 20, "derivative": 2}
NATIVE = ("mlx",)  # A native core is a column of its own, not one of the peers of a Python library.

# --------------------------------------------------------------------------------------------- workers


def work(name: str) -> None:
    """Answer requests, one line of JSON each, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # What libraries print is no answer.
    library = libraries.LIBRARIES[name]()
    for case, size in WARM.items():
        library.measure(libraries.WORKLOADS[case](size), count=True)
    print(json.dumps({"version": library.version}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        workload = libraries.WORKLOADS[request["case"]](request["size"])
        try:
            if request["what"] == "memory":
                answer = library.memory(workload)
            else:
                answer = dataclasses.asdict(measured(library, workload, request["count"]))
            answer["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        except (Exception, RecursionError) as error:
            (first, *_) = [*str(error).strip().splitlines(), ""]
            answer = {"error": f"{type(error).__name__}: {first[:80]}"}
        print(json.dumps(answer), file=answers, flush=True)


def measured(library: Any, workload: Any, count: bool) -> Any:
    """One measurement; of a small case, whose single run is noise, medians of a tenth of a second's worth."""
    start = time.perf_counter()
    first = library.measure(workload, count)
    several = [first]
    while time.perf_counter() - start < 0.1:
        several.append(library.measure(workload, False))
    return dataclasses.replace(
        first, build=median(m.build for m in several), gradient=median(m.gradient for m in several)
    )


class Worker:
    """A library in a process of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.start()

    def start(self) -> None:
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "JAX_PLATFORMS": "cpu",
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, str(HERE), "--worker", self.name]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        first = self.process.stdout.readline()
        self.version = json.loads(first)["version"] if first else None

    def ask(self, **request: Any) -> dict[str, Any]:
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.wait()
            self.start()
            return {"error": f"the process died ({code})"}
        return json.loads(line)

    def last_words(self) -> str:
        self.process.wait()
        self.errors.seek(0)
        return (self.errors.read().strip().splitlines() or ["no message"])[-1]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


# ------------------------------------------------------------------------------------------- measuring


def run(
    workers: dict[str, Worker], cases: dict[str, tuple[int, ...]], repetitions: int, limit: float
) -> list[dict[str, Any]]:
    rows = []
    for case, sizes in cases.items():
        expected: dict[str, float] = dict.fromkeys(workers, 0.0)
        for n, size in enumerate(sizes):
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
            spent = dict.fromkeys(workers, 0.0)
            row: dict[str, Any] = {"case": case, "size": size, "libraries": {}}
            for repetition in range(repetitions):
                for name, worker in workers.items():
                    too_long = name != "stopgrad" and (expected[name] > limit or spent[name] > limit)
                    if too_long or (found[name] and "error" in found[name][-1]):
                        continue
                    start = time.perf_counter()
                    found[name].append(worker.ask(what="time", case=case, size=size, count=repetition == 0))
                    spent[name] += time.perf_counter() - start
            for name, answers in found.items():
                row["libraries"][name] = summary = summarize(answers, expected[name])
                growth = (sizes[n + 1] / size if case != "derivative" else 3.0) if n + 1 < len(sizes) else 1.0
                longest = summary.get("build_s", 0.0) + summary.get("gradient_s", 0.0)
                expected[name] = float("inf") if "note" in summary else growth * longest
            rows.append(row)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def summarize(answers: list[dict[str, Any]], expected: float) -> dict[str, Any]:
    """The medians of the repetitions, per forward operation; or why there are none."""
    if not answers:
        return {"note": f"about {expected:.0f} s" if expected < float("inf") else "left out before"}
    if "error" in answers[-1]:
        return {"note": answers[-1]["error"]}
    build, gradient = (median(a[key] for a in answers) for key in ("build", "gradient"))
    counts = {key: answers[0][key] for key in ("forward", "live", "made")}
    return {
        "build_s": build,
        "gradient_s": gradient,
        **counts,
        "rss": answers[-1]["rss"],
        "repetitions": len(answers),
    }


def ratio(row: dict[str, Any], key: str, peers: list[str]) -> tuple[float, str] | None:
    """The fastest peer's time over ours, and which peer that is."""
    ours = row["libraries"]["stopgrad"].get(key)
    times = [(row["libraries"][p][key], p) for p in peers if row["libraries"][p].get(key, 0.0) > 0.0]
    return (min(times)[0] / ours, min(times)[1]) if ours and times else None


# ------------------------------------------------------------------------------------------- reporting


def tables(
    rows: list[dict[str, Any]], names: list[str], memory: dict[str, Any]
) -> list[tuple[str, list[str], list[list[str]]]]:
    peers = [n for n in names if n != "stopgrad" and n not in NATIVE]
    native = [n for n in names if n in NATIVE]
    times, sizes = [], []
    for row in rows:
        what = [row["case"], f"{row['size']:,}"]
        found = row["libraries"]
        compared = [ratio(row, key, peers) for key in ("build_s", "gradient_s")]
        distance = [ratio(row, key, native) for key in ("build_s", "gradient_s")]
        times.append(
            [
                *what,
                *[_pair(found[n], found["stopgrad"]["forward"]) for n in names],
                *([" / ".join(f"{r[0]:.0f}×" if r else "-" for r in compared)] if peers else []),
                *([" / ".join(f"{1 / r[0]:.1f}×" if r else "-" for r in distance)] if native else []),
            ]
        )
        sizes.append([*what, *[_operations(found[n]) for n in names]])
    comparisons = [*(["fastest peer / ours"] if peers else []), *(["ours / mlx"] if native else [])]
    return [
        (
            "Processor µs per forward operation (as stopgrad counts them): build / gradient",
            ["case", "size", *names, *comparisons],
            times,
        ),
        (
            "Operations: forward → live after the gradient (all made, where more)",
            ["case", "size", *names],
            sizes,
        ),
        (
            "stopgrad: memory",
            ["case", "size", "bytes/op, built", "bytes/op, with gradient", "bytes/op, peak"],
            [
                [m["case"], f"{m['size']:,}", *[f"{m[key]:.0f}" for key in ("forward", "both", "peak")]]
                for m in memory.values()
            ],
        ),
    ]


def _pair(found: dict[str, Any], operations: int) -> str:
    if "note" in found:
        return found["note"]
    return " / ".join(f"{1e6 * found[key] / operations:.2f}" for key in ("build_s", "gradient_s"))


def _operations(found: dict[str, Any]) -> str:
    if found.get("live") is None:
        return "-"
    return f"{found['forward']:,} → {found['live']:,}" + (
        f" ({found['made']:,})" if found["made"] > found["live"] else ""
    )


def stop_costs(rows: list[dict[str, Any]]) -> list[str]:
    """The gradient of a chain of which a tenth is live, against that of the live tenth alone."""
    alone = {row["size"]: row["libraries"] for row in rows if row["case"] == "live_tenth"}
    lines = []
    for row in rows:
        live = alone.get(row["size"])
        if row["case"] == "stopped" and live is not None:
            factors = [
                f"{name} {found['gradient_s'] / live[name]['gradient_s']:.2f}"
                for name, found in row["libraries"].items()
                if "gradient_s" in found and "gradient_s" in live.get(name, {})
            ]
            lines.append(
                f"gradient of the stopped chain of {row['size']:,}, in times that of its live tenth alone: "
                f"{', '.join(factors)}"
            )
    return lines


def show(title: str, header: list[str], body: list[list[str]]) -> None:
    widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
    print(f"\n{title}\n")
    for number, line in enumerate([header, *body]):
        print(
            "| "
            + " | ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
            + " |"
        )
        if number == 0:
            print(
                "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="small sizes, three repetitions")
    parser.add_argument(
        "--peers",
        default="tensorflow,jax,pytensor,torch,mlx",
        help="comma-separated; 'none' for stopgrad alone",
    )
    parser.add_argument("--only", default=",".join(SIZES), help="comma-separated cases")
    parser.add_argument(
        "--repetitions", type=int, default=0, help="per case and library (default 7; 3 with --quick)"
    )
    parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds that one library may take for one case"
    )
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    if options.worker:
        return _with_deep_stack(options.worker)

    peers = [p for p in options.peers.split(",") if p and p != "none"]
    workers = {}
    for name in ["stopgrad", *peers]:
        worker = Worker(name)
        if worker.version is None:
            print(
                f"{name} left out: {worker.last_words()} (pip install -e '.[bench]' installs all)",
                file=sys.stderr,
            )
        else:
            workers[name] = worker
    cases = {
        case: sizes
        for case, sizes in (QUICK if options.quick else SIZES).items()
        if case in options.only.split(",")
    }
    rows = run(workers, cases, options.repetitions or (3 if options.quick else 7), options.limit)
    memory = {}
    for case, size in (
        ("chain", 1_000 if options.quick else 100_000),
        ("mlp", 10 if options.quick else 1_000),
    ):
        memory[case] = {
            "case": case,
            "size": size,
            **workers["stopgrad"].ask(what="memory", case=case, size=size),
        }
    versions = {name: worker.version for name, worker in workers.items()}
    processor = platform.processor() or platform.machine()
    machine = f"{processor}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    for worker in workers.values():
        worker.close()

    print(f"{datetime.now():%Y-%m-%d}, {machine}; " + ", ".join(f"{n} {v}" for n, v in versions.items()))
    for title, header, body in tables(rows, list(workers), memory):
        show(title, header, body)
    print()
    for line in stop_costs(rows):
        print(line)
    peak = max(row["libraries"]["stopgrad"].get("rss", 0) for row in rows)
    print(f"stopgrad's peak resident memory: {peak:.0f} MiB; at a recursion limit of 200 throughout")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "versions": versions, "rows": rows, "memory": memory}, indent=1)
        )


def _with_deep_stack(name: str) -> None:
    """PyTensor recurses along the graph: it gets a stack and a limit with which it can be measured at all."""
    limit = getattr(libraries.LIBRARIES[name], "recursion_limit", 0)
    if limit <= sys.getrecursionlimit():
        return work(name)
    sys.setrecursionlimit(limit)
    threading.stack_size(1 << 30)
    thread = threading.Thread(target=work, args=(name,))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
