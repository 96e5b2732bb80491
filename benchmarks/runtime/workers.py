"""The processes in which libraries are measured: what runs in them, and how they are asked."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from runtime import instructions
from runtime.problems import PROBLEMS, RATE, LeftOut, data_of, leaves

SAMPLE = 2e-4
"""Seconds that a measured run of calls takes at least: a clock is not asked about single calls of a µs."""

COLUMNS = {
    "stopgrad": ("ours", "auto"),
    "before": ("ours", "auto"),
    "stopgrad numpy": ("ours", "numpy"),
    "jax": ("peer_jax", ""),
    "jax tuned": ("peer_jax", "tuned"),
    "torch": ("peer_torch", "eager"),
    "torch.compile": ("peer_torch", "compile"),
    "tensorflow": ("peer_tensorflow", "graph"),
    "tensorflow xla": ("peer_tensorflow", "xla"),
    "onnxruntime": ("peer_onnxruntime", ""),
    "openvino": ("peer_openvino", ""),
    "pytensor": ("peer_pytensor", ""),
    "numpy": ("limit_numpy", ""),
    "numba": ("limit_numba", ""),
}
"""Each column's module and which way of it."""

OURS = ("stopgrad", "before", "stopgrad numpy")
PEERS = tuple(name for name in COLUMNS if name not in OURS)

STEPS = ("mlp", "cnn", "rbm", "pgd", "transformer")
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_TOP_PAD_": "67108864"}
"""What stopgrad's engine asks of glibc by itself. All columns have it but "jax", which is as installed."""


# ------------------------------------------------------------------------------------------ in a worker


def work(column: str, device: str) -> None:
    """Answer requests, one line of JSON each, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # What libraries print is no answer.
    module, variant = COLUMNS[column]
    library = importlib.import_module(f"runtime.{module}").Library(variant, device)
    library.touch()
    print(json.dumps({"version": library.version, "rss_mb": peak_mb()}), file=answers, flush=True)
    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["name"]
        try:
            if request["what"] == "prepare":
                calls[name], answer = prepared(library, name, request["quick"])
            elif request["what"] == "time":
                answer = timed(calls[name], request["seconds"])
            else:
                answer = importlib.import_module("runtime.stops").measured(name, request["count"], calls)
        except LeftOut as reason:
            answer = {"left_out": str(reason)}
        except (Exception, RecursionError) as error:
            first = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
            answer = {"left_out": f"{type(error).__name__}: {first[:160]}"}
        answer["rss_mb"] = peak_mb()
        print(json.dumps(answer), file=answers, flush=True)


def prepared(library: Any, name: str, quick: bool) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The call that is to be measured; how long its first result took, and what that was."""
    problem = next(p for p in PROBLEMS if p.name == name)
    if not hasattr(library, problem.kind):
        raise LeftOut(library.unwritten)
    data = data_of(problem, quick)
    forget_peak()
    start = time.perf_counter()
    call = getattr(library, problem.kind)(data)
    result = call()
    first = time.perf_counter() - start
    if problem.trains:
        losses = [result, *[call() for _ in range(2)]]
        return call, {"first_s": first, "figures": [float(library.to_numpy(x)) for x in losses]}
    arrays = [np.asarray(library.to_numpy(x), np.float64) for x in leaves(result)]
    if problem.kind in STEPS:
        old = leaves(getattr(call, "old", data["params"]))
        arrays[1:] = [(before - after) / RATE for before, after in zip(old, arrays[1:], strict=True)]
    figures = [float(arrays[0].sum()), float(sum(np.abs(a).sum() for a in arrays[1:]))]
    return call, {"first_s": first, "figures": figures}


def timed(call: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """The median of samples, each a run of calls; what was warm before another's turn is warmed first."""
    start = time.perf_counter()
    call()
    if time.perf_counter() - start < seconds:
        start = time.perf_counter()
        call()
    repeats = max(1, round(SAMPLE / max(time.perf_counter() - start, 1e-9)))
    samples: list[float] = []
    cpu, begin = time.process_time(), time.perf_counter()
    while not samples or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        samples.append((time.perf_counter() - start) / repeats)
    used = (time.process_time() - cpu) / (repeats * len(samples))
    return {"ms": 1e3 * median(samples), "cpu_ms": 1e3 * used, "calls": repeats * len(samples)}


def forget_peak() -> None:
    """Let the most memory be counted anew, where Linux allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The most memory that the process has held so far; not, as getrusage's, what its parent held."""
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(x.split()[1]) for x in status.read_text().splitlines() if x.startswith("VmHWM")) / 1024


# ------------------------------------------------------------------------------------- the other side


@dataclass
class Worker:
    """A library in a process of its own.

    Attributes:
        column: which of COLUMNS.
        script: what is run with ``--worker``.
        device: "cpu" or "gpu".
        folder: for what libraries keep on disk, so that nothing is found there from before.
        path: the src folder of another checkout of stopgrad.
        kept: a folder in which torch.compile finds what it compiled for an earlier run.
        isa: the instruction set that it is held to, of ``instructions.SETTINGS``.
    """

    column: str
    script: Path
    device: str
    folder: Path
    path: Path | None = None
    kept: Path | None = None
    isa: str | None = None
    version: str | None = field(default=None, init=False)
    why: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        command = [sys.executable, str(self.script), "--worker", self.column, "--device", self.device]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=self._environment(),
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        own = self.folder / self.column.replace(" ", "_")
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "STOPGRAD_CACHE_DIR": str(own),
            "XDG_CACHE_HOME": str(own),
            "TORCHINDUCTOR_CACHE_DIR": str(self.kept.resolve() if self.kept is not None else own),
            "PYTENSOR_FLAGS": f"base_compiledir={own}",
            **instructions.held(self.isa, self.folder),
        }
        if "CXX" in environment:
            environment["PYTENSOR_FLAGS"] += f",cxx={environment['CXX']}"
        if self.column not in (*OURS, "jax"):
            environment |= KEPT_MEMORY
        if self.device == "cpu":
            environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        else:  # Else the first of JAX's processes takes the memory of all.
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        if self.path is not None:
            environment["PYTHONPATH"] = str(self.path.resolve())
        return environment

    def begin(self, limit: float) -> bool:
        """Wait until it is ready to be asked; whether it is."""
        answer = self._answer(limit)
        self.version = answer.get("version")
        self.why = answer.get("left_out", "")
        return self.version is not None

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        if self.process.poll() is not None:
            return {"left_out": self.why or self._last_words()}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self._answer(limit)

    def _answer(self, limit: float) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit):
                self.close()
                self.why = f"longer than {limit:.0f} s"
                return {"left_out": self.why}
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.why = self._last_words()
        return {"left_out": self.why}

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return (lines or [f"the process died ({self.process.returncode})"])[-1][:160]

    def close(self) -> None:
        """End it, and the processes that it has started for its compiler."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
