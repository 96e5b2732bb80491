"""What a call of a compiled function costs above the same function under ``jax.jit``.

    python benchmarks/call_overhead.py [--calls 100] [--rounds 100] [--json out.json]

The function adds up its arguments, so that hardly anything is computed. Rounds of calls alternate between the
two; shown is the wall time per call in each one's fastest round, in µs, results waited for. With NumPy
arguments both give back NumPy arrays, as stopgrad does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import stopgrad as sg


def add_up(*arguments: Any) -> Any:
    total = arguments[0]
    for x in arguments[1:]:
        total = total + x
    return total * 2.0


def add_up_layers(params: dict[str, dict[str, Any]]) -> Any:
    return add_up(*[x for layer in params.values() for x in layer.values()])


def arrays(count: int) -> list[Any]:
    return [np.full(8, i, np.float32) for i in range(count)]


def cases() -> list[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """A name, the call through stopgrad, and the call to compare it with."""
    found: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = []

    def pair(name: str, f: Callable[..., Any], arguments: list[Any]) -> None:
        ours, theirs = sg.function(f), jax.jit(f)
        native = [jax.tree.map(jax.numpy.asarray, x) for x in arguments]
        found.append(
            (
                f"{name}, NumPy arrays",
                lambda: ours(*arguments),
                lambda: np.asarray(theirs(*arguments)),
            )
        )
        found.append(
            (
                f"{name}, jax arrays",
                lambda: ours(*native).block_until_ready(),
                lambda: theirs(*native).block_until_ready(),
            )
        )

    pair("function of 1 argument", add_up, arrays(1))
    pair("function of 10 arguments", add_up, arrays(10))
    pair(
        "function of a dict of 5 × 2",
        add_up_layers,
        [{f"layer{i}": {"w": x, "b": x + 1} for i, x in enumerate(arrays(5))}],
    )

    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [8])
        y = add_up(x)
    session = sg.Session(graph, engine="xla")
    value, theirs = arrays(1)[0], jax.jit(add_up)
    found.append(
        (
            "Session.run, 1 feed, 1 fetch",
            lambda: session.run(y, {x: value}),
            lambda: np.asarray(theirs(value)),
        )
    )
    return found


def per_call(function: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return 1e6 * (time.perf_counter() - start) / calls


def measure(calls: int, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, ours, theirs in cases():
        assert np.array_equal(np.asarray(ours()), np.asarray(theirs())), name
        times = [(per_call(ours, calls), per_call(theirs, calls)) for _ in range(rounds)]
        ours_us, theirs_us = min(t[0] for t in times), min(t[1] for t in times)
        rows.append(
            {"case": name, "stopgrad_us": ours_us, "jax_us": theirs_us, "above_us": ours_us - theirs_us}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, default=100, help="calls in a round")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.calls, options.rounds)
    print(f"µs per call; stopgrad {sg.__version__}, jax {jax.__version__}\n")
    print(f"| {'call':42} | {'stopgrad':>8} | {'jax.jit':>8} | {'above':>8} |")
    print(f"|{'-' * 44}|{'-' * 9}:|{'-' * 9}:|{'-' * 9}:|")
    for row in rows:
        ours, theirs, above = row["stopgrad_us"], row["jax_us"], row["above_us"]
        print(f"| {row['case']:42} | {ours:8.1f} | {theirs:8.1f} | {above:8.1f} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
