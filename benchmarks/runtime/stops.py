"""What a thousand stops cost in a compiled graph: its time, and the text that XLA is given.

``value``: h ← stop(tanh(h + x)), a thousand times. ``gradient``: h ← h tanh(w + stop(x)), a thousand
times; the gradient of mean h² with respect to w, which no stop changes since no way to w leads through
one. Each against the same without its stops.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import stopgrad as sg
from runtime.problems import LeftOut
from stopgrad.base.structure import flatten
from stopgrad.engines.xla import XlaEngine
from stopgrad.graph.build import as_output
from stopgrad.graph.interpreter import program
from stopgrad.rewrite import prepare

SIZE = 4096


def value(stop: Any, count: int) -> Any:
    def f(x: Any) -> Any:
        h = x
        for _ in range(count):
            h = stop(sg.tanh(h + x))
        return h

    return f


def gradient(stop: Any, count: int) -> Any:
    def f(w: Any, x: Any) -> Any:
        h = w
        for _ in range(count):
            h = h * sg.tanh(w + stop(x))
        return sg.reduce_mean(h * h)

    return sg.value_and_grad(f)


CASES = {"value": (value, 1), "gradient": (gradient, 2)}


def lowered(f: Any, arguments: list[Any]) -> tuple[int, str]:
    """How many stops the graph of f holds, and the text of what XLA is given."""
    with sg.Graph().as_default() as graph:
        inputs = [sg.placeholder(sg.float32, list(x.shape)) for x in arguments]
        outputs = [as_output(y, graph) for y in flatten(f(*inputs))[0]]
        stops = sum(op.type == "StopGradient" for op in graph.operations)
        ready = prepare(outputs, inputs, {})
    run = program(ready.inputs, ready.outputs, XlaEngine())
    return stops, jax.jit(lambda *arrays: run(arrays)).lower(*arguments).as_text()


def measured(name: str, count: int, calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """In a worker: compile one of the graphs, and keep it to be timed."""
    case, with_stops = name.split(", ")
    write, arity = CASES[case]
    f = write(sg.stop_gradient if with_stops == "with stops" else lambda x: x, count)
    arguments = [jax.numpy.asarray(np.linspace(0.1, 0.9, SIZE, dtype=np.float32))] * arity
    stops, text = lowered(f, arguments)
    if (stops > 0) != (with_stops == "with stops"):
        raise LeftOut(f"{stops} stops")
    compiled = sg.function(f, engine="xla")
    start = time.perf_counter()
    found = jax.block_until_ready(compiled(*arguments))
    calls[name] = lambda: jax.block_until_ready(compiled(*arguments))
    digest = hashlib.sha256(text.encode()).hexdigest()
    total = float(sum(np.asarray(x, np.float64).sum() for x in flatten(found)[0]))
    return {"first_s": time.perf_counter() - start, "stops": stops, "text": digest, "result": total}
