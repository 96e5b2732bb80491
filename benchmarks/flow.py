"""What ``explain`` and what it reports cost, from a thousand operations to a million.

    python benchmarks/flow.py [--quick] [--only chain,wide] [--repetitions 3] [--limit 60] [--json out.json]

Each case of each size is built and explained in a process of its own, at a recursion limit of 200, with the
garbage collector on as users have it. What is measured is processor time, the fastest of the repetitions,
each of which asks for a new report; and by how much the most memory that the process has held grew. A size
for which a case would need longer than ``--limit`` seconds, judged by its last size, is left out, and so are
all after it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import stopgrad as sg

Question = tuple[Any, Any]

# ---------------------------------------------------------------------------------------------- graphs


def vector(name: str) -> sg.Output:
    return sg.placeholder(sg.float32, [4], name=name)


def chain(size: int) -> Question:
    """One tensor asked about, and one path to it, of *size* operations."""
    x = y = vector("x")
    for _ in range(size):
        y = sg.tanh(y)
    return y, [x]


def wide(asked: int) -> Callable[[int], Question]:
    """Layers, *size* operations in all, each of whose weights is one of so many tensors asked about."""

    def build(size: int) -> Question:
        ws = [vector(f"w{k}") for k in range(asked)]
        y = vector("x")
        for k in range(size // 2):
            y = sg.tanh(y * ws[k % asked])
        return y, ws

    return build


def stops_on_a_line(size: int) -> Question:
    """A third of the operations are stops of one line, none behind another."""
    x = y = vector("x")
    for _ in range(size // 3):
        y = y + sg.stop_gradient(sg.sin(x))
    return y, [x]


def stops_on_many_lines(size: int) -> Question:
    """The same, where each stop has a line of its own."""
    count = size // 3
    text = "def build(x, y):\n" + "    y = y + sg.stop_gradient(sg.sin(x))\n" * count + "    return y\n"
    named: dict[str, Any] = {"sg": sg}
    exec(compile(text, "<many lines>", "exec"), named)
    x = vector("x")
    return named["build"](x, x), [x]


def stops_in_a_row(size: int) -> Question:
    """A third of the operations are stops of one line, each behind the one before, and tensors between."""
    ws = [vector(f"w{k}") for k in range(100)]
    y = vector("x")
    for k in range(size // 3):
        y = sg.stop_gradient(y * ws[k % 100]) + ws[k % 100]
    return y, ws


def loop(size: int) -> Question:
    """A scan with so many operations in its body, of which every tenth is a stop."""
    x, w = vector("x"), vector("w")

    def body(c: Any, _: Any) -> Any:
        for k in range(size):
            c = sg.stop_gradient(c) + w if k % 20 == 9 else sg.tanh(c)
        return c, None

    end, _ = sg.scan(body, x, length=10)
    return end, [x, w]


def ladder(size: int) -> Question:
    """Sums of a tensor and itself: two to the power of *size* paths, counted."""
    x = y = vector("x")
    for _ in range(size):
        y = y + y
    return y, [x]


def selective(size: int) -> Question:
    """Every hundredth operation stops the gradient towards one of a hundred tensors."""
    ws = [vector(f"w{k}") for k in range(100)]
    y = vector("x")
    for k in range(size // 2):
        y = sg.tanh(y * ws[k % 100])
        if k % 50 == 0:
            y = sg.stop_gradient(y, wrt=[ws[k // 50 % 100]])
    return y, ws


def weights(size: int) -> tuple[list[Any], Any]:
    """Two tensors asked about for five operations, and an input."""
    return [vector(f"w{k}") for k in range(2 * size // 5)], vector("x")


def many(size: int) -> Question:
    """Every gradient arrives."""
    ws, y = weights(size)
    for k in range(size // 2):
        y = sg.tanh(y * ws[k % len(ws)])
    return y, ws


def many_half_stopped(size: int) -> Question:
    """Half of the tensors lie behind one stop."""
    ws, ours = weights(size)
    theirs, half = vector("z"), len(ws) // 2
    for k in range(size // 4):
        ours, theirs = sg.tanh(ours * ws[k % half]), sg.tanh(theirs * ws[half + k % half])
    return ours - sg.stop_gradient(theirs), ws


def many_with_a_stop_each(size: int) -> Question:
    """Each tensor has a stop of its own, all on one line."""
    ws, y = weights(size)
    for k in range(size // 3):
        y = y + sg.stop_gradient(sg.sin(ws[k % len(ws)]))
    return y, ws


def many_in_a_row(size: int) -> Question:
    """Each stop lies behind the one before, with tensors between."""
    ws, y = weights(size)
    for k in range(size // 3):
        y = sg.stop_gradient(y * ws[k % len(ws)]) + ws[k % len(ws)]
    return y, ws


def many_with_stopped_branches(size: int) -> Question:
    """Each layer has a stopped branch, so that each tensor has another wall above it, and twice the paths."""
    ws, y = weights(size)
    for k in range(size // 4):
        y = y * ws[k % len(ws)] + sg.stop_gradient(sg.sin(y))
    return y, ws


CASES: dict[str, tuple[Callable[[int], Question], tuple[int, ...]]] = {
    "chain": (chain, (1_000, 10_000, 100_000, 1_000_000)),
    "wide, 1 asked": (wide(1), (1_000, 10_000, 100_000, 1_000_000)),
    "wide, 100 asked": (wide(100), (1_000, 10_000, 100_000, 1_000_000)),
    "wide, 10,000 asked": (wide(10_000), (20_000, 60_000, 200_000)),
    "stops on a line": (stops_on_a_line, (1_000, 10_000, 100_000, 300_000)),
    "stops on many lines": (stops_on_many_lines, (1_000, 10_000, 100_000, 300_000)),
    "stops in a row": (stops_in_a_row, (1_000, 10_000, 100_000, 300_000)),
    "loop": (loop, (1_000, 10_000, 100_000)),
    "ladder": (ladder, (1_000, 10_000, 100_000)),
    "selective": (selective, (1_000, 10_000, 100_000)),
    "many": (many, (10_000, 100_000, 1_000_000)),
    "many, half stopped": (many_half_stopped, (10_000, 100_000, 1_000_000)),
    "many, a stop each": (many_with_a_stop_each, (10_000, 100_000, 1_000_000)),
    "many, in a row": (many_in_a_row, (10_000, 100_000, 1_000_000)),
    "many, stopped branches": (many_with_stopped_branches, (10_000, 100_000, 1_000_000)),
}
PRODUCTS = {"many, stopped branches": ("paths", "gates", "to_json")}
"""What is left out, since what is asked for is itself as large as tensors times walls."""
QUICK = 10_000

PARTS: dict[str, Callable[[Any], Any]] = {
    "paths": lambda flow: [reach.paths for reach in flow.values()],
    "stories": lambda flow: flow.stories,
    "gates": lambda flow: flow.gates,
    "findings": lambda flow: flow.findings,
    "marks": lambda flow: flow.marks(),
    "to_text": lambda flow: flow.to_text(),
    "to_json": lambda flow: flow.to_json(),
    "to_html": lambda flow: _to_html(flow),
}
"""What a report is asked for, each after those before it."""


def _to_html(flow: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flow.to_html(Path(folder) / "page.html")


# ------------------------------------------------------------------------------------------- measuring


def work(case: str, size: int, repetitions: int) -> dict[str, Any]:
    """All figures of one case and size."""
    sys.setrecursionlimit(200)
    build, _ = CASES[case]
    graph = sg.Graph()
    with graph.as_default():
        ys, xs = build(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: dict[str, Any] = {"case": case, "size": size, "operations": len(graph.operations)}
    for _ in range(repetitions):
        flow, seconds = timed(sg.explain, ys, xs)
        found["explain"] = min(seconds, found.get("explain", math.inf))
        if "MiB" not in found:
            found["MiB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        for name, part in PARTS.items():
            if name in PRODUCTS.get(case, ()) or (name.startswith("to_") and not hasattr(flow, name)):
                continue
            if name == "to_html" and size > QUICK:
                continue  # A page is for people.
            _, seconds = timed(part, flow)
            found[name] = min(seconds, found.get(name, math.inf))
    found["MiB in all"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return found


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    start = time.process_time()
    made = function(*args)
    return made, time.process_time() - start


def run(cases: dict[str, tuple[int, ...]], repetitions: int, limit: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for case, sizes in cases.items():
        last: dict[str, Any] | None = None
        for size in sizes:
            if last is not None and _seconds(last) * size / last["size"] > limit:
                print(f"{case} of {size:,}: left out", file=sys.stderr)
                break
            command = [sys.executable, __file__, "--worker", json.dumps([case, size, repetitions])]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
            row = json.loads(done.stdout)
            if last is not None:
                row["exponents"] = {
                    name: math.log(row[name] / last[name]) / math.log(size / last["size"])
                    for name in ("explain", *PARTS)
                    if row.get(name, 0.0) > 1e-3 and last.get(name, 0.0) > 1e-3
                }
            rows.append(row)
            last = row
            print(f"{case} of {size:,}: {_seconds(row):.2f} s", file=sys.stderr, flush=True)
    return rows


def _seconds(row: dict[str, Any]) -> float:
    """How long one repetition took, without the page."""
    return sum([row.get(name, 0.0) for name in ("explain", *PARTS) if name != "to_html"])


# ------------------------------------------------------------------------------------------- reporting


def show(rows: list[dict[str, Any]]) -> None:
    """Seconds, and in brackets the power of the size with which they grew."""
    names = [name for name in ("explain", *PARTS) if any(name in row for row in rows)]
    header = ["case", "size", *names, "MiB", "MiB in all"]
    print(f"| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        grown = row.get("exponents", {})
        cells = [
            "-"
            if name not in row
            else f"{row[name]:.3g}" + (f" ({grown[name]:.1f})" if name in grown else "")
            for name in names
        ]
        memory = [f"{row[key]:.0f}" for key in ("MiB", "MiB in all")]
        print(f"| {row['case']} | {row['size']:,} | {' | '.join([*cells, *memory])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help=f"up to {QUICK:,} operations")
    parser.add_argument("--only", default="", help="cases whose names begin so, comma-separated")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a repetition may take")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(*json.loads(options.worker))))
        return
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    cases = {
        name: tuple(size for size in sizes if not options.quick or size <= QUICK)
        for name, (_, sizes) in CASES.items()
        if name.startswith(wanted)
    }
    rows = run(cases, options.repetitions, options.limit)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}, stopgrad {sg.__version__}; seconds of the processor\n")
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
