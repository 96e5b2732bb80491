"""What the pages on commands show is what these print. Run as a program, this writes the pages anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from pages import DOCS, blocks

import stopgrad as sg
from stopgrad.tools import cli

pytestmark = pytest.mark.slow

PAGE = "command-line.md"
ON_TENSORFLOW = "tutorials/where-did-my-gradient-go.md"
PAGES = (PAGE, "findings.md", "tutorials/why-does-it-not-train.md", ON_TENSORFLOW)

# Where one of these is set, pytest prints a failure's whole message in its summary; at a desk it does not.
ON_A_SERVER = ("CI", "BUILD_NUMBER")
FRAMES = re.compile(r"^(Traceback \(most recent call last\):\n)(?:  .*\n)+", re.MULTILINE)
"""A traceback's frames, which the pages leave out: PyTorch's own are other lines in each of its releases."""
LOGGED = re.compile(r"^(?:WARNING: All log messages before absl|[IW]\d{4} [\d:.]+ ).*\n", re.MULTILINE)
"""What TensorFlow's libraries in C++ say when they are imported."""
WARNED = re.compile(r"^/\S+/site-packages/(\S+):\d+: (?=\w+Warning: )", re.MULTILINE)
"""Where a warning of a library comes from."""


def write_files(folder: Path, page: str) -> None:
    """The files of a page, which say what they are called; and the command, as a shell finds it."""
    for block in blocks(page, "python"):
        name = re.match(r"# (\S+)\n", block)
        assert name is not None, block
        (folder / name[1]).write_text(block.split("\n", 1)[1])
    for name, arguments in {"stopgrad": "-m stopgrad", "python": ""}.items():
        script = folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)


def printed(folder: Path, command: str) -> str:
    """What a shell prints, on both ways out, as from the folder."""
    here = {name: value for name, value in os.environ.items() if name not in ON_A_SERVER}
    environment = {
        **here,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(sg.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "COLUMNS": "80",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    told = re.sub(r" +$", "", done.stdout.replace(f"{folder}/", ""), flags=re.MULTILINE)
    told = WARNED.sub(r".../\1: ", LOGGED.sub("", told))
    return FRAMES.sub(r"\1  ...\n", told)


def steady(text: str) -> str:
    """Without what another machine, moment or version prints otherwise: rounding, times, sizes of files."""
    for what in (r"error \d\.\de-\d\d", r"time: .*", r" in \d+\.\d+s", r"[\d.]+\s+[kM]?B\b"):
        text = re.sub(what, "", text)
    return text


def commands() -> list[tuple[str, str, str]]:
    """The pages and their commands, and what they say that these print."""
    found = []
    for page in PAGES:
        for block in blocks(page, "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append((page, command, output))
    return found


@pytest.mark.parametrize(
    ("page", "command", "output"),
    [
        pytest.param(*one, id=f"{one[0]}: {one[1]}", marks=pytest.mark.nightly if i % 2 else ())
        for i, one in enumerate(commands())
    ],
)
def test_a_command_prints_what_the_page_shows(page: str, command: str, output: str, tmp_path: Path) -> None:
    if page == ON_TENSORFLOW and find_spec("tensorflow") is None:
        pytest.skip("needs TensorFlow")
    write_files(tmp_path, page)
    found = printed(tmp_path, command)
    assert steady(output) == steady(found)


def test_every_command_and_option_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / PAGE).read_text()
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        for option in set(re.findall(r"(?<![\w-])--[a-z-]+", capsys.readouterr().out)) - {"--help"}:
            assert option in text, f"{name} {option}"


def rewrite(name: str) -> None:
    """Put what the commands print now on a page."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        write_files(folder, name)

        def printing(block: re.Match[str]) -> str:
            lines = re.findall(r"^\$ (.*)\n", block[1], re.MULTILINE)
            return f"```console\n{''.join(f'$ {line}{chr(10)}{printed(folder, line)}' for line in lines)}```"

        page = DOCS / name
        text = re.sub(r"```console\n(.*?)```", printing, page.read_text(), flags=re.DOTALL)
        page.write_text(re.sub(r"time: .*", "time: ...", text))  # Of a machine that does other things, too.


if __name__ == "__main__":
    for given in sys.argv[1:] or PAGES:
        rewrite(given)
