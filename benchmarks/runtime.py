"""Running compiled gradients, side by side with the peers.

    python benchmarks/runtime.py [--quick] [--only S1,S4] [--peers jax,torch] [--seconds 6] [--json out.json]
                                 [--before ../other/src] [--numpy-engine] [--device gpu] [--rounds 5]
                                 [--kept folder] [--isa avx2]
    python benchmarks/runtime.py --only gates
    python benchmarks/runtime.py --json out.json --minutes 9   # begins no row after nine minutes
    python benchmarks/runtime.py --json out.json --resume      # the rows that the file does not have yet
    python benchmarks/runtime.py --json out.json --markdown    # its tables, into docs/benchmarks.md

The rows stand in ``runtime/problems.py``, and what each library is given in modules of its own beside it,
in the best form that its documentation shows. Libraries run in processes of their own, new ones for each
group of rows, and only one works at a time: the others wait at a pipe. *First result* is the time from
arrays to the first result in a process that has imported the library; stopgrad and JAX take it alone, the
others two at a time. *Again* is the same in a second process of stopgrad's, which finds what the first has
left on disk.

Then the rounds go round the libraries until the row's ``--seconds`` are spent, three times at least; in
each, a library makes calls for a share of them and gives their median. Shown is the fastest round, and how
far the middle one lies above it, in per cent. Results are waited for. Before anything is timed, the loss
and Σ |gradient| of each (of training steps: the first three losses) are compared with stopgrad's. Processor
time is that of all threads.

The ratio is stopgrad's time by the fastest peer's. NumPy and Numba, written by hand, stand for what the
machine can do and are not among the peers. All but "jax", which is as installed, have memory kept between
calls as stopgrad's engine asks for. PyTorch waits for work as its users have it: its threads spin for about
a millisecond after a call, for which the next library's turn waits, and which is processor time.

``--isa avx2`` measures as on a processor without AVX-512: libraries and compilers are told so
(``runtime/instructions.py``), and what stopgrad's engine finds out about its kernels it finds out anew.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from runtime import gates, instructions, report
from runtime.problems import PROBLEMS, Problem
from runtime.workers import COLUMNS, PEERS, Worker, work

HERE = Path(__file__).resolve()
ON_GPU = ("jax", "torch", "torch.compile")
SLOW = ("torch.compile", "pytensor")
"""Whose first results take ten seconds each: not part of a quick run unless asked for."""

PAUSE = 0.05
"""Seconds between two libraries' turns, for the threads of the last one to go to sleep: OpenBLAS's wait for
2²⁶ ticks of the processor."""

GROUPS = (("S1", "S2"), ("S3", "S5", "S6", "S7"), ("S8",), ("S4", "S9", "S10", "S11"), ("S12",))
"""Rows that share their processes; all others are one more group."""

# ------------------------------------------------------------------------------------------- measuring


class Bench:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.columns = columns_of(options)
        self.versions: dict[str, str] = {}
        self.missing = instructions.not_held(options.isa, self.columns)
        self.begun = time.perf_counter()

    def worker(self, name: str) -> Worker:
        options = self.options
        before = options.before if name == "before" else None
        return Worker(name, HERE, options.device, self.folder, before, options.kept, options.isa)

    def is_over(self) -> bool:
        """Whether the time is spent after which no row may begin."""
        return time.perf_counter() - self.begun > 60 * self.options.minutes

    def start(self, columns: Sequence[str]) -> dict[str, Worker]:
        """A new process for each library, all loading at once."""
        workers = {name: self.worker(name) for name in columns if name not in self.missing}
        for name, worker in workers.items():
            if worker.begin(limit=120):
                self.versions[name] = worker.version
            else:
                self.missing[name] = worker.why
        return {name: worker for name, worker in workers.items() if name not in self.missing}

    def sitting(self, problems: Sequence[Problem], rows: list[dict[str, Any]]) -> None:
        """Rows that are measured in the same processes, each written down when it is done."""
        workers = self.start(self.columns)
        again = self.start(["stopgrad"]) if "stopgrad" in workers and not self.options.quick else {}
        try:
            for problem in problems if "stopgrad" in workers else ():
                if self.is_over():
                    break
                row = self.row(problem, workers)
                for second in again.values():
                    answer = second.ask(self.options.limit, **self.prepare(problem))
                    if "first_s" in answer:
                        row["libraries"]["stopgrad"]["again_s"] = answer["first_s"]
                report.ratios(row)
                rows[:] = [r for r in rows if r["name"] != problem.name] + [row]
                self.write(rows)
        finally:
            for worker in (*workers.values(), *again.values()):
                worker.close()

    def prepare(self, problem: Problem) -> dict[str, Any]:
        return {"what": "prepare", "name": problem.name, "quick": self.options.quick}

    def prepared(self, problem: Problem, workers: dict[str, Worker]) -> dict[str, dict[str, Any]]:
        """The first results: stopgrad's and JAX's alone, those of the others two at a time."""

        def ask(name: str) -> dict[str, Any]:
            if workers[name].process.poll() is not None:  # It did not survive the last row.
                workers[name] = self.worker(name)
                if not workers[name].begin(limit=120):
                    return {"left_out": workers[name].why}
            limit = self.options.limit * (1 if name in report.LIMITS else 2)
            return workers[name].ask(limit, **self.prepare(problem))

        alone = [name for name in workers if name.split()[0] in ("stopgrad", "before", "jax")]
        cells = {name: ask(name) for name in alone}
        rest = [name for name in workers if name not in cells]
        with ThreadPoolExecutor(2) as pool:
            cells |= dict(zip(rest, pool.map(ask, rest), strict=True))
        return cells

    def row(self, problem: Problem, workers: dict[str, Worker]) -> dict[str, Any]:
        cells: dict[str, dict[str, Any]] = {name: {"left_out": why} for name, why in self.missing.items()}
        cells |= self.prepared(problem, workers)
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        order = [name for name in workers if "left_out" not in cells[name]]
        shuffle = random.Random(problem.name).shuffle
        for turn in self.turns(len(order)):
            shuffle(order)  # Nobody always comes after the same other.
            for name in order:
                if "left_out" in cells[name]:
                    continue
                time.sleep(PAUSE)
                answer = workers[name].ask(120, what="time", name=problem.name, seconds=turn)
                if "left_out" in answer:
                    cells[name] = answer
                else:
                    rounds[name].append(answer)
        expected = cells["stopgrad"].get("figures")
        for name, found in rounds.items():
            if "left_out" not in cells[name]:
                summarize(cells[name], found)
                compare(cells[name], expected, problem, self.options.device)
        print(f"{problem.name}: {report.time_text(cells['stopgrad'], problem)}", file=sys.stderr, flush=True)
        row = {"row": problem.row, "case": problem.case, "name": problem.name, "kind": problem.kind}
        return {**row, "load": os.getloadavg()[0], "libraries": {n: cells[n] for n in self.columns}}

    def turns(self, count: int) -> Iterator[float]:
        """For each round the seconds of one turn in it: three rounds, and more until the time is spent."""
        seconds, most = self.options.seconds, self.options.rounds
        begin, made = time.perf_counter(), 0
        while made < 3 or time.perf_counter() - begin < seconds:
            if most and made >= most:
                break
            if made and time.perf_counter() - begin > 3 * seconds:
                break  # Calls of seconds each.
            yield seconds / (4 * max(count, 1))
            made += 1

    def found(self, rows: list[dict[str, Any]], free: list[dict[str, Any]]) -> dict[str, Any]:
        """All that was measured; rows in the order of the table."""
        order = [p.name for p in PROBLEMS]
        return {
            "date": f"{datetime.now():%Y-%m-%d}",
            "machine": machine(self.options.device, self.options.isa),
            "versions": self.versions,
            "missing": self.missing,
            "columns": [c for c in COLUMNS if any(c in row["libraries"] for row in rows)],
            "rows": sorted(rows, key=lambda row: order.index(row["name"])),
            "gates": free,
        }

    def write(self, rows: list[dict[str, Any]], free: list[dict[str, Any]] = ()) -> None:
        """Into the file, at once or not at all."""
        if self.options.json is not None:
            part = self.options.json.with_suffix(".part")
            part.write_text(json.dumps(self.found(rows, [*free]), indent=1))
            part.replace(self.options.json)


def machine(device: str, isa: str | None) -> str:
    """The processor, whether it has AVX-512 or what else it is held to, and how many cores of it."""
    info = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in info.read_text().splitlines()] if info.exists() else []
    said = {key.strip(): value.strip() for key, _, value in lines}
    name = said.get("model name", platform.processor() or platform.machine())
    vectors = "AVX-512" if "avx512f" in said.get("flags", "").split() else "no AVX-512"
    if isa is not None:
        vectors = f"held to {instructions.named(isa)}"
    return f"{name}, {vectors}, {os.cpu_count()} cores, {device}, CPython {platform.python_version()}"


def summarize(cell: dict[str, Any], rounds: list[dict[str, Any]]) -> None:
    """Into a cell: the fastest round, how far the middle one lies above it, and the least processor time."""
    times = [r["ms"] for r in rounds]
    cell["ms"] = min(times)
    cell["spread"] = median(times) / cell["ms"] - 1
    cell["rounds_ms"] = times
    cell["cpu_ms"] = min(r["cpu_ms"] for r in rounds)
    cell["calls"] = sum(r["calls"] for r in rounds)
    cell["rss_mb"] = rounds[-1]["rss_mb"]


def compare(cell: dict[str, Any], expected: list[float] | None, problem: Problem, device: str) -> None:
    """Into a cell: how far it is from stopgrad's results, and whether that is agreement."""
    if expected is not None:
        pairs = list(zip(cell["figures"], expected, strict=True))
        if problem.kind == "rbm":  # The loss is a small difference of two samples' energies.
            del pairs[0]
        cell["off"] = max(abs(found - right) / max(abs(right), 1e-30) for found, right in pairs)
        cell["agrees"] = cell["off"] <= problem.tolerance * (20 if device == "gpu" else 1)


