"""What the README shows does what it says."""

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

README = ROOT / "README.md"


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_it_can_be_read_in_a_few_minutes() -> None:
    assert len(README.read_text().splitlines()) <= 150


@pytest.mark.slow
def test_the_command_says_of_the_broken_script_what_is_shown(tmp_path: Path) -> None:
    (script,), (shown,) = blocks_of("py"), blocks_of("console")
    assert len([*script.splitlines(), *shown.splitlines()]) <= 24
    first, _, expected = shown.partition("\n")
    assert first == "$ stopgrad run train.py"
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "stopgrad", "run", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert doctest.OutputChecker().check_output(expected, done.stderr, doctest.ELLIPSIS), done.stderr


@pytest.mark.slow
def test_the_program_prints_the_report_that_is_shown(tmp_path: Path) -> None:
    (code,), (report,) = blocks_of("python"), blocks_of("text")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 15
    (tmp_path / "train.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == report


@pytest.mark.slow
def test_the_picture_is_that_of_the_program(tmp_path: Path) -> None:
    images = ROOT / "docs" / "images"
    command = [sys.executable, images / "draw_flow.py", README, tmp_path / "readme.svg"]
    subprocess.run(command, check=True)
    assert (tmp_path / "readme.svg").read_text() == (images / "readme.svg").read_text()


def test_the_session_shows_what_python_shows() -> None:
    (text,) = blocks_of("pycon")
    session = doctest.DocTestParser().get_doctest(text, {"sg": sg, "np": np}, "README", None, None)
    assert len(session.examples) == 5
    shown: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(optionflags=flags).run(session, out=shown.append)
    assert result.failed == 0, "".join(shown)


def test_the_commands_install_what_there_is_and_the_second_runs_the_tests() -> None:
    first, second = blocks_of("sh")
    assert ".venv/bin/stopgrad tour" in first
    assert second.strip() == ".venv/bin/pip install -e '.[test]' && .venv/bin/pytest"
    project = (ROOT / "pyproject.toml").read_text()
    extras = set(re.findall(r"'\.\[(\w+)\]'", README.read_text()))
    assert {"tour", "test", "docs", "torch"} <= extras
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)


def test_the_galleries_of_mistakes_have_the_sizes_that_are_said() -> None:
    text = " ".join(README.read_text().split())
    (said,) = re.findall(r"(\d+) mistakes that .*?: (\d+) in .*?, (\d+) in .*?, (\d+) in .*?, (\d+) in", text)
    whole, *counts = map(int, said)
    assert whole == sum(counts)
    folders = ("torch_mistakes", "jax_mistakes", "tensorflow_mistakes", "mistakes")
    for folder, count in zip(folders, counts, strict=True):
        assert len(list((ROOT / "examples" / folder).glob("[a-z]*.py"))) == count
