"""What a training step moves between devices and holds on each, compiled by XLA for 1 to 1,024 of them.

    python benchmarks/scale.py [--quick] [--only mlp,both] [--devices 1,2,4,8] [--batch strong]
                               [--rounds 3] [--json out.json]

The steps stand in ``scale/models.py``: loss, gradients and new parameters, as JAX compiles them
(``jax.jit`` with a sharding for every array), as ``sg.function`` and as ``sg.Session``. Devices are virtual
ones of the CPU client, as many as are asked for in a process of its own; programs are compiled and nothing is
run, except that eight devices (with ``--quick`` any) train small models for three steps, whose losses and
parameters are compared.

- *sent*: bytes that one device sends in a step, from the text of the compiled program (``scale/hlo.py`` has
  the formula of each operation).
- *memory*: bytes of one device's arguments, results that do not take an argument's place, and temporaries,
  from XLA's ``memory_analysis()``. A session keeps the values from before a step until it has ended well, so
  its peer is JAX with nothing donated; that of a function, whose arguments are donated, JAX that donates.
- *flops*: of one device, from XLA's ``cost_analysis()``.
- *compile*: seconds from the step's Python function to the executable, the median of rounds in which the
  libraries take turns.

Strong: the batch is as large for any number of devices; weak: for each part of it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from scale.hlo import collectives
from scale.models import CASES, QUICK, WHOLE, Case, Sizes, batch, parameters, values

LIBRARIES = ("jax", "function", "session")
TITLES = {"function": "sg.function", "session": "sg.Session"}
RUN = 8
"""So many devices run something."""
STEPS = 3

# ------------------------------------------------------------------------------------------ in a worker


def steps() -> dict[str, Callable[..., Any]]:
    """What makes a step, for each library; imported where JAX knows how many devices it has."""
    from scale import ours, peer_jax

    return {"jax": peer_jax.Step, "function": ours.Step, "session": ours.Held}


def keeping() -> Callable[..., Any]:
    """What makes a step of JAX's that keeps its arguments."""
    from scale.peer_jax import Step

    return functools.partial(Step, donate=False)


def work(
    devices: int, names: list[str], scalings: list[str], rounds: int, quick: bool
) -> list[dict[str, Any]]:
    """All that is measured for so many devices."""
    make = steps()
    chosen = [case for case in CASES if case.name in names]
    if chosen:
        # What a library does once in a process is done now.
        measured(make, chosen[0], QUICK[chosen[0].model], {"data": 1, "model": 1}, 8, 1)
    rows = []
    for case in chosen:
        axes = case.mesh(devices)
        if axes is None:
            continue
        sizes = (QUICK if quick else WHOLE)[case.model]
        agrees = compared(make, case, devices) if devices == RUN or quick else None
        for scaling in scalings:
            examples = sizes.batch if scaling == "strong" else sizes.each * axes["data"]
            if examples % axes["data"]:
                continue
            row = {"case": case.name, "scaling": scaling, "devices": devices, "mesh": axes, "agrees": agrees}
            rows.append({**row, "libraries": measured(make, case, sizes, axes, examples, rounds)})
    return rows


def measured(
    make: dict[str, Callable[..., Any]],
    case: Case,
    sizes: Sizes,
    axes: dict[str, int],
    examples: int,
    rounds: int,
) -> dict[str, Any]:
    """Figures of each library's program."""
    found: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in make}
    for _ in range(rounds):
        for name, step in make.items():
            start = time.perf_counter()
            program = step(case, sizes, axes, examples).compiled()
            seconds[name].append(time.perf_counter() - start)
            if name not in found:
                found[name] = figures(program)
            del program
    rows = {name: {**found[name], "compile_s": seconds[name]} for name in make}
    rows["jax"]["memory_kept"] = figures(keeping()(case, sizes, axes, examples).compiled())["memory"]
    return rows


def figures(program: Any) -> dict[str, Any]:
    """What XLA says of a program for one device."""
    sent = [one for one in collectives(program.as_text()) if one.moved]
    memory = program.memory_analysis()
    parts = {
        part: getattr(memory, f"{part}_size_in_bytes") for part in ("argument", "output", "alias", "temp")
    }
    cost = program.cost_analysis()
    bytes_by_kind: Counter[str] = Counter()
    for one in sent:
        bytes_by_kind[one.kind] += round(one.moved)
    return {
        "sent": sum(one.moved for one in sent),
        "sent_by_kind": dict(bytes_by_kind),
        "memory": parts["argument"] + parts["output"] - parts["alias"] + parts["temp"],
        **parts,
        "flops": cost.get("flops", 0.0),
        "accessed": cost.get("bytes accessed", 0.0),
    }


def compared(make: dict[str, Callable[..., Any]], case: Case, devices: int) -> float:
    """The greatest relative distance from JAX's losses and parameters after steps of a small model."""
    axes, sizes = case.mesh(devices), QUICK[case.model]
    if axes is None:
        return 0.0
    examples = sizes.each * max(axes["data"], 2)
    first = values(parameters(case, sizes), sizes.words, 0)
    batches = [values(batch(case, sizes, examples), sizes.words, 1 + i) for i in range(STEPS)]
    found = {name: step(case, sizes, axes, examples).run(dict(first), batches) for name, step in make.items()}
    losses, after = found.pop("jax")
    far = 0.0
    for other, others in found.values():
        far = max(far, *[abs(a - b) / max(abs(b), 1e-6) for a, b in zip(other, losses, strict=True)])
        for name, x in after.items():
            size = max(float(abs(x).max()), 1e-6)
            far = max(far, float(abs(others[name] - x).max()) / size)
    return far


# ------------------------------------------------------------------------------------------- the tables


