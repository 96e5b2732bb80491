"""Random programs in live TensorFlow: no status, line or opening that is said of them is wrong.

To be run in a process of its own: TensorFlow and PyTorch are never loaded together.
"""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")
from programs.comparing import held
from programs.tensorflow_holding import WORLD

# TensorFlow's numpy_function hands its own tensors to NumPy, which has that to say of them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
COUNT = 2000


def check(seeds: range) -> None:
    for seed in seeds:
        program = WORLD.draw(seed)
        complaints = held(WORLD, program)[0]
        if complaints:
            told = "\n".join(complaints)
            pytest.fail(f"program {seed}:\n{told}\n{WORLD.writer(program).written().text}")


@pytest.mark.parametrize("block", range(2))
def test_nothing_wrong_is_said(block: int) -> None:
    check(range(5 * block, 5 * block + 5))


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(40))
def test_nothing_wrong_is_said_of_thousands(block: int) -> None:
    check(range(COUNT // 40 * block, COUNT // 40 * (block + 1)))
