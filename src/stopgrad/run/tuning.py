"""Tuning: times several ways to run a graph on real values, and keeps the fastest.

The choice is remembered on disk, by graph and machine, so it is measured once.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from stopgrad.base.errors import ArgumentError, StopgradError
from stopgrad.base.folders import cache_folder
from stopgrad.base.machine import processor
from stopgrad.engines import Compiled, Engine, Variant
from stopgrad.graph.files import replacing
from stopgrad.graph.graph import Output
from stopgrad.rewrite import Forming

BUDGETS = {"off": 0.0, "quick": 1.0, "full": 10.0}
"""Seconds of measuring, by the name of the setting."""


REPORTS = 32
"""The number of latest reports that a session or a function keeps."""


class Way(NamedTuple):
    """An engine and one of its variants."""

    engine: Engine
    variant: Variant


@dataclass(frozen=True)
class Tried:
    """The time that one way took.

    Attributes:
        engine: the name of the engine.
        variant: the name of the variant.
        seconds: the time of the fastest run; None if it could not run the graph.
        compiling: the seconds that compiling took.
        failure: why it could not run the graph.
    """

    engine: str
    variant: str
    seconds: float | None
    compiling: float
    failure: str = ""

    def __str__(self) -> str:
        took = self.failure if self.seconds is None else f"{1e3 * self.seconds:.3f} ms"
        return f"{self.engine}, {self.variant}: {took}"


class Notes(Sequence[str]):
    """The notes of a form, as a tuple, made when somebody reads it: a stored program needs no form."""

    def __init__(self, form: Forming) -> None:
        self._form = form

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(self._form.notes)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[str, ...]: ...
    def __getitem__(self, i: int | slice) -> str | tuple[str, ...]:
        return self._texts[i]

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return self._texts == (other._texts if isinstance(other, Notes) else other)

    def __hash__(self) -> int:
        return hash(self._texts)

    def __repr__(self) -> str:
        return repr(self._texts)


@dataclass(frozen=True)
class Report:
    """A report of how one computation is run.

    Attributes:
        what: the types of its inputs and results.
        engine: the name of the engine that runs it.
        variant: the name of the engine's variant.
        compiling: the seconds that compiling took.
        tried: what was measured, in this process or an earlier one; empty if nothing was.
        remembered: whether the choice was made by an earlier process, or for an equal graph.
        notes: rewrites that matter for the time of compiling, done or not possible: which repeated layers run
            as a loop.
    """

    what: str
    engine: str
    variant: str
    compiling: float
    tried: Sequence[Tried] = ()
    remembered: bool = False
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        head = f"{self.what}: {self.engine}, {self.variant} (compiled in {self.compiling:.2f} s)"
        if self.tried:
            head = f"{head}; {'measured before' if self.remembered else 'measured'}:"
        return "\n".join([head, *[f"  {line}" for line in (*self.tried, *self.notes)]])


class Sample:
    """Values of the inputs to measure with. All samples compare equal, so that caches ignore them."""

    def __init__(self, arrays: Sequence[Any], anywhere: bool = True) -> None:
        self._arrays = arrays
        self.anywhere = anywhere  # Whether other engines may be measured, too.

    def take(self) -> Sequence[Any]:
        """Copies of the values as NumPy arrays. Afterwards the sample is empty: caches hold no arrays."""
        arrays, self._arrays = self._arrays, ()
        return [np.array(x) for x in arrays]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample)

    def __hash__(self) -> int:
        return 0


def budget(tune: object) -> float:
    """The seconds of measuring that a setting allows."""
    if not isinstance(tune, str) or tune not in BUDGETS:
        raise ArgumentError(f"tune is 'off', 'quick' or 'full', not {tune!r}")
    return BUDGETS[tune]


def fastest(
    ways: Sequence[Way],
    compile: Callable[[Way], Compiled],
    arrays: Sequence[np.ndarray[Any, Any]],
    assigned: Sequence[Output],
    seconds: float,
) -> tuple[Way, Compiled, list[Tried]]:
    """Compile all ways, run them in turns, and return the one whose fastest run was the fastest.

    Args:
        ways: the ways to compare.
        compile: compiles a way to a function of arrays.
        arrays: the inputs' values.
        assigned: parameters for which engines that reuse memory get further arrays beside the inputs.
        seconds: the time for all runs together; each way runs at least twice.

    Raises:
        the first way's error, if none can run.
    """
    compiled: list[tuple[Way, Compiled, float]] = []
    failures: list[tuple[Way, Exception]] = []
    for way in ways:
        start = time.perf_counter()
        try:
            run = compile(way)
            _time(way, run, arrays, assigned)
            compiled.append((way, run, time.perf_counter() - start))
        except StopgradError as error:
            failures.append((way, error))
    if not compiled:
        raise failures[0][1]
    best = [float("inf")] * len(compiled)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or max(best) == float("inf"):
        for i, (way, run, _) in enumerate(compiled):
            if best[i] > 3 * min(best) and best[i] < float("inf"):
                continue  # Not worth another run.
            best[i] = min(best[i], _time(way, run, arrays, assigned))
    tried = [
        Tried(way.engine.name, way.variant.name, best[i], compiling)
        for i, (way, _, compiling) in enumerate(compiled)
    ]
    tried += [
        Tried(way.engine.name, way.variant.name, None, 0.0, str(error).partition("\n")[0])
        for way, error in failures
    ]
    way, run, _ = compiled[best.index(min(best))]
    return way, run, tried


def _time(
    way: Way,
    run: Compiled,
    arrays: Sequence[np.ndarray[Any, Any]],
    assigned: Sequence[Output],
) -> float:
    """The time of one run on copies of the arrays, which it may overwrite."""
    engine = way.engine
    copies = [engine.hold(x) for x in arrays]
    if engine.reuses:
        copies += [engine.hold(np.zeros(x.shape, x.dtype.numpy)) for x in assigned]
    engine.finish(copies if engine.reuses else ())
    start = time.perf_counter()
    engine.finish(run(copies))
    return time.perf_counter() - start


def _path(graph: str, ways: Sequence[Way], tune: str) -> Path:
    versions = []
    for way in ways:
        for module in way.engine.needs:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions.append((module, importlib.metadata.version(module)))
    parts = (
        graph,
        [(way.engine.name, way.variant.name) for way in ways],
        sorted(set(versions)),
        (processor(), platform.node(), os.cpu_count(), os.environ.get("XLA_FLAGS", "")),
        tune,
    )
    return cache_folder() / "tuned" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}.json"


def remembered(graph: str, ways: Sequence[Way], tune: str) -> tuple[Way, list[Tried]] | None:
    """The way that was chosen on this machine for an equal graph, and its measurements; None if none was."""
    try:
        stored = json.loads(_path(graph, ways, tune).read_text(encoding="utf-8"))
        tried = [Tried(**fields) for fields in stored["tried"]]
        chosen = (stored["engine"], stored["variant"])
        return next((w, tried) for w in ways if (w.engine.name, w.variant.name) == chosen)
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return None


def remember(graph: str, ways: Sequence[Way], tune: str, way: Way, tried: Sequence[Tried]) -> None:
    """Store a choice. If that fails, it is only measured again."""
    path = _path(graph, ways, tune)
    choice = {
        "engine": way.engine.name,
        "variant": way.variant.name,
        "tried": [asdict(entry) for entry in tried],
    }
    with contextlib.suppress(OSError, StopgradError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path) as file:
            os.write(file, json.dumps(choice).encode())
