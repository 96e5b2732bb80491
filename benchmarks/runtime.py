"""Running compiled gradients, side by side with the peers.

    python benchmarks/runtime.py [--quick] [--only S1,S4] [--peers jax,torch] [--rounds 5] [--json out.json]
                                 [--before ../other/src] [--numpy-engine] [--device gpu]
    python benchmarks/runtime.py --only gates

The rows stand in ``runtime/problems.py``, and what each library is given in a module of its own beside it,
as a user of that library would write it. Every library runs in a process of its own, a new one for each
row, and only one works at a time: the others wait at a pipe. *First result* is the time from arrays to the
first result in a process that has imported the library and made one small call; the caches on disk are
empty. *Again* is the same in a second process of stopgrad's, which finds what the first has left there. Then
the rounds go round the libraries; in each, a library makes calls for ``--seconds`` and gives their median.
Shown is the median of the rounds, and half the distance between the fastest and the slowest round in per
cent of it. Results are waited for. Before anything is timed, the loss and Σ |gradient| of each are compared
with stopgrad's.

The ratio is stopgrad's time by the fastest peer's. NumPy and Numba, written by hand, stand for what the
machine can do and are not among the peers. PyTorch waits for work as its users have it: its threads spin
for about a millisecond after a call, for which the next library's turn waits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from runtime import gates
from runtime.problems import PROBLEMS, Problem
from runtime.workers import COLUMNS, Worker, work

HERE = Path(__file__).resolve()
OURS = ("stopgrad", "before", "stopgrad numpy")
LIMITS = ("numpy", "numba")
PEERS = tuple(name for name in COLUMNS if name not in OURS)
ON_GPU = ("jax", "torch", "torch.compile")
SLOW = ("torch.compile", "pytensor")
"""Whose first results take ten seconds each: not part of a quick run unless asked for."""

PAUSE = 0.02
"""Seconds between two libraries' turns, for the threads of the last one to go to sleep."""

# ------------------------------------------------------------------------------------------- measuring


class Bench:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.columns = columns_of(options)
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def start(self, columns: Sequence[str]) -> dict[str, Worker]:
        """A new process for each library, all loading at once."""
        workers = {
            name: Worker(
                name,
                HERE,
                self.options.device,
                self.folder,
                self.options.before if name == "before" else None,
            )
            for name in columns
            if name not in self.missing
        }
        for name, worker in workers.items():
            if worker.begin(limit=120):
                self.versions[name] = worker.version
            else:
                self.missing[name] = worker.why
        return {name: worker for name, worker in workers.items() if name not in self.missing}

    def sitting(self, problems: Sequence[Problem]) -> list[dict[str, Any]]:
        """Rows that are measured in the same processes."""
        workers = self.start(self.columns)
        try:
            rows = [self.row(problem, workers) for problem in problems]
        finally:
            close(workers)
        again = self.start(["stopgrad"])
        for problem, row in zip(problems, rows, strict=True) if again else ():
            answer = again["stopgrad"].ask(self.options.limit, **self.prepare(problem))
            if "first_s" in answer:
                row["libraries"]["stopgrad"]["again_s"] = answer["first_s"]
        close(again)
        return rows

    def prepare(self, problem: Problem) -> dict[str, Any]:
        return {"what": "prepare", "name": problem.name, "quick": self.options.quick}

    def row(self, problem: Problem, workers: dict[str, Worker]) -> dict[str, Any]:
        cells: dict[str, dict[str, Any]] = {name: {"left_out": why} for name, why in self.missing.items()}
        for name, worker in workers.items():
            limit = self.options.limit * (2 if name in ("stopgrad", "torch.compile") else 1)
            cells[name] = worker.ask(limit, **self.prepare(problem))
        expected = cells["stopgrad"].get("figures")
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        order = [name for name in workers if "left_out" not in cells[name]]
        for _ in range(self.options.rounds):
            order = order[1:] + order[:1]  # Nobody always comes after the same other.
            for name in order:
                if "left_out" in cells[name]:
                    continue
                time.sleep(PAUSE)
                answer = workers[name].ask(60, what="time", name=problem.name, seconds=self.options.seconds)
                if "left_out" in answer:
                    cells[name] = answer
                else:
                    rounds[name].append(answer)
        for name, found in rounds.items():
            if "left_out" not in cells[name]:
                summarize(cells[name], found)
                compare(cells[name], expected, problem, self.options.device)
        print(f"{problem.name}: {time_text(cells['stopgrad'], problem)}", file=sys.stderr, flush=True)
        return {"row": problem.row, "case": problem.case, "libraries": {n: cells[n] for n in self.columns}}


