"""What the README shows does what it says."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import stopgrad as sg

README = Path(__file__).parents[1] / "README.md"


def test_the_screen_of_code_runs_and_prints_what_its_comments_say(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    program = tmp_path / "train.py"
    program.write_text(code)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    losses = [float(line) for line in lines[:3]]
    assert losses[0] > losses[1] > losses[2]
    assert f"# {', '.join(f'{loss:.4f}' for loss in losses)}" in code
    shown = [line.removeprefix("# ") for line in code[code.index("# online") :].splitlines()]
    assert [line.replace(str(tmp_path) + "/", "") for line in lines[4:]] == shown


def test_the_session_shows_what_python_shows() -> None:
    (text,) = re.findall(r"```pycon\n(.*?)```", README.read_text(), re.DOTALL)
    text = text.replace("built at train.py:2", "built at ...")  # A session has no file of this name.
    parser = doctest.DocTestParser()
    session = parser.get_doctest(text, {"sg": sg, "np": np}, "README", None, None)
    assert len(session.examples) == 4
    shown: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(session, out=shown.append)
    assert result.failed == 0, "".join(shown)


def test_every_gate_of_the_table_exists() -> None:
    import_line = subprocess.run(
        [sys.executable, "-c", "import stopgrad as sg; print(*dir(sg))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    table = README.read_text().split("## Gates")[1].split("## ")[0]
    named = set(re.findall(r"`(?:with )?(\w+)\(", table))
    assert named
    assert named <= set(import_line)
