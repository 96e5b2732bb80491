"""The kernels in C++: built once, found again, and done without where they cannot be built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stopgrad.engines.xla.native.library import library

pytestmark = pytest.mark.slow

SAY = """
from stopgrad.engines.xla.native.library import library
found = library()
print(found.path if found.available else "none: " + found.reason)
"""
COMPUTE = """
import numpy as np
import stopgrad as sg
x = np.random.default_rng(0).normal(size=(100, 100)).astype(np.float32)
y = np.asarray(sg.function(lambda x: sg.softmax(x) * 2.0, engine="xla")(x))
np.testing.assert_allclose(y.sum(-1), 2.0, rtol=1e-5)
print("computed")
"""
needs_compiler = pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")


def started(text: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(text: str, **environment: str) -> str:
    process = started(text, **environment)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return out.strip()


def test_switched_off_it_says_so() -> None:
    assert said(SAY, STOPGRAD_NATIVE="0") == "none: switched off by STOPGRAD_NATIVE=0"


@pytest.mark.parametrize("compiler", ["there-is-no-such-compiler", "false"])
def test_without_a_working_compiler_xla_computes_alone(tmp_path: Path, compiler: str) -> None:
    environment = {"CXX": compiler, "STOPGRAD_CACHE_DIR": str(tmp_path)}
    assert said(SAY, **environment).startswith("none: ")
    assert compiler in said(SAY, **environment)
    assert said(COMPUTE, **environment) == "computed"
    assert not list(tmp_path.rglob("*.so"))


@needs_compiler
def test_a_folder_to_which_others_can_write_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "native").mkdir()
    (tmp_path / "native").chmod(0o777)
    assert "others than this user can write to it" in said(SAY, STOPGRAD_CACHE_DIR=str(tmp_path))
    assert not list(tmp_path.rglob("*.so"))


@needs_compiler
def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'note: x' >&2\necho 'error: this is broken' >&2\nexit 3\n")
    broken.chmod(0o755)
    found = said(SAY, CXX=str(broken), STOPGRAD_CACHE_DIR=str(tmp_path))
    assert "exit status 3" in found
    assert "error: this is broken" in found


@needs_compiler
def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert said(SAY, STOPGRAD_CACHE_DIR=str(tmp_path / "file")).startswith("none: ")


@needs_compiler
def test_several_processes_build_at_once_and_leave_one_library(tmp_path: Path) -> None:
    processes = [started(SAY, STOPGRAD_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    paths = {process.communicate(timeout=240)[0].strip() for process in processes}
    assert len(paths) == 1
    assert [str(path) for path in tmp_path.rglob("*") if path.is_file()] == list(paths)
    # The next one finds it, and needs no compiler: a command that fails has another name, so it is the same.
    assert said(SAY, STOPGRAD_CACHE_DIR=str(tmp_path)) in paths
    assert said(COMPUTE, STOPGRAD_CACHE_DIR=str(tmp_path)) == "computed"
