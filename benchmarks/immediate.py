"""What an immediate call costs beside NumPy's own.

    python benchmarks/immediate.py [--calls 200] [--rounds 50] [--json out.json]

Rounds of calls alternate between the two; shown is the wall time per call in each one's fastest round, in µs,
and what is allowed: 1.5 times NumPy's, and 2 µs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stopgrad as sg

Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def cases(size: int) -> list[Pair]:
    """A name, our call, and NumPy's."""
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(0.5, 2.0, (size, size)).astype(np.float32) for _ in range(2))
    flags, indices = x > 1, generator.integers(0, size, size).astype(np.int32)
    return [
        ("exp", lambda: sg.exp(x), lambda: np.exp(x)),
        ("sqrt", lambda: sg.sqrt(x), lambda: np.sqrt(x)),
        ("negative", lambda: sg.negative(x), lambda: np.negative(x)),
        ("add", lambda: sg.add(x, y), lambda: np.add(x, y)),
        ("multiply, by a number", lambda: sg.multiply(x, 2.0), lambda: np.multiply(x, 2.0)),
        ("pow", lambda: sg.pow(x, 2.0), lambda: np.power(x, 2.0)),
        ("maximum", lambda: sg.maximum(x, y), lambda: np.maximum(x, y)),
        ("equal", lambda: sg.equal(x, y), lambda: np.equal(x, y)),
        ("where", lambda: sg.where(flags, x, y), lambda: np.where(flags, x, y)),
        ("cast", lambda: sg.cast(x, sg.float64), lambda: x.astype(np.float64)),
        ("reduce_sum", lambda: sg.reduce_sum(x), lambda: np.sum(x)),
        ("reduce_sum, an axis", lambda: sg.reduce_sum(x, 0), lambda: np.sum(x, 0)),
        ("reduce_mean", lambda: sg.reduce_mean(x, axis=-1), lambda: np.mean(x, axis=-1)),
        ("reduce_max", lambda: sg.reduce_max(x, axis=1), lambda: np.max(x, axis=1)),
        ("argmax", lambda: sg.argmax(x, 1), lambda: np.argmax(x, 1)),
        ("matmul", lambda: sg.matmul(x, y), lambda: np.matmul(x, y)),
        ("einsum", lambda: sg.einsum("ij,jk->ik", x, y), lambda: np.einsum("ij,jk->ik", x, y)),
        ("reshape", lambda: sg.reshape(x, (-1,)), lambda: np.reshape(x, (-1,))),
        ("transpose", lambda: sg.transpose(x), lambda: np.transpose(x)),
        ("expand_dims", lambda: sg.expand_dims(x, 0), lambda: np.expand_dims(x, 0)),
        ("concat", lambda: sg.concat([x, y], 0), lambda: np.concatenate([x, y], 0)),
        ("stack", lambda: sg.stack([x, y]), lambda: np.stack([x, y])),
        ("gather", lambda: sg.gather(x, indices), lambda: np.take(x, indices, 0)),
        ("cumsum", lambda: sg.cumsum(x, 0), lambda: np.cumsum(x, 0)),
        ("sort", lambda: sg.sort(x), lambda: np.sort(x)),
    ]


def fastest(pair: Pair, calls: int, rounds: int) -> tuple[float, float]:
    best = [float("inf"), float("inf")]
    for call in pair[1:]:
        call()
    for _ in range(rounds):
        for i, call in enumerate(pair[1:]):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            best[i] = min(best[i], (time.perf_counter() - start) / calls * 1e6)
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    print("| call | elements | stopgrad | NumPy | allowed | within |\n| --- | --- | --- | --- | --- | --- |")
    for size in (2, 100):
        for pair in cases(size):
            ours, theirs = fastest(pair, given.calls, given.rounds)
            allowed = 1.5 * theirs + 2.0
            rows.append({"call": pair[0], "elements": size * size, "stopgrad": ours, "numpy": theirs})
            within = "yes" if ours <= allowed else "no"
            print(f"| {pair[0]} | {size * size} | {ours:.2f} | {theirs:.2f} | {allowed:.2f} | {within} |")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
