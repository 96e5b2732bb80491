"""A save that cannot be completed leaves the old file, no part file, and an error that says what to do."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from privileges import without_privileges

import stopgrad as sg
from stopgrad.graph.files import write_arrays

pytestmark = pytest.mark.slow

OLD = {"w": np.arange(100.0)}
NEW = {"w": np.arange(3000.0), "b": np.ones(7, np.int8)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "w", OLD)
    return tmp_path / "w"


def length_of(path: Path) -> int:
    write_arrays(path, NEW)
    length = path.stat().st_size
    write_arrays(path, OLD)
    return length


@contextmanager
def a_disk_with(room: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, so many bytes can be written, in pieces as small as the system likes."""
    left = room
    write = os.write
    r = random.Random(room)

    def limited(file: int, data: memoryview) -> int:
        nonlocal left
        if left == 0:
            raise error
        count = write(file, data[: min(left, r.choice([1, 100, 10_000, 10**9]))])
        left -= count
        return count

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", limited)
        yield


def refused_and_as_before(path: Path, save: Callable[[], None], kind: type[BaseException]) -> BaseException:
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        save()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return caught.value


def test_a_disk_that_is_full_after_any_number_of_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    length = length_of(path)
    for room in [*range(0, 400, 7), *range(400, length, 97), length - 1]:
        with a_disk_with(room, OSError(errno.ENOSPC, "No space left on device"), monkeypatch):
            error = refused_and_as_before(path, lambda: write_arrays(path, NEW), sg.FileError)
        assert f"{path} cannot be written: the disk is full; make room" in str(error)
        assert isinstance(error, OSError)
        assert error.errno == errno.ENOSPC


def test_an_interrupt_after_any_number_of_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in range(0, length_of(path), 997):
        with a_disk_with(room, KeyboardInterrupt(), monkeypatch):
            refused_and_as_before(path, lambda: write_arrays(path, NEW), KeyboardInterrupt)


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=repr)
def test_a_step_that_fails(
    path: Path, step: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    kind = sg.FileError if isinstance(error, OSError) else KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        refused_and_as_before(path, lambda: write_arrays(path, NEW), kind)


LIMITED = """
import os, resource, signal, sys
import numpy as np
import stopgrad as sg
from stopgrad.graph.files import write_arrays
path = sys.argv[1]
old = open(path, "rb").read()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
refused = 0
for room in range(0, 24_000, 71):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        write_arrays(path, {"w": np.arange(3000.0)})
    except sg.FileError as error:
        refused += "larger than the system allows" in str(error)
    assert open(path, "rb").read() == old
    assert os.listdir(os.path.dirname(path)) == ["w"]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
write_arrays(path, {"w": np.arange(3000.0)})
assert open(path, "rb").read() != old
print(refused)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the system has no limit for files")
def test_a_limit_of_the_system_on_files(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) == len(range(0, 24_000, 71))


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        path = small / "w"
        write_arrays(path, OLD)
        error = refused_and_as_before(
            path, lambda: write_arrays(path, {"w": np.zeros(100_000)}), sg.FileError
        )
        assert "the disk is full" in str(error)
        write_arrays(path, NEW)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_read_only_folder() -> None:
    with tempfile.TemporaryDirectory() as outer:
        path = Path(outer) / "closed" / "w"
        path.parent.mkdir()
        write_arrays(path, OLD)
        path.parent.chmod(0o555)
        Path(outer).chmod(0o755)

        def save() -> None:
            with without_privileges():
                write_arrays(path, NEW)

        error = refused_and_as_before(path, save, sg.FileError)
        path.parent.chmod(0o755)
    assert "this is not permitted; save elsewhere, or change the permissions" in str(error)


def test_what_is_no_place_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    for place, why in {
        "folder": "it is a folder; give the path of a file",
        "pipe": "it is a device or a pipe",
        "nowhere/w": "its folder does not exist; make it first",
        "file/w": "its folder is no folder",
        "circle": "its symbolic links lead in a circle",
        "x" * 300: "the name is too long; take a shorter one",
    }.items():
        with pytest.raises(sg.FileError, match=why):
            write_arrays(tmp_path / place, NEW)
    with pytest.raises(FileNotFoundError):
        write_arrays(tmp_path / "nowhere" / "w", NEW)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["circle", "file", "folder", "pipe"]
    for place in (None, 3, b"w", "", "a\0b"):
        with pytest.raises(sg.ArgumentError, match="is no path of a file"):
            write_arrays(place, NEW)  # type: ignore[arg-type]
