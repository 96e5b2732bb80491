"""The kernels in C++: built once, found again, and done without where they cannot be built."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
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
@pytest.mark.nightly
def test_several_processes_build_at_once_and_leave_one_library(tmp_path: Path) -> None:
    processes = [started(SAY, STOPGRAD_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    paths = {process.communicate(timeout=240)[0].strip() for process in processes}
    assert len(paths) == 1
    assert [str(path) for path in tmp_path.rglob("*") if path.is_file()] == list(paths)
    # The next one finds it, and needs no compiler: a command that fails has another name, so it is the same.
    assert said(SAY, STOPGRAD_CACHE_DIR=str(tmp_path)) in paths
    assert said(COMPUTE, STOPGRAD_CACHE_DIR=str(tmp_path)) == "computed"


@pytest.fixture
def quick(tmp_path: Path) -> dict[str, str]:
    """An environment whose compiler has a library at once: that of these kernels which is there already."""
    path = library().path
    assert path is not None
    compiler, calls = tmp_path / "c++", tmp_path / "calls"
    compiler.write_text(
        f"#!/bin/sh\necho called >> {calls}\n"
        f'while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\ncp {path} "$out"\n'
    )
    compiler.chmod(0o755)
    return {"CXX": str(compiler), "STOPGRAD_CACHE_DIR": str(tmp_path / "cache")}


@needs_compiler
def test_processes_that_have_it_built_at_once_leave_one_library(quick: dict[str, str]) -> None:
    processes = [started(SAY, **quick) for _ in range(3)]
    paths = {process.communicate(timeout=240)[0].strip() for process in processes}
    assert len(paths) == 1
    folder = Path(quick["STOPGRAD_CACHE_DIR"])
    assert [str(path) for path in folder.rglob("*") if path.is_file()] == list(paths)


def calls(folder: Path) -> int:
    """How often the compiler was called."""
    return len((folder / "calls").read_text().splitlines())


@pytest.mark.parametrize("damage", ["empty", "half", "one bit", "another name", "a link", "a folder"])
def test_a_library_that_is_not_as_it_was_built_is_not_found(tmp_path: Path, damage: str) -> None:
    module = sys.modules[library.__module__]
    content = random.Random(0).randbytes(1000)
    (tmp_path / "made").write_bytes(content)
    path = tmp_path / module._sealed("kernels", tmp_path / "made")
    path.write_bytes(content)
    assert module._intact(tmp_path, "kernels") == path
    assert module._intact(tmp_path, "other") is None
    if damage == "another name":
        path = path.rename(path.with_name(path.name[:-8] + "00000.so"))
    elif damage in ("a link", "a folder"):
        path.unlink()
        path.symlink_to(tmp_path / "made") if damage == "a link" else path.mkdir()
    else:
        changed = {"empty": b"", "half": content[:500], "one bit": bytes([content[0] ^ 1]) + content[1:]}
        path.write_bytes(changed[damage])
    assert module._intact(tmp_path, "kernels") is None
    assert path.is_dir() or not path.exists()


@needs_compiler
def test_a_library_of_which_half_is_left_is_built_again(quick: dict[str, str], tmp_path: Path) -> None:
    path = Path(said(SAY, **quick))
    whole, often = path.read_bytes(), calls(tmp_path)
    path.write_bytes(whole[: len(whole) // 2])
    assert said(COMPUTE, **quick) == "computed"
    assert calls(tmp_path) == 2 * often
    assert path.read_bytes() == whole
    assert len(list(path.parent.iterdir())) == 1


@needs_compiler
def test_what_a_killed_build_left_is_removed_after_a_while(quick: dict[str, str]) -> None:
    folder = Path(quick["STOPGRAD_CACHE_DIR"]) / "native"
    for name, age in (("build-old", 3600), ("build-new", 0)):
        (folder / name).mkdir(parents=True)
        (folder / name / "rows.o").write_bytes(b"x")
        then = time.time() - age
        os.utime(folder / name, (then, then))
    folder.chmod(0o700)
    assert said(SAY, **quick).endswith(".so")
    assert [path.name for path in folder.glob("build-*")] == ["build-new"]


@needs_compiler
def test_a_processor_with_other_features_gets_its_own_library(quick: dict[str, str]) -> None:
    """Where one folder serves several machines."""
    path = said(SAY, **quick)
    other = said(
        f"""{SAY.splitlines()[1]}
import sys
sys.modules[library.__module__].processor = lambda: "sse2"
{SAY}""",
        **quick,
    )
    assert other.endswith(".so")
    assert other != path
    assert said(SAY, **quick) == path


@needs_compiler
def test_a_full_disk_only_means_no_kernels(quick: dict[str, str]) -> None:
    full = f"""if True:
        import errno, os
        def replace(*_): raise OSError(errno.ENOSPC, "No space left on device")
        os.replace = replace
        {SAY.strip().replace(chr(10), chr(10) + 8 * " ")}
        {COMPUTE.strip().replace(chr(10), chr(10) + 8 * " ")}
        """
    assert said(full, **quick) == "none: OSError: [Errno 28] No space left on device\ncomputed"
    assert said(SAY, **quick).endswith(".so")