def close(workers: dict[str, Worker]) -> None:
    for worker in workers.values():
        worker.close()


def summarize(cell: dict[str, Any], rounds: list[dict[str, Any]]) -> None:
    """Into a cell: the median of the rounds and their spread."""
    times = [r["ms"] for r in rounds]
    cell["ms"] = median(times)
    cell["spread"] = (max(times) - min(times)) / (2 * cell["ms"])
    cell["rounds_ms"] = times
    cell["cpu_ms"] = median(r["cpu_ms"] for r in rounds)
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
    """Which rows share their processes: the calls of S8, and in a quick run all."""
    if quick:
        return [list(problems)]
    found: list[list[Problem]] = []
    for problem in problems:
        if found and problem.row == "S8" == found[-1][0].row:
            found[-1].append(problem)
        else:
            found.append([problem])
    return found


# ------------------------------------------------------------------------------------------- reporting


def fastest(row: dict[str, Any], names: Sequence[str]) -> tuple[float, str] | None:
    times = [(row["libraries"][n]["ms"], n) for n in names if "ms" in row["libraries"].get(n, {})]
    return min(times, default=None)


def ratios(row: dict[str, Any]) -> None:
    """Into a row: stopgrad's time by the fastest peer's, by the limits', and by JAX's."""
    ours = row["libraries"]["stopgrad"].get("ms")
    groups = {
        "fastest_peer": [n for n in PEERS if n not in LIMITS],
        "fastest_limit": LIMITS,
        "jax": ["jax"],
        "before": ["before"],
    }
    for key, names in groups.items():
        best = fastest(row, names)
        if ours is not None and best is not None:
            row[key] = {"name": best[1], "ratio": ours / best[0]}


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def time_text(cell: dict[str, Any], problem: Any) -> str:
    if "ms" not in cell:
        return "–"
    row = problem["row"] if isinstance(problem, dict) else problem.row
    scaled, unit = (1e3 * cell["ms"], " µs") if row == "S8" else (cell["ms"], "")
    mark = "" if cell.get("agrees", True) else " ≠"
    return f"{number(scaled)}{unit} ±{100 * cell['spread']:.0f}{mark}"


def ratio_text(row: dict[str, Any], key: str, named: bool = True) -> str:
    found = row.get(key)
    if found is None:
        return "–"
    return f"{found['ratio']:.2f}" + (f" {found['name']}" if named else "")


