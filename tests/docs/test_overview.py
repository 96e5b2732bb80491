"""What the overview and the page on gates show does what they say."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

import stopgrad as sg

OVERVIEW = ROOT / "docs" / "overview.md"


@pytest.mark.slow
def test_the_screen_of_code_runs_and_prints_what_its_comments_say(tmp_path: Path) -> None:
    code, on_a_mesh = re.findall(r"```python\n(.*?)```", OVERVIEW.read_text(), re.DOTALL)
    program = tmp_path / "train.py"
    program.write_text(f"{code}\n{on_a_mesh}")
    done = subprocess.run(
        [sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    losses = [float(line) for line in lines[:3]]
    assert losses[0] > losses[1] > losses[2]
    assert f"# {', '.join(f'{loss:.4f}' for loss in losses)}" in code
    comment = code[code.index("# Gradients") :].splitlines()
    shown = [line.removeprefix("#").removeprefix(" ") for line in comment]
    assert lines[4:] == shown
    assert (tmp_path / "run" / "20").is_dir()  # The last checkpoint.


def test_the_session_shows_what_python_shows() -> None:
    (text,) = re.findall(r"```pycon\n(.*?)```", OVERVIEW.read_text(), re.DOTALL)
    parser = doctest.DocTestParser()
    session = parser.get_doctest(text, {"sg": sg, "np": np}, "overview", None, None)
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
    table = (ROOT / "docs" / "gates.md").read_text().split("## ")[0]
    named = set(re.findall(r"`(?:with )?(\w+)\(", table))
    assert len(named) >= 10
    assert named <= set(import_line)


@pytest.mark.slow
def test_the_commands_print_what_is_shown() -> None:
    sessions = re.findall(r"```console\n(.*?)```", OVERVIEW.read_text(), re.DOTALL)
    commands = [part for one in sessions for part in re.split(r"^\$ stopgrad ", one, flags=re.MULTILINE)[1:]]
    assert len(commands) == 3
    for text in commands:
        command, shown = text.split("\n", 1)
        done = subprocess.run(
            [sys.executable, "-m", "stopgrad", *command.split()],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "80"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1, done.stderr
        assert done.stdout == shown


def test_the_galleries_of_mistakes_have_the_sizes_that_are_said() -> None:
    (ours,) = re.findall(r"gallery of (\d+) mistakes", OVERVIEW.read_text())
    ((torch, jax),) = re.findall(r"show (\d+) and (\d+) mistakes", OVERVIEW.read_text())
    for folder, count in (("mistakes", ours), ("torch_mistakes", torch), ("jax_mistakes", jax)):
        assert len(list((ROOT / "examples" / folder).glob("[a-z]*.py"))) == int(count)
