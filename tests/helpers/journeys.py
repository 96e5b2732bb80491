"""What a call runs through, and what the import loads: both measured in fresh processes, of any tree.

``structure.py --journeys`` and ``structure.py --imports`` print it.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any


def prepared(name: str) -> Callable[[], Any]:
    """The call that is one journey; what it needs has been made."""
    import numpy as np

    import stopgrad as sg

    x, w = np.ones((4, 3), np.float32), np.ones((3, 2), np.float32)
    if name == "immediate operation":
        return lambda: sg.tanh(x)
    if name.startswith("first call"):
        function = sg.function(
            lambda x, w: sg.reduce_mean(sg.square(sg.tanh(x @ w))), engine=name.split()[-1]
        )
        return lambda: function(x, w)
    with sg.Graph().as_default():
        weights = sg.parameter(w)
        y = sg.tanh(sg.placeholder(sg.float32, ["n", 3]) @ weights)
        loss = sg.reduce_mean(sg.square(y - sg.stop_gradient(y)))
    return lambda: getattr(sg, name)(loss, [weights])


JOURNEYS = ("first call, numpy", "first call, xla", "gradients", "explain", "immediate operation")


def room_of(file: str, source: Path) -> str:
    """The folder, or the single file, at the root of the package that a file belongs to."""
    return Path(file).relative_to(source).parts[0].removesuffix(".py")


def travel(name: str, source: Path) -> dict[str, Any]:
    """Count the calls that cross. What a module does when it is imported is no part of a journey."""
    sys.path.insert(0, str(source.parent))
    act = prepared(name)
    home = f"{source}{os.sep}"
    rooms = {str(file): room_of(str(file), source) for file in source.rglob("*.py")}
    counts: Counter[str] = Counter(calls=0, across_files=0, across_rooms=0)
    files: set[str] = set()
    entered: dict[str, None] = {}
    importing = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        file = frame.f_code.co_filename
        if not file.startswith(home):
            return
        if frame.f_code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or importing:
            return
        counts["calls"] += 1
        files.add(file)
        entered[rooms[file]] = None
        caller = frame.f_back  # The nearest of ours: NumPy, optree or JAX may stand between.
        while caller is not None and not caller.f_code.co_filename.startswith(home):
            caller = caller.f_back
        if caller is not None:
            counts["across_files"] += caller.f_code.co_filename != file
            counts["across_rooms"] += rooms[caller.f_code.co_filename] != rooms[file]

    gc.collect()
    gc.disable()  # What it calls when it happens to run is no part of a journey, either.
    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(None)
    return {**counts, "files": len(files), "rooms": len(entered), "first entered": list(entered)}


def journeys(source: Path) -> dict[str, dict[str, Any]]:
    """Every journey in a process of its own, which has compiled nothing before and finds nothing on disk."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["STOPGRAD_CACHE_DIR"] = empty
        with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
            return {name: pool.submit(travel, name, source).result() for name in JOURNEYS}


IMPORTED = """
import json, runpy, sys, time
sys.path.insert(0, sys.argv.pop(1))
what = json.loads(sys.argv.pop(1))
before, started = set(sys.modules), time.process_time()
try:
    if sys.argv[1:]:
        runpy.run_module(what[0], run_name="__main__")
    for one in what:
        __import__(one)
except SystemExit:
    pass
print("\\n" + json.dumps([time.process_time() - started, sorted(set(sys.modules) - before)]))
"""


def loaded(source: Path, *what: str, arguments: Sequence[str] = (), repeats: int = 9) -> dict[str, Any]:
    """What a fresh process loads that imports packages, or runs the first as a command with *arguments*."""
    command = [sys.executable, "-c", IMPORTED, str(source.parent), json.dumps(what), *arguments]
    runs = []
    for _ in range(repeats):
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        runs.append(json.loads(text.splitlines()[-1]))
    times = sorted(seconds for seconds, _ in runs)
    tops = Counter(module.split(".")[0] for module in runs[0][1])
    ours = tops.pop(source.name, 0)
    standard = sum(tops.pop(top) for top in list(tops) if top in sys.stdlib_module_names)
    return {
        "processor seconds, median": round(statistics.median(times), 3),
        "least and most": [round(times[0], 3), round(times[-1], 3)],
        "modules of ours": ours,
        "of the standard library": standard,
        "of others": dict(tops.most_common()),
    }