def tables(rows: list[dict[str, Any]], columns: list[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    names = [f"{row['row']} {row['case']}" for row in rows]
    peers = [c for c in columns if c in PEERS and c not in LIMITS]
    limits = [c for c in columns if c in LIMITS]
    before = ["ours / before"] if "before" in columns else []
    times = [
        [
            name,
            *[time_text(row["libraries"][c], row) for c in columns],
            *([ratio_text(row, "before", False)] if before else []),
            *([ratio_text(row, "fastest_peer")] if peers else []),
            *([ratio_text(row, "jax", False)] if "jax" in peers else []),
            *([ratio_text(row, "fastest_limit")] if limits else []),
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    heads = [
        *before,
        *(["ours / fastest peer"] if peers else []),
        *(["ours / jax"] if "jax" in peers else []),
        *(["ours / stand-in"] if limits else []),
    ]
    firsts = [
        [name, again_text(row["libraries"]["stopgrad"]), *[first_text(row["libraries"][c]) for c in columns]]
        for name, row in zip(names, rows, strict=True)
    ]
    return [
        (
            "Time of a call: ms (S8: µs) ± spread in %; ≠ where results disagree",
            ["", *columns, *heads],
            times,
        ),
        (
            "First result in s / peak memory of the process in MB",
            ["", "stopgrad again", *columns],
            firsts,
        ),
    ]


def again_text(cell: dict[str, Any]) -> str:
    return f"{cell['again_s']:.2f}" if "again_s" in cell else "–"


def first_text(cell: dict[str, Any]) -> str:
    return f"{cell['first_s']:.2f} / {cell['rss_mb']:.0f}" if "first_s" in cell else "–"


def show(title: str, header: list[str], body: list[list[str]]) -> None:
    print(f"\n{title}\n")
    widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
    for number_, line in enumerate([header, *body]):
        cells = [line[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]]
        print("| " + " | ".join(cells) + " |")
        if number_ == 0:
            print(
                "|-"
                + "-|-".join("-" * w for w in widths[:1])
                + "-|"
                + "|".join("-" * (w + 1) + ":" for w in widths[1:])
                + "|"
            )


def cases_of(rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["row"], set()).add(f"{row['row']} {row['case']}")
    return found


def remarks(rows: list[dict[str, Any]], missing: dict[str, str]) -> list[str]:
    """The means, the disagreements, and why cells are empty."""
    lines = []
    by_row: dict[str, list[float]] = {}
    for row in rows:
        if "fastest_peer" in row and row["row"] != "S12":
            by_row.setdefault(row["row"], []).append(1 / row["fastest_peer"]["ratio"])
    if by_row:
        mean = geometric_mean([geometric_mean(found) for found in by_row.values()])
        lines.append(f"geometric mean of fastest peer / ours over {', '.join(by_row)}: {mean:.2f}")
    empty: dict[str, list[str]] = {}
    for row in rows:
        for name, cell in row["libraries"].items():
            where = f"{row['row']} {row['case']}"
            if not cell.get("agrees", True):
                expected = row["libraries"]["stopgrad"]["figures"]
                lines.append(f"{where}, {name}: loss, Σ |gradient| {cell['figures']} against {expected}")
            elif "left_out" in cell and name not in missing:
                empty.setdefault(f"{name}: {cell['left_out']}", []).append(where)
    for why, where in empty.items():
        whole = [r for r, cases in cases_of(rows).items() if cases <= {*where}]
        parts = [*whole, *[name for name in where if name.split()[0] not in whole]]
        lines.append(f"{why}: {'; '.join(parts)}")
    for name, why in missing.items():
        cure = " (pip install -e '.[bench]' installs all)" if "ModuleNotFoundError" in why else ""
        lines.append(f"{name}: left out: {why}{cure}")
    return lines


# ---------------------------------------------------------------------------------------------- command


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="small sizes, two short rounds")
    parser.add_argument("--only", help="comma-separated rows: S1 to S12, gates; by default all")
    parser.add_argument("--peers", help=f"comma-separated, of {', '.join(PEERS)}; or none")
    parser.add_argument(
        "--before", type=Path, help="the src folder of another checkout of stopgrad: a column"
    )
    parser.add_argument("--numpy-engine", action="store_true", help="stopgrad's numpy engine: a column")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=0, help="by default 5; 2 with --quick")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each turn, by default .3")
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds for a first result; stopgrad and torch.compile have twice as many",
    )
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.02 if options.quick else 0.3)
    return options


def main() -> None:
    options = parsed()
    if options.worker:
        return work(options.worker, options.device)
    wanted = options.only.split(",") if options.only else [*dict.fromkeys(p.row for p in PROBLEMS), "gates"]
    unknown = {*wanted} - {p.row for p in PROBLEMS} - {"gates"}
    if unknown:
        raise SystemExit(f"no row {', '.join(sorted(unknown))}; there are S1 to S12 and gates")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bench = Bench(options, Path(folder))
        for problems in sittings([p for p in PROBLEMS if p.row in wanted], options.quick):
            rows += bench.sitting(problems)
            if "stopgrad" in bench.missing:
                return print(f"nothing measured: {bench.missing['stopgrad']}")
        free = gates.compared(bench) if "gates" in wanted else []
    for row in rows:
        ratios(row)
    processor = platform.processor() or platform.machine()
    machine = f"{processor}, {os.cpu_count()} cores, {options.device}, CPython {platform.python_version()}"
    versions = ", ".join(f"{name} {version}" for name, version in bench.versions.items())
    print(f"{datetime.now():%Y-%m-%d}, {machine}; {versions}")
    if rows:
        for title, header, body in tables(rows, bench.columns):
            show(title, header, body)
    if free:
        show(*gates.table(free))
    print()
    for line in remarks(rows, bench.missing):
        print(line)
    if options.json:
        found = {"machine": machine, "versions": bench.versions, "missing": bench.missing}
        options.json.write_text(json.dumps({**found, "rows": rows, "gates": free}, indent=1))


if __name__ == "__main__":
    main()