def ask(devices: int, options: argparse.Namespace, names: list[str]) -> list[dict[str, Any]]:
    """The rows for so many devices, measured in a process of their own."""
    command = [sys.executable, __file__, "--worker", str(devices), "--only", ";".join(names)]
    command += [
        "--rounds",
        str(options.rounds),
        "--batch",
        options.batch,
        *(["--quick"] if options.quick else []),
    ]
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "XLA_FLAGS": " ".join(x for x in flags.split() if "host_platform_device_count" not in x),
        "STOPGRAD_COMPILED": "0",  # Else the second round would find on disk what the first has compiled.
    }
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


def ratio(ours: float, theirs: float) -> str:
    return "–" if not theirs and not ours else f"{ours / theirs:.3f}" if theirs else "∞"


def peer_key(name: str, key: str) -> str:
    """Which figure of JAX's one of ours is held against."""
    return "memory_kept" if (name, key) == ("session", "memory") else key


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table: JAX's figures, and ours by them."""
    jax = row["libraries"]["jax"]
    found = [f"{row['mesh']['data']} × {row['mesh']['model']}", row["scaling"]]
    for key in ("sent", "memory", "flops"):
        scale = 1e9 if key == "flops" else 1e6
        found.append(number(jax[key] / scale))
        found += [ratio(row["libraries"][name][key], jax[peer_key(name, key)]) for name in TITLES]
    found.append(f"{median(jax['compile_s']):.2f}")
    found += [ratio(median(row["libraries"][name]["compile_s"]), median(jax["compile_s"])) for name in TITLES]
    return [*found, "–" if row["agrees"] is None else f"{row['agrees']:.0e}"]


HEADER = [
    "data × model",
    "batch",
    *[
        head
        for what in ("sent, MB", "memory, MB", "Gflop", "compile, s")
        for head in (f"{what}: JAX", *TITLES.values())
    ],
    "apart",
]


def show(title: str, header: list[str], body: list[list[str]]) -> None:
    print(f"\n{title}\n")
    for line in (header, ["---:"] * len(header), *body):
        print("| " + " | ".join(line) + " |")


def stops(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What a stop spares: bytes sent without it and with it."""
    found = []
    plain = {(r["case"], r["scaling"], r["devices"]): r["libraries"] for r in rows}
    for (case, scaling, devices), with_it in plain.items():
        without = plain.get((case.replace(", stopped", ", not stopped"), scaling, devices))
        if not case.endswith(", stopped") or without is None:
            continue
        line = [case.removesuffix(", stopped"), scaling, str(devices)]
        for name in LIBRARIES:
            line.append(f"{number(without[name]['sent'] / 1e6)} → {number(with_it[name]['sent'] / 1e6)}")
        found.append(line)
    return found


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """For each figure the range of our ratios, and where it is greatest; of compiling, the mean."""
    lines = []
    for name, title in TITLES.items():
        for key in ("sent", "memory", "flops"):
            pairs = [
                (row["libraries"][name][key], row["libraries"]["jax"][peer_key(name, key)]) for row in rows
            ]
            found = [(ours / theirs, row) for (ours, theirs), row in zip(pairs, rows, strict=True) if theirs]
            if not found:
                continue
            most, row = max(found, key=lambda pair: pair[0])
            where = f"{row['case']}, {row['scaling']}, {row['devices']} devices"
            more = sum(bool(ours and not theirs) for ours, theirs in pairs)
            lines.append(
                f"{title} / JAX, {key}: {min(found, key=lambda pair: pair[0])[0]:.4f} to {most:.4f} ({where})"
                + (f"; {more} rows where JAX has none" if more else "")
            )
        times = [
            median(row["libraries"][name]["compile_s"]) / median(row["libraries"]["jax"]["compile_s"])
            for row in rows
        ]
        lines.append(f"{title} / JAX, compile: geometric mean {geometric_mean(times):.2f}")
    return lines


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="small models on 2 and 4 devices")
    parser.add_argument("--only", help="comma-separated words, of which a case's name has all, as mlp,both")
    parser.add_argument("--devices", help="comma-separated; by default 1, 2, 4, 8 to 1,024")
    parser.add_argument("--batch", default="strong,weak", help="strong, weak or both, as by default")
    parser.add_argument("--rounds", type=int, default=0, help="by default 3; 1 with --quick")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    if not {*options.batch.split(",")} <= {"strong", "weak"}:
        parser.error("--batch is strong, weak, or strong,weak")
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def main() -> None:
    options = parsed()
    if options.worker:
        scalings = options.batch.split(",")
        rows = work(options.worker, options.only.split(";"), scalings, options.rounds, options.quick)
        return print(json.dumps(rows))
    words = options.only.split(",") if options.only else []
    names = [case.name for case in CASES if all(word in case.name for word in words)]
    if not names:
        raise SystemExit(f"no such case; there are {'; '.join(case.name for case in CASES)}")
    counts = [2, 4] if options.quick else [2**i for i in range(11)]
    counts = [int(count) for count in options.devices.split(",")] if options.devices else counts
    processor = platform.processor() or platform.machine()
    machine = f"{processor}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    rows = []
    for count in counts:
        start = time.perf_counter()
        rows += ask(count, options, names)
        print(f"{count} devices: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if options.json:  # After each, since all take long.
            options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))
    if not rows:
        raise SystemExit("none of these steps has a mesh of so many devices")
    rows.sort(key=lambda row: row["devices"])
    print(f"{datetime.now():%Y-%m-%d}, {machine}; ours as ratios to JAX's")
    for name in names:
        body = [cells(row) for row in rows if row["case"] == name]
        if body:
            show(name, HEADER, body)
    found = stops(rows)
    if found:
        header = ["step", "batch", "devices", *["JAX", *TITLES.values()]]
        show("MB sent without the stop → with it", header, found)
    print()
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
