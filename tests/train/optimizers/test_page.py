"""The code of the page on training runs, and prints what stands below it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from places import DOCS

import stopgrad as sg

PAGE = (DOCS / "optimizers.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=lambda text: text.strip().splitlines()[-1][:30])
@pytest.mark.slow
def test_the_code_prints_what_is_shown(code: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


def test_every_optimiser_and_schedule_is_on_the_page() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 3
    public = {name for name, f in vars(sg.optimizers).items() if callable(f) and name.islower()}
    told = set(re.findall(r"`(\w+)[`(]", PAGE))
    assert len(public) > 14
    assert public <= told
