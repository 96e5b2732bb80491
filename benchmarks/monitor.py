"""What a monitor costs in a step that it does not sample, and in one that it does.

    python benchmarks/monitor.py [--quick] [--only torch,jax] [--rounds 60] [--json out.json]

**Steps.** A step is one of training, gradient and update, of about 5 ms and of about 50 ms. Plain steps and
steps with a monitor that does not sample them follow each other by turns, in one process and one thread,
after warming; sampled ones stand between them. Each is timed in processor time. *idle* is the median ratio
of a step that is not sampled to the plain step beside it, and *alone* the time of the monitor's own code in
such a step, measured without the step. *sampled* is the ratio of a sampled step to a plain one, and *at 100*
what sampling every hundredth step adds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import stopgrad as sg
import stopgrad.jax as sgj
import stopgrad.torch as sgt

Case = tuple[Callable[[], object], Callable[[Any], object], Callable[[int], Any]]
"""A plain step, one with a monitor, and how the monitor is made that samples one step in so many."""
NEVER = 10**9


def of_torch(width: int) -> Case:
    layers = [part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())]
    net, x = nn.Sequential(*layers), torch.randn(64, width)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    def monitored(monitor: Any) -> None:
        with monitor:
            step()

    return step, monitored, lambda every: sgt.monitor(net, every=every, to=io.StringIO())


def parameters(width: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((width, width)) * width**-0.5).astype(np.float32) for _ in range(6)]


def of_sessions(width: int) -> Case:
    graph, batch = sg.Graph(), np.ones((64, width), np.float32)
    with graph.as_default():
        x = h = sg.placeholder(sg.float32, [64, width])
        ws = [sg.parameter(w) for w in parameters(width)]
        for w in ws:
            h = sg.relu(h @ w)
        loss = sg.reduce_mean(sg.square(h))
        update = sg.optimizers.sgd(loss, ws, learning_rate=1e-3)
    session = sg.Session(graph)

    def step() -> None:
        session.run(update.run, {x: batch})

    def monitored(monitor: Any) -> None:
        monitor({x: batch})
        step()

    return step, monitored, lambda every: sg.monitor(session, loss, every=every, to=io.StringIO())


def of_jax(width: int) -> Case:
    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jax.nn.relu(x @ w)
        return jnp.mean(x**2)

    @jax.jit
    def update(ws: Any, x: Any) -> Any:
        return [w - 1e-3 * g for w, g in zip(ws, jax.grad(loss)(ws, x), strict=True)]

    held, x = [list(map(jnp.asarray, parameters(width)))], jnp.ones((64, width))

    def step() -> None:
        held[0] = jax.block_until_ready(update(held[0], x))

    def monitored(monitor: Any) -> None:
        monitor(held[0], x)
        step()

    return step, monitored, lambda every: sgj.monitor(loss, every=every, to=io.StringIO())


WORLDS = {"torch": of_torch, "sessions": of_sessions, "jax": of_jax}
WIDTHS = {"torch": (350, 1050), "sessions": (420, 1300), "jax": (420, 1300)}
"""The widths of layers for which a step takes about 5 ms and 50 ms."""


def timed(function: Callable[..., object], *args: object) -> float:
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def alone(monitored: Callable[[Any], object], monitor: Any, plain: Callable[[], object]) -> float:
    """Seconds of the monitor's own code in a step that is not sampled: many at once."""
    count = 20_000
    entered = hasattr(monitor, "__enter__")

    def empty() -> None:
        for _ in range(count):
            if entered:
                with monitor:
                    pass
            else:
                monitor()

    return timed(empty) / count


def measure(world: str, width: int, rounds: int) -> dict[str, Any]:
    step, monitored, make = WORLDS[world](width)
    idle, always = make(NEVER), make(1)
    for _ in range(3):
        step()
        monitored(idle)  # The first is sampled.
        monitored(always)
    times: dict[str, list[float]] = {"plain": [], "idle": [], "sampled": []}
    for k in range(rounds):
        pair = [("plain", lambda: step()), ("idle", lambda: monitored(idle))]
        for name, run in pair if k % 2 else pair[::-1]:
            times[name].append(timed(run))
        if k % 6 == 0:
            times["sampled"].append(timed(monitored, always))
    plain = statistics.median(times["plain"])
    ratios = [a / b for a, b in zip(times["idle"], times["plain"], strict=True)]
    own = alone(monitored, idle, step)
    sampled = statistics.median(times["sampled"]) / plain
    return {
        **{"world": world, "width": width, "plain_ms": 1e3 * plain, "idle": statistics.median(ratios)},
        **{"alone_us": 1e6 * own, "share": own / plain, "sampled": sampled, "times": times},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="tiny layers")
    parser.add_argument("--only", default="", help="worlds whose names begin so, comma-separated")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = tuple(options.only.split(","))
    rows = [
        measure(world, width, options.rounds)
        for world in WORLDS
        if world.startswith(wanted)
        for width in ((8, 16) if options.quick else WIDTHS[world])
    ]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    versions = f"stopgrad {sg.__version__}, torch {torch.__version__}, jax {jax.__version__}"
    print(f"{datetime.now():%Y-%m-%d}, {machine}, {versions}; processor time\n")
    header = ["step", "plain, ms", "idle", "alone, µs", "alone, % of a step", "sampled", "at 100"]
    print(f"| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        cells = [f"{row['plain_ms']:.3g}", f"{row['idle']:.3f}", f"{row['alone_us']:.2f}"]
        cells += [f"{100 * row['share']:.3f}", f"{row['sampled']:.1f}"]
        cells += [f"{100 * (row['sampled'] - 1) / 100:.1f} %"]
        print(f"| {row['world']}, layers of {row['width']} | {' | '.join(cells)} |")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
