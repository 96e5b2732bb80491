"""Writes the graphs that tests/interop/tensorflow/test_operators.py reads, one for each family of operations.

    python tests/helpers/tensorflow_families.py

It needs TensorFlow 2.21, and is run again where the cases have changed. Each graph calls each operation of
its family a few times; beside it in its file are values and gradients as TensorFlow computes them.
"""

from __future__ import annotations

from pathlib import Path

from tensorflow_cases import FAMILIES, cases
from tensorflow_runs import written

FOLDER = Path(__file__).parent.parent / "interop" / "tensorflow" / "families"
SEEDS = (0, 1)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        written([case for seed in SEEDS for case in cases(family, seed)]).save(FOLDER / f"{family}.xz")


if __name__ == "__main__":
    main()
