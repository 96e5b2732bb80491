"""What graphs of up to ten million operations cost: time and memory for each, as they grow.

    python benchmarks/large_graphs.py [--quick] [--cases chain,wide,layers] [--sizes 100000,1000000]
                                      [--stages build,gradient,explain,prepare,save,load] [--json out.json]

*chain*: tanh, multiply, sin, add, one after the other. *wide*: that many short chains from one tensor, added
up. *layers*: tanh(x @ w + b), each with parameters of its own. Each case and size is a process of its own, at
a recursion limit of 200. A stage works on what those before it have made; what explain (of a hundred tensors
at most), prepare (the rewrites before an engine), save and load make is dropped again. Times are of the
processor, by forward operation for build, gradient and explain, else by operation, with the garbage collector
on as users have it (*gc*: its part). Memory is that of the process less what it had before building: what is
held after the stage and the most during it, by operation of the graph. Needs Linux; 10,000,000 operations and
their gradient need 10 GB.
"""

from __future__ import annotations

import argparse
import gc
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

import stopgrad as sg
from stopgrad.rewrite import prepare

HERE = Path(__file__).resolve()
STAGES = ("build", "gradient", "explain", "prepare", "save", "load")


def chain(operations: int) -> tuple[Any, list[Any]]:
    x, v = (sg.placeholder(sg.float32, [4], name=name) for name in "xv")
    y = x
    for _ in range(operations // 4):
        y = sg.sin(sg.tanh(y) * v) + v
    return sg.reduce_sum(y), [x, v]


def wide(operations: int) -> tuple[Any, list[Any]]:
    x = sg.placeholder(sg.float32, [4], name="x")
    return sg.reduce_sum(sg.add_n([sg.tanh(sg.sin(x) * x) for _ in range(operations // 3)])), [x]


def layers(operations: int) -> tuple[Any, list[Any]]:
    y = sg.placeholder(sg.float32, [4, 4], name="x")
    held = []
    for _ in range(operations // 5):
        w, b = sg.placeholder(sg.float32, [4, 4]), sg.placeholder(sg.float32, [4])
        y = sg.tanh(y @ w + b)
        held += [w, b]
    return sg.reduce_sum(y), held


CASES: dict[str, Callable[[int], tuple[Any, list[Any]]]] = {"chain": chain, "wide": wide, "layers": layers}

# -------------------------------------------------------------------------------------------- measuring


class Meter:
    """Time, memory and the garbage collector's part, stage by stage."""

    def __init__(self) -> None:
        self.collecting, self._since = 0.0, 0.0
        gc.callbacks.append(self._note)
        self.base = memory("VmRSS")

    def _note(self, phase: str, _: Any) -> None:
        now = time.process_time()
        if phase == "start":
            self._since = now
        else:
            self.collecting += now - self._since

    def stage(self, work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
        Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
        before, start = self.collecting, time.process_time()
        made = work()
        took = {"seconds": time.process_time() - start, "gc": self.collecting - before}
        held, peak = memory("VmRSS") - self.base, memory("VmHWM") - self.base
        return made, {**took, "held": held, "peak": peak}


def memory(what: str) -> int:
    """Bytes, as Linux tells them of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{what}:"))


def work(case: str, size: int, stages: list[str]) -> None:
    """Measure one case, a line of JSON for each stage."""
    sys.setrecursionlimit(200)
    graph, meter = sg.Graph(), Meter()

    def build() -> Any:
        with graph.as_default():
            return CASES[case](size)

    def tell(stage: str, by: int, found: dict[str, float]) -> None:
        row = {"case": case, "size": size, "stage": stage, "by": by, "operations": len(graph), **found}
        print(json.dumps(row), flush=True)

    (y, xs), found = meter.stage(build)
    forward = len(graph)
    tell("build", forward, found)
    wanted = [y]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph"
        for stage in stages[1:]:
            if stage == "gradient":
                gradients, found = meter.stage(lambda: sg.gradients(y, xs))
                wanted += gradients
            elif stage == "explain":
                _, found = meter.stage(lambda: sg.explain(y, xs[:100]))
            elif stage == "prepare":
                _, found = meter.stage(lambda: prepare(wanted, xs, {}))
            elif stage == "save":
                _, found = meter.stage(lambda: graph.save(path))
            else:
                _, found = meter.stage(lambda: sg.Graph.load(path))
            _ = None
            gc.collect()
            tell(stage, forward if stage in ("gradient", "explain") else len(graph), found)


def show(rows: list[dict[str, Any]]) -> None:
    print("\n| case | size | stage | operations | µs each | gc | bytes each, after | at most | ratio |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for r in rows:
        each = [f"{r[key] / r['operations']:.0f}" for key in ("held", "peak")]
        cells = [r["case"], f"{r['size']:,}", r["stage"], f"{r['operations']:,}"]
        cells += [f"{1e6 * r['seconds'] / r['by']:.2f}", f"{1e6 * r['gc'] / r['by']:.2f}", *each]
        cells.append(f"{r['peak'] / r['held']:.2f}")
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="chains of 10,000 only")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--stages", default=",".join(STAGES), help="of which the first is build")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(*json.loads(options.worker))
    if options.quick:
        options.cases, options.sizes = "chain", "10000"
    rows = []
    for case in options.cases.split(","):
        for size in map(int, options.sizes.split(",")):
            asked = json.dumps([case, size, options.stages.split(",")])
            done = subprocess.run(
                [sys.executable, str(HERE), "--worker", asked], capture_output=True, text=True
            )
            rows += [json.loads(line) for line in done.stdout.splitlines()]
            if done.returncode:
                print(f"{case}, {size}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}, stopgrad {sg.__version__}")
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
