"""What ``stopgrad run`` costs a training: seconds per step in steps that are recorded and in those between.

The same script is run by Python alone, and by ``stopgrad run``, in turns, each in a process of its own; the
script itself measures its steps with the processor time of its thread. ``python benchmarks/run_cost.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import json, sys, time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
layers, width, batch, steps = map(int, sys.argv[1:5])
blocks = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]
net = nn.Sequential(*blocks, nn.Linear(width, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
seconds = []
for step in range(steps):
    x, y = torch.randn(batch, width), torch.randn(batch, 1)
    begun = time.thread_time()
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    seconds.append(time.thread_time() - begun)
numbers = [float(loss), float(sum(p.sum() for p in net.parameters())), torch.rand(1).item()]
json.dump([seconds, *numbers], open(sys.argv[5], "w"))
"""
SIZES = {"2 layers of 32": (2, 32, 16), "20 layers of 128": (20, 128, 64), "8 layers of 512": (8, 512, 64)}


def measured(command: list[str], sizes: tuple[int, int, int], steps: int, folder: Path) -> list[object]:
    """The seconds of each step of a run, and the numbers that it ended with."""
    script, out = folder / "train.py", folder / "out.json"
    script.write_text(SCRIPT)
    words = [*command, str(script), *map(str, sizes), str(steps), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(words, check=True, env=environment, stderr=subprocess.DEVNULL)
    found: list[object] = json.loads(out.read_text())
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    ways = {"python": [sys.executable], "run": [sys.executable, "-m", "stopgrad", "run"]}
    with tempfile.TemporaryDirectory() as folder:
        for name, sizes in SIZES.items():
            taken: dict[str, list[list[float]]] = {way: [] for way in ways}
            ends = set()
            for _ in range(options.rounds):
                for way, command in ways.items():
                    seconds, *end = measured(command, sizes, options.steps, Path(folder))
                    taken[way].append(seconds)  # type: ignore[arg-type]
                    ends.add(json.dumps(end))
            between = {way: min(statistics.median(s[150:190]) for s in found) for way, found in taken.items()}
            first = {way: min(statistics.median(s[1:3]) for s in found) for way, found in taken.items()}
            print(
                f"{name}: plain {between['python'] * 1e3:.2f} ms a step; between recorded steps "
                f"{between['run'] / between['python']:.3f}; recorded {first['run'] / first['python']:.2f}; "
                f"{'the same numbers' if len(ends) == 1 else 'OTHER NUMBERS'}"
            )


if __name__ == "__main__":
    main()
