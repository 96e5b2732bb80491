"""Random programs, in this library, in PyTorch and in JAX: no status, line or opening that is said is wrong.

The programs are drawn by :mod:`programs`, whose model of where gradients arrive shares no code with ``flow``;
autograd and ``jax.grad`` have their say as well. A failure shows the smallest program found that fails, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiers import some

pytest.importorskip("torch")
pytest.importorskip("jax")
from program_table import COUNT
from programs.comparing import example, held
from programs.holding import WORLDS

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # By torch.func.jvp.
PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"


def check(name: str, seeds: range) -> None:
    world = WORLDS[name]
    for seed in seeds:
        program = world.draw(seed)
        complaints = held(world, program)[0]
        if complaints:
            told = "\n".join(complaints)
            pytest.fail(f"program {seed}:\n{told}\nA smaller one:\n{example(world, program)}")


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_wrong_is_said(name: str, block: int) -> None:
    check(name, range(5 * block, 5 * block + 5))


@pytest.mark.slow
@pytest.mark.parametrize("block", some(range(2), 2, pytest.mark.nightly))
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_wrong_is_said_of_more(name: str, block: int) -> None:
    check(name, range(20 + 60 * block, 80 + 60 * block))


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(40))
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_wrong_is_said_of_thousands(name: str, block: int) -> None:
    check(name, range(COUNT // 40 * block, COUNT // 40 * (block + 1)))


def test_the_page_says_how_many_were_tried() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Programs")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (\w+) \| ([\d,]+) \|", section, re.MULTILINE))
    assert rows == dict.fromkeys(WORLDS, f"{COUNT:,}")