def columns_of(options: argparse.Namespace) -> list[str]:
    if options.peers is not None:
        peers = [p for p in options.peers.split(",") if p and p != "none"]
        unknown = [p for p in peers if p not in PEERS]
        if unknown:
            raise SystemExit(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    else:
        peers = [p for p in PEERS if not (options.quick and p in SLOW)]
        if options.device == "gpu":
            peers = [p for p in peers if p in ON_GPU]
    before = ["before"] if options.before is not None else []
    return ["stopgrad", *before, *(["stopgrad numpy"] if options.numpy_engine else []), *peers]


def sittings(problems: Sequence[Problem], quick: bool) -> list[list[Problem]]:
    """Which rows share their processes: a group each, and in a quick run all."""
    if quick:
        return [list(problems)]
    named = {row for group in GROUPS for row in group}
    steps = tuple({p.row for p in problems} - named)
    found = [[p for p in problems if p.row in group] for group in (*GROUPS, steps)]
    return [group for group in found if group]


# ---------------------------------------------------------------------------------------------- command


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="small sizes, two short rounds")
    parser.add_argument("--only", help="comma-separated rows: S1 to S21, gates; by default all")
    parser.add_argument("--resume", action="store_true", help="only rows that --json's file does not have")
    parser.add_argument(
        "--markdown",
        type=Path,
        nargs="?",
        const=HERE.parent.parent / "docs" / "benchmarks.md",
        help="measure nothing; the tables of --json's file into this page, by default docs/benchmarks.md",
    )
    parser.add_argument("--peers", help=f"comma-separated, of {', '.join(PEERS)}; or none")
    parser.add_argument(
        "--before", type=Path, help="the src folder of another checkout of stopgrad: a column"
    )
    parser.add_argument("--numpy-engine", action="store_true", help="stopgrad's numpy engine: a column")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--isa", choices=[*instructions.SETTINGS], help="hold all to an instruction set")
    parser.add_argument("--rounds", type=int, default=0, help="at most so many; 2 with --quick")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each row's rounds, by default 6")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no row after so many: --resume goes on"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        help="a folder in which torch.compile finds what it compiled in the last run",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds for a first result of NumPy or Numba; the others have twice as many",
    )
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 0)
    options.seconds = options.seconds or (0.1 if options.quick else 6.0)
    return options


