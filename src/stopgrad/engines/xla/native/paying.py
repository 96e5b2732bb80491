"""Which kernels pay on this machine: measured once, when they are first needed, and kept beside them.

Whether a kernel is faster than what XLA makes of the same operations depends on the processor. So each kind
of kernel is measured here in a small graph of its own, with it and without, for about two seconds in
all; kinds that gain nothing step aside. ``STOPGRAD_NATIVE=1`` in the environment uses all without measuring.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from stopgrad.base.folders import private_folder, seal, unsealed
from stopgrad.base.locks import holding
from stopgrad.base.machine import processor
from stopgrad.base.types import float32, int32
from stopgrad.engines.xla.native import convolution, rows
from stopgrad.graph.graph import Graph, Output
from stopgrad.graph.interpreter import Region
from stopgrad.ops.elementwise.composite import softmax
from stopgrad.ops.elementwise.trigonometric import tanh
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.losses.cross_entropy import sparse_softmax_cross_entropy_with_logits
from stopgrad.ops.neural.convolution import conv
from stopgrad.ops.shapes.reshape import reduce_sum
from stopgrad.ops.structural.sources import placeholder
from stopgrad.transforms.control.loops import fori_loop
from stopgrad.transforms.gradients.reverse import gradients

Probe = tuple[Sequence[Output], Sequence[Output]]
"""The inputs and outputs of a graph."""

Run = Callable[[Sequence[Any]], Sequence[Any]]
Compile = Callable[[Sequence[Output], Sequence[Output], bool], Run]
"""Compiles a graph with kernels, or without, for calls that end when their results are there."""

GAIN = 0.97
"""The share of XLA's time below which a kernel pays: less gain is within what measuring can tell."""

ROUNDS, ATTEMPTS = 11, 3
"""How often both ways of a kind take turns, of which the least time counts; and the most such attempts."""

TURN, REST = 4e-3, 1e-3
"""Seconds of calls in a turn, and until it is read what they took: Linux adds up the time of other threads
when they stop, or every few milliseconds, so that a call may seem to take what its own thread took."""


def kind_of(region: Region) -> str:
    """The kind of kernel that computes a region, as in :data:`PROBES`."""
    first = region.operations[0]
    return rows.kind_of(region) if first.definition not in convolution.KERNELS else first.type


# ---------------------------------------------------------------------------------------------- probes


def _softmax(count: int, columns: int) -> Probe:
    with Graph().as_default():
        x, w = placeholder(float32, [count, columns]), placeholder(float32, [count, columns])
        loss = reduce_sum(softmax(x) * w)
        return [x, w], [loss, *gradients(loss, [x])]


def _labelled(count: int, columns: int) -> Probe:
    with Graph().as_default():
        x, labels = placeholder(float32, [count, columns]), placeholder(int32, [count])
        loss = reduce_sum(sparse_softmax_cross_entropy_with_logits(labels, x))
        return [x, labels], [loss, *gradients(loss, [x])]


def _repeated() -> Probe:
    with Graph().as_default():
        x, w = placeholder(float32, [128, 256]), placeholder(float32, [256, 256])
        return [x, w], [fori_loop(0, 16, lambda _, y: tanh(matmul(y, w) + x), x)]


def _convolved(which: int) -> Probe:
    """The convolution, the gradient of its input, or that of its filters."""
    with Graph().as_default():
        x, filters = placeholder(float32, [8, 28, 28, 32]), placeholder(float32, [3, 3, 32, 64])
        y = conv(x, filters, 1, "SAME")
        if which == 0:
            return [x, filters], [y]
        g = placeholder(float32, y.shape)
        return [x, filters, g], gradients([y], [(x, filters)[which - 1]], [g])


PROBES: Mapping[str, Callable[[], Probe]] = {
    "rows, small": lambda: _softmax(64, 1000),
    "rows, large": lambda: _softmax(2048, 1024),
    "labels, small": lambda: _labelled(64, 1000),
    "labels, large": lambda: _labelled(2048, 1024),
    "functions": _repeated,
    "Conv": lambda: _convolved(0),
    "ConvBackpropInput": lambda: _convolved(1),
    "ConvBackpropFilter": lambda: _convolved(2),
}
"""For each kind of kernel a graph in which it has most to do."""


