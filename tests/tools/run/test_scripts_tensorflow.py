"""Scripts in TensorFlow and Keras: what is wrong in each is found, at its lines, and nothing in its twin."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from run_scripts import in_forks
from tests.tools.run.test_scripts import wanted, wrong_with

SCRIPTS = Path(__file__).parent / "scripts_tensorflow"
PARTS = 3
"""To import TensorFlow takes as long as five scripts."""
KINDS = sorted(folder.name for folder in SCRIPTS.iterdir() if folder.is_dir() and folder.name != "correct")
CORRECT = sorted((SCRIPTS / "correct").glob("*.py"))

followed = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")


def ran(*jobs: str | list[str]) -> dict[str, Any]:
    return in_forks(*jobs, packages=("tensorflow",))


def check(paths: list[Path]) -> None:
    """Run scripts, and fail with all that is wrong."""
    found = ran(*map(str, paths))
    wrong = [
        f"{path.parent.name}/{path.name}: {told}"
        for path in paths
        if (told := wrong_with(path, found[str(path)]))
    ]
    assert not wrong, "\n".join(wrong)


def check_alike(paths: list[Path]) -> None:
    """Run programs with and without Python alone: they print the same numbers, and nothing is found."""
    plain = [["--plain", str(path)] for path in paths]
    followed = [["--apart", str(path)] for path in paths]
    found = ran(*plain, *followed)
    for path, *jobs in zip(paths, plain, followed, strict=True):
        alone, seen = [found[json.dumps(job)] for job in jobs]
        assert alone["status"] == seen["status"] == 0, f"{path.name}: {alone['printed']}\n{seen['printed']}"
        assert alone["stdout"] == seen["stdout"], path.name
        assert not wrong_with(path, seen), path.name


@pytest.mark.first
@pytest.mark.slow
@followed
@pytest.mark.parametrize("part", range(PARTS))
def test_every_script(part: int) -> None:
    check(sorted(path for kind in KINDS for path in (SCRIPTS / kind).glob("*.py"))[part::PARTS])


@pytest.mark.slow
@followed
def test_some_correct_programs_are_alike() -> None:
    check_alike(CORRECT[::12])


@pytest.mark.nightly
@followed
@pytest.mark.parametrize("part", range(6))
def test_every_correct_program_is_alike(part: int) -> None:
    check_alike(CORRECT[part::6])


def test_every_wrong_script_has_a_right_twin() -> None:
    wrong = 0
    for kind in KINDS:
        for path in (SCRIPTS / kind).glob("*.py"):
            if wanted(path) != "nothing":
                wrong += 1
                assert wanted(path) == kind, path
                assert wanted(path.with_stem(f"{path.stem}_right")) == "nothing"
    assert wrong >= 30
    assert len(CORRECT) >= 40
