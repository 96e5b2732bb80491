"""Holds what is said of thousands of random programs against models and autograd, and prints the table of it.

python tests/helpers/program_table.py                    # the table of docs/verdicts.md
python tests/helpers/program_table.py JAX 100 200        # these programs alone; what is wrong is shown
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # As a program, too.
from programs.comparing import counted, example, held
from programs.holding import WORLDS

COUNT = 2000


def row(name: str, seeds: range) -> str:
    """The row of a library; the programs of which something wrong is said are shown."""
    world = WORLDS[name]
    totals, wrong = [0, 0, 0], 0
    for seed in seeds:
        program = world.draw(seed)
        complaints, said = held(world, program)
        totals = [a + b for a, b in zip(totals, counted(said), strict=True)]
        if complaints:
            wrong += 1
            print(f"{name}, program {seed}:\n{example(world, program)}\n", file=sys.stderr)
    numbers = " | ".join([f"{n:,}" for n in (len(seeds), *totals, wrong)])
    return f"| {name} | {numbers} |"


def main() -> None:
    names, (start, stop) = list(WORLDS), (0, COUNT)
    if len(sys.argv) > 1:
        names, start, stop = [sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
    print("| programs in | programs | statuses | lines | openings | wrong |")
    print("| --- | --: | --: | --: | --: | --: |")
    for name in names:
        print(row(name, range(start, stop)), flush=True)


if __name__ == "__main__":
    main()
