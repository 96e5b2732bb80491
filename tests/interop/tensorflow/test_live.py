"""The tests of live TensorFlow, and the examples in its modules, each part in a process without PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from places import ROOT

LIVE = Path(__file__).parent / "live"
SOURCE = ROOT / "src" / "stopgrad" / "interop" / "tensorflow"
"""The modules of which many import TensorFlow; plain pytest leaves their examples out."""
FUZZ = LIVE / "test_live_fuzz.py"
TESTS = [str(file) for file in sorted(LIVE.glob("test_*.py")) if file != FUZZ]
REST = [str(FUZZ), str(SOURCE)]
"""Programs at random, and the examples: both too long for plain tests."""

pytestmark = [
    pytest.mark.first,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="needs TensorFlow"),
]


def passes(*arguments: str) -> None:
    """Run pytest in a process of its own; where it fails, fail with what it printed."""
    options = ["-o", "addopts=", "--import-mode=importlib", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    nothing = done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert done.returncode == 0 or nothing, done.stdout[-6000:] + done.stderr[-2000:]


def test_in_a_process_without_pytorch() -> None:
    passes("-m", "not slow and not nightly", *TESTS)


@pytest.mark.slow
def test_slow_ones_in_a_process_without_pytorch() -> None:
    passes("-m", "slow and not nightly", *TESTS)


@pytest.mark.slow
def test_programs_and_examples_in_a_process_without_pytorch() -> None:
    passes("--doctest-modules", "-m", "not nightly", *REST)


@pytest.mark.nightly
@pytest.mark.parametrize("part", [TESTS, REST], ids=["tests", "programs"])
def test_nightly_ones_in_a_process_without_pytorch(part: list[str]) -> None:
    passes("-m", "nightly", *part)
