"""A wheel that is built, installed and used outside of the checkout: with kernels, and without."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stopgrad.engines.xla.native.library import library

ROOT = Path(__file__).parents[4]
SCRIPT = ROOT / "tests/helpers/installed_kernels.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheel is built for x86-64"),
]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([*command], env=whole, capture_output=True, text=True, timeout=280, check=False)


def wheel(folder: Path, **environment: str) -> Path:
    """Build a wheel from the checkout."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder]
    done = run(*pip, ROOT, **environment)
    assert done.returncode == 0, done.stderr
    (made,) = Path(folder).glob("*.whl")
    return made


@pytest.mark.nightly
@pytest.mark.skipif(not library().available, reason="no compiler")
def test_a_wheel_with_kernels_needs_no_compiler(tmp_path: Path) -> None:
    made = wheel(tmp_path, STOPGRAD_PREBUILD="x86-64-v3")
    assert "py3-none-linux_x86_64" in made.name
    folder = tmp_path / "installed"
    zipfile.ZipFile(made).extractall(folder)
    done = run(
        sys.executable, "-P", SCRIPT, PYTHONPATH=str(folder), STOPGRAD_CACHE_DIR=str(tmp_path / "cache")
    )
    assert done.returncode == 0, done.stderr
    assert "with kernels-x86-64-v3" in done.stdout


def test_a_plain_wheel_is_for_every_machine(tmp_path: Path) -> None:
    made = wheel(tmp_path)
    assert made.name.endswith("py3-none-any.whl")
    names = zipfile.ZipFile(made).namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert {"stopgrad/__init__.py", "stopgrad/py.typed", "stopgrad_trainer/__init__.py"} <= set(names)
    assert {"stopgrad/nn.pyi", "stopgrad/ops/functions.pyi", "stopgrad/py.typed"} <= set(names)
