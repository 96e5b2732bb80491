"""A thousand stops against none: taking turns, and the table. What runs is in ``stops.py``."""

from __future__ import annotations

from statistics import median
from typing import Any

CASES = ("value", "gradient")


def compared(bench: Any) -> list[dict[str, Any]]:
    """On the other side: both graphs of each case, taking turns in one process of stopgrad's."""
    workers = bench.start(["stopgrad"])
    count = 20 if bench.options.quick else 1000
    rows = []
    for case in CASES if "stopgrad" in workers else ():
        names = [f"{case}, with stops", f"{case}, without"]
        worker = workers["stopgrad"]
        found = [worker.ask(300, what="gates", name=name, count=count) for name in names]
        times: list[list[float]] = [[], []]
        for turn in bench.turns(2):
            for name, kept in zip(names, times, strict=True):
                answer = worker.ask(60, what="time", name=name, seconds=turn)
                if "ms" in answer:
                    kept.append(answer["ms"])
        rows.append(
            {"case": case, "with": {**found[0], "ms": times[0]}, "without": {**found[1], "ms": times[1]}}
        )
    for worker in workers.values():
        worker.close()
    return rows


def table(rows: list[dict[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
    """A title, the heads and the lines."""
    body = []
    for row in rows:
        one, other = row["with"], row["without"]
        if not (one["ms"] and other["ms"]):
            body.append([row["case"], one.get("left_out", "–"), other.get("left_out", "–"), "–", "–", "–"])
            continue
        both = [median(one["ms"]), median(other["ms"])]
        same = one["text"] == other["text"] and one["result"] == other["result"]
        body.append(
            [
                f"{row['case']}, {one['stops']} stops",
                *[f"{1e3 * t:.1f}" for t in both],
                f"{both[0] / both[1]:.3f}",
                f"{min(one['ms']) / min(other['ms']):.3f}",
                "the same" if same else "DIFFERENT",
            ]
        )
    return (
        "Stops are free: µs of a call, and what XLA is given",
        ["", "with", "without", "ratio of medians", "of fastest rounds", "lowered text and result"],
        body,
    )