# ------------------------------------------------------------------------------------------- measuring


def _values(inputs: Sequence[Output]) -> list[Any]:
    generator = np.random.default_rng(0)
    return [
        generator.standard_normal(x.shape).astype(np.float32)
        if x.dtype is float32
        else generator.integers(0, 64, x.shape).astype(np.int32)
        for x in inputs
    ]


def measured(compile: Compile) -> dict[str, float]:
    """For each kind the processor time with its kernel by that without.

    Time would be a matter of luck where others use the machine, too. What seems to gain nothing is measured
    again, and the best attempt counts: a kernel steps aside for good.
    """
    ratios: dict[str, float] = {}
    for kind, make in PROBES.items():
        inputs, outputs = make()
        runs = [compile(inputs, outputs, with_kernel) for with_kernel in (True, False)]
        for _ in range(ATTEMPTS):
            ratios[kind] = min(ratios.get(kind, math.inf), _compared(runs, _values(inputs)))
            if ratios[kind] <= GAIN:
                break
    return ratios


def _compared(runs: Sequence[Run], values: Sequence[Any]) -> float:
    """The least processor time of the first by that of the second; they take turns."""
    calls = [_calls_in_a_turn(run, values) for run in runs]
    best = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for i, run in enumerate(runs):
            best[i] = min(best[i], _turn(run, values, calls[i]))
    return best[0] / max(best[1], 1e-9)


def _calls_in_a_turn(run: Run, values: Sequence[Any]) -> int:
    run(values)
    start = time.perf_counter()
    run(values)
    return math.ceil(TURN / max(time.perf_counter() - start, 1e-6))


def _turn(run: Run, values: Sequence[Any], calls: int) -> float:
    """The processor time of a call, after one that fetches into the caches what the other has displaced."""
    run(values)
    time.sleep(REST)
    start = time.process_time()
    for _ in range(calls):
        run(values)
    time.sleep(REST)
    return (time.process_time() - start) / calls


class _Slower:
    """The kinds that gain nothing, by the library; empty until it is asked for."""

    lock = RLock()
    kinds: dict[str, frozenset[str]] = {}


def slower(library: Path, version: str, compile: Compile) -> frozenset[str]:
    """The kinds of kernels that gain nothing on this machine, against XLA with its present flags.

    Args:
        library: the kernels' file.
        version: of XLA.
        compile: compiles the graphs that are measured.
    """
    if os.environ.get("STOPGRAD_NATIVE") == "1":
        return frozenset()
    flags = os.environ.get("XLA_FLAGS", "")  # They may hold XLA to fewer instructions than there are.
    turns = f"{ROUNDS} {ATTEMPTS} {TURN} {REST}"
    key = f"{library.name} {version} {flags} {processor()} {os.cpu_count()} {turns}"
    kinds = _Slower.kinds.get(key)
    return holding(_Slower.lock, _find, key, compile) if kinds is None else kinds


def _find(key: str, compile: Compile) -> frozenset[str]:
    if key not in _Slower.kinds:
        folder = private_folder("native")
        path = None if folder is None else folder / f"{key.split('.')[0][-64:]}.paying"
        costs = None if path is None else _read(path, key)
        if costs is None:
            costs = measured(compile)
            if path is not None:
                _write(path, key, costs)
        _Slower.kinds[key] = frozenset(kind for kind, cost in costs.items() if cost > GAIN)
    return _Slower.kinds[key]


def _read(path: Path, key: str) -> dict[str, float] | None:
    content = unsealed(path, key)
    return None if content is None else json.loads(content)


def _write(path: Path, key: str, costs: Mapping[str, float]) -> None:
    """Whole or not at all; if it cannot be written, the next process measures again."""
    content = json.dumps(costs).encode()
    with contextlib.suppress(OSError):
        file, part = tempfile.mkstemp(prefix="build-", dir=path.parent)
        with open(file, "wb") as stream:
            stream.write(seal(key, content) + content)
        os.replace(part, path)
