"""The lower bounds in pyproject.toml are true: a smoke suite passes with exactly these versions."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
from places import ROOT


@pytest.mark.nightly
def test_the_lowest_versions_pass_a_smoke_suite() -> None:
    done = subprocess.run([ROOT / ".ci" / "lowest"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_every_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"]]
    for extra in ("xla", "jax", "torch", "onnx", "tensorflow", "scale", "special", "completion", "tour"):
        named += [one for one in extras[extra] if not one.startswith("stopgrad[")]
    for one in named:
        assert re.fullmatch(r"[\w.-]+>=[\d.]+", one), one
