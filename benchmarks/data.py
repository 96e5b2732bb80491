"""How fast batches come, beside plain grain and PyTorch's DataLoader (num_workers=0).

    python benchmarks/data.py [--quick] [--peers grain,torch] [--rounds 5] [--json out.json]

Nothing is done with the batches. ``wall`` is microseconds for an example in each library's fastest round,
rounds of the libraries by turns; ``processor`` the time of all threads in that round. Images of 28 × 28 bytes
and a label, in memory, shuffled: as two arrays, and as a class whose brackets give one example, converted to
float32. Of the arrays plain grain and PyTorch are given a class that takes a row of each, as their users do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stopgrad as sg

BATCHES = (128, 1024)


class Rows:
    """One example at a time; converted as a user's class would, or as it is."""

    def __init__(self, arrays: dict[str, Any], convert: bool) -> None:
        self.arrays, self.convert = arrays, convert

    def __len__(self) -> int:
        return len(self.arrays["label"])

    def __getitem__(self, i: int) -> dict[str, Any]:
        image = self.arrays["image"][i]
        if self.convert:
            image = image.astype(np.float32) / 255
        return {"image": image, "label": self.arrays["label"][i]}


def ours(arrays: dict[str, Any], convert: bool, size: int, seed: int) -> Iterator[Any]:
    source = Rows(arrays, True) if convert else arrays
    return sg.data.batches(source, size, key=seed, epochs=1)


def grains(arrays: dict[str, Any], convert: bool, size: int, seed: int) -> Iterator[Any]:
    import grain

    dataset = grain.MapDataset.source(Rows(arrays, convert)).shuffle(seed=seed)
    return iter(dataset.batch(size, drop_remainder=True).to_iter_dataset())


def torchs(arrays: dict[str, Any], convert: bool, size: int, seed: int) -> Iterator[Any]:
    import torch

    made = torch.Generator().manual_seed(seed)
    return iter(
        torch.utils.data.DataLoader(Rows(arrays, convert), size, shuffle=True, drop_last=True, generator=made)
    )


def seconds(make: Callable[..., Iterator[Any]], arrays: Any, convert: bool, size: int, count: int) -> Any:
    """The wall time and the processor's of so many batches, an example; making the iterator counts too."""
    wall, processor = time.perf_counter(), time.process_time()
    taken = sum(len(batch["label"]) for batch in itertools.islice(make(arrays, convert, size, 3), count))
    if taken != size * count:
        raise RuntimeError(f"{taken} examples instead of {size * count}")
    return (time.perf_counter() - wall) / taken, (time.process_time() - processor) / taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="few examples, to see that it runs")
    parser.add_argument("--peers", default="grain,torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    examples = 3_000 if options.quick else 60_000
    rng = np.random.default_rng(0)
    arrays = {
        "image": rng.integers(0, 256, (examples, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, 10, examples),
    }
    libraries = {"stopgrad": ours, "grain": grains, "torch": torchs}
    chosen = {name: libraries[name] for name in ("stopgrad", *filter(None, options.peers.split(",")))}
    rows = []
    for convert, size in itertools.product((False, True), BATCHES):
        best: dict[str, tuple[float, float]] = {}
        for _, (name, make) in itertools.product(range(options.rounds), chosen.items()):
            found = seconds(make, arrays, convert, size, examples // size)
            best[name] = min(best.get(name, found), found)
        rows.append({"examples": "one by one" if convert else "arrays", "batch": size, "seconds": best})
    print(f"µs an example, wall / processor; {examples:,} examples, stopgrad {sg.__version__}\n")
    print("| examples | batch |", " | ".join(chosen), "|")
    print("|---|---:|" + "---:|" * len(chosen))
    for row in rows:
        shown = [f"{1e6 * wall:.2f} / {1e6 * processor:.2f}" for wall, processor in row["seconds"].values()]
        print(f"| {row['examples']} | {row['batch']} |", " | ".join(shown), "|")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
