"""How the watches of PyTorch and JAX do on other people's libraries: the table of docs/verdicts.md.

python tests/helpers/library_table.py                # all that are installed
python tests/helpers/library_table.py gpytorch       # some, and what is wrong
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import statistics
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from library_checks import Findings

ROOT = Path(__file__).parents[2]
TORCH = ("embeddings", "generative", "lightly", "others", "probabilistic", "transformers", "vision", "agents")
HEADER = (
    "| library | version | losses | parameters | wrong verdicts | wrong lines | ratio of time |",
    "| --- | --- | --- | --: | --: | --: | --: |",
)


def pins(extra: str) -> dict[str, str]:
    """The packages of an extra of ours, with their versions."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = (line.partition("==") for line in extras[extra])
    return {package: version for package, pinned, version in found if pinned}


LIGHT = pins("libraries")
HEAVY = pins("libraries-nightly")


class Loss(NamedTuple):
    """A loss of a library: of which, what it is called, what builds it, and what examines and times it."""

    package: str
    name: str
    build: Callable[[], Any]
    examined: Callable[[Any], Findings]
    ratio: Callable[[Any], float]


def losses_of_torch() -> Iterator[Loss]:
    for name in TORCH:
        importlib.import_module(f"torch_libraries_{name}")
    runs = importlib.import_module("torch_library_runs")
    for name, entry in importlib.import_module("torch_libraries").CASES.items():
        yield Loss(entry.package, name.replace("_", " "), entry.build, runs.examined, runs.ratio)


def losses_of_jax() -> Iterator[Loss]:
    runs = importlib.import_module("jax_library_runs")
    for name, entry in importlib.import_module("jax_libraries").CASES.items():
        yield Loss(entry.package, name.replace("_", " "), entry.build, runs.examined, runs.ratio)


def titles(losses: Sequence[Loss]) -> dict[str, str]:
    """For each library, the beginning of its row: what needs no run."""
    known = {**LIGHT, **HEAVY}
    names: dict[str, list[str]] = {}
    for loss in losses:
        names.setdefault(loss.package, []).append(loss.name)
    return {
        package: f"| {package} | {known[package]} | {', '.join(names[package])} |"
        for package in sorted(names)
    }


def rows(losses: Sequence[Loss], wanted: Sequence[str] = ()) -> Iterator[str]:
    """A row for each library, made by running its losses."""
    for package, title in titles(losses).items():
        if wanted and package not in wanted:
            continue
        version = importlib.metadata.version(package)
        assert f"| {version} |" in title, f"{package} {version} is installed, which is not what is pinned"
        own = [loss for loss in losses if loss.package == package]
        found = [loss.examined(loss.build) for loss in own]
        for loss, one in zip(own, found, strict=True):
            for text in [*one.case, *one.changed, *((one.verdicts + one.lines) if wanted else ())]:
                print(f"{loss.package}, {loss.name}: {text}", file=sys.stderr)
        ratios = [loss.ratio(loss.build) for loss in own]
        total = [sum(len(getattr(one, kind)) for one in found) for kind in ("verdicts", "lines")]
        count = sum(one.parameters for one in found)
        yield f"{title} {count} | {total[0]} | {total[1]} | {statistics.median(ratios):.1f} |"


def main() -> None:
    warnings.simplefilter("ignore")
    importlib.import_module("torch").set_num_threads(1)
    for losses in (list(losses_of_torch()), list(losses_of_jax())):
        print("\n".join(["", *HEADER]))
        for row in rows(losses, sys.argv[1:]):
            print(row, flush=True)


if __name__ == "__main__":
    main()