def main() -> None:
    options = parsed()
    if options.worker:
        return work(options.worker, options.device)
    known = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    if options.markdown:
        return report.into_docs(known, options.markdown)
    names = [*dict.fromkeys(p.row for p in PROBLEMS), "gates"]
    wanted = options.only.split(",") if options.only else names
    if unknown := {*wanted} - {*names}:
        raise SystemExit(f"no row {', '.join(sorted(unknown))}; there are S1 to S21 and gates")
    rows = known.get("rows", []) if options.only or options.resume else []
    done = {row["name"] for row in rows} if options.resume else {}
    free: list[dict[str, Any]] = known.get("gates", [])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench = Bench(options, Path(folder))
        bench.versions |= known.get("versions", {})
        chosen = [p for p in PROBLEMS if p.row in wanted and p.name not in done]
        for problems in sittings(chosen, options.quick):
            if bench.is_over():
                break
            bench.sitting(problems, rows)
            if "stopgrad" in bench.missing:
                return print(f"nothing measured: {bench.missing['stopgrad']}")
        if "gates" in wanted and not (options.resume and free) and not bench.is_over():
            free = gates.compared(bench)
        bench.write(rows, free)
    found = bench.found(rows, free)
    print(report.heading(found))
    for title, header, body in report.tables(found):
        report.show(title, header, body)
    print()
    for line in report.remarks(found):
        print(line)


if __name__ == "__main__":
    main()
