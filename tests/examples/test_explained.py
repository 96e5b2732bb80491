"""Every file of the gallery says what its losses take, so that they are explained without arguments."""

from __future__ import annotations

import re

import pytest
from places import EXAMPLES

from stopgrad.tools import cli

FILES = sorted(EXAMPLES.glob("*.py"))
TARGETS = [
    f"{file}:{name}"
    for file in FILES
    for name in re.findall(r"^def (\w+)_example\(", file.read_text(), re.MULTILINE)
]


def test_every_file_has_an_example() -> None:
    assert {target.partition(":")[0] for target in TARGETS} == {str(file) for file in FILES}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.rpartition("/")[2])
def test_a_loss_is_explained_without_arguments(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", target, "--fail-on", "undefined"]) == cli.OK
    assert re.match(r"(A gradient reaches|Gradients reach)", capsys.readouterr().out)
