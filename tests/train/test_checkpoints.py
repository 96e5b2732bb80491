"""Checkpoints: every bit comes back, onto other devices too; what is broken or another graph's is refused."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from bits import bits_of_every_kind
from privileges import without_privileges

import stopgrad as sg
from stopgrad.base.types import DTYPES, dtype_of, tensor_type
from stopgrad.graph.files import locked
from stopgrad.scale.array_folders import (
    NOTES,
    BrokenError,
    FolderReader,
    Writing,
    differences,
    remove_folder,
    write_folder,
)


def read(path: Path, shardings: Any = None) -> dict[str, Any]:
    """All arrays of a folder, checked: NumPy's, or divided as is said."""
    reader = FolderReader(str(path))
    reader.check()
    return reader.read(dict.fromkeys(reader.types) | (shardings or {}))


def same_bits(x: Any, y: Any) -> None:
    x, y = np.asarray(x), np.asarray(y)
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert x.tobytes() == y.tobytes()


def mesh(*shape: int) -> Any:
    count = int(np.prod(shape))
    if jax.device_count() < count:
        pytest.skip(f"{count} devices are needed")
    names = ("data", "model")[: len(shape)]
    return jax.sharding.Mesh(np.array(jax.devices()[:count]).reshape(shape), names)


def divided(mesh: Any, *spec: Any) -> Any:
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


# ----------------------------------------------------------------------------------------- the arrays


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_every_bit_of_every_type(dtype: sg.base.types.DType, tmp_path: Path) -> None:
    value = bits_of_every_kind(dtype)
    even = value[: len(value) // 2 * 2].reshape(2, -1)
    with jax.enable_x64(True):
        on_a_device = jax.device_put(value)
    arrays = {
        "numpy": value,
        "jax": on_a_device,
        "scope/none": value[:0].reshape(0, 3),
        "scope/one": value[0].reshape(()),
        "turned": even.T,
        "a": even,
        "a/0": value[:1],
        "a.b": value[1:2],
        "a\\..\\x>y": value[:2],
        "0" * 300: value[:1],
    }
    write_folder(str(tmp_path / "x"), arrays, {})
    found = read(tmp_path / "x")
    assert found.keys() == arrays.keys()
    for name, x in arrays.items():
        same_bits(found[name], x)


def test_nothing_and_only_empty_arrays(tmp_path: Path) -> None:
    write_folder(str(tmp_path / "x"), {}, {"a": [1, "é"]})
    assert read(tmp_path / "x") == {}
    assert FolderReader(str(tmp_path / "x")).notes == {"a": [1, "é"]}
    write_folder(str(tmp_path / "y"), {"w": np.zeros((3, 0))}, {})
    assert read(tmp_path / "y")["w"].shape == (3, 0)


def test_some_of_the_arrays(tmp_path: Path) -> None:
    write_folder(str(tmp_path / "x"), {"a": np.arange(3), "b/c": np.arange(4)}, {})
    found = FolderReader(str(tmp_path / "x")).read({"b/c": None})
    assert found.keys() == {"b/c"}
    same_bits(found["b/c"], np.arange(4))


def test_thousands_of_arrays(tmp_path: Path) -> None:
    arrays = {f"layer_{i}/w": np.full(3, i) for i in range(1000)}
    write_folder(str(tmp_path / "x"), arrays, {})
    found = read(tmp_path / "x")
    assert all((found[f"layer_{i}/w"] == i).all() for i in range(1000))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex128"])
def test_onto_other_devices(dtype: str, tmp_path: Path) -> None:
    kind = DTYPES[dtype].numpy
    x = np.random.default_rng(0).integers(0, 2**40, (8, 12)).astype(kind)
    before = mesh(4, 2)
    with jax.enable_x64(True):
        arrays = {
            "both": jax.device_put(x, divided(before, "data", "model")),
            "one": jax.device_put(x, divided(before, None, "data")),
            "together": jax.device_put(x, divided(before, ("model", "data"))),
            "everywhere": jax.device_put(x, divided(before)),
            "none": jax.device_put(x[:0], divided(before)),
        }
    write_folder(str(tmp_path / "x"), arrays, {})
    after = [
        divided(before, "model", "data"),
        divided(mesh(2, 4), "data", "model"),
        divided(mesh(2), None, "data"),
        divided(mesh(1)),
        jax.sharding.SingleDeviceSharding(jax.devices()[-1]),
        None,
    ]
    for sharding in after:
        found = read(tmp_path / "x", dict.fromkeys(("both", "one", "together", "everywhere"), sharding))
        for name, value in found.items():
            same_bits(value, x if name != "none" else x[:0])
            assert name == "none" or sharding is None or value.sharding == sharding
    assert not jax.config.jax_enable_x64


# ------------------------------------------------------------------------------------ what goes wrong


def several() -> dict[str, Any]:
    r = np.random.default_rng(0)
    return {"w": r.standard_normal((50, 40)), "b": np.arange(7), "c/d": np.array(True), "e": np.zeros((0, 2))}


def damaged(path: Path) -> Iterator[tuple[str, Path]]:
    """Copies of a folder, in each of which one file is damaged."""
    r = np.random.default_rng(0)
    for file in sorted(p.relative_to(path) for p in path.rglob("*") if p.is_file()):
        content = (path / file).read_bytes()
        places = sorted({0, len(content) - 1, *r.integers(0, len(content), 4).tolist()})
        changed = {"cut": content[: len(content) // 2], "empty": b"", "longer": content + b"\0", "gone": None}
        for at in places:
            flipped = bytearray(content)
            flipped[at] ^= 1 << int(r.integers(8))
            changed[f"bit in byte {at}"] = bytes(flipped)
        for how, new in changed.items():
            copy = path.parent / "damaged"
            shutil.copytree(path, copy)
            if new is None:
                (copy / file).unlink()
            else:
                (copy / file).write_bytes(new)
            yield f"{file}: {how}", copy
            shutil.rmtree(copy)


def test_a_file_that_is_damaged_is_noticed(tmp_path: Path) -> None:
    write_folder(str(tmp_path / "x"), several(), {})
    for what, copy in damaged(tmp_path / "x"):
        try:
            read(copy)
        except BrokenError:
            continue
        pytest.fail(f"{what} is not noticed")


def test_a_folder_that_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(BrokenError, match="there is no such folder"):
        FolderReader(str(tmp_path / "nowhere"))
    with pytest.raises(BrokenError, match="it has no notes"):
        FolderReader(str(tmp_path))
    write_folder(str(tmp_path / "x"), {}, {})
    text = (tmp_path / "x" / NOTES).read_bytes().partition(b" ")[2].replace(b'"version":1', b'"version":9')
    (tmp_path / "x" / NOTES).write_bytes(b"%08x " % zlib.crc32(text) + text)
    with pytest.raises(sg.CheckpointError, match="written by a newer stopgrad"):
        FolderReader(str(tmp_path / "x"))


def test_differences_are_counted() -> None:
    kind = tensor_type(dtype_of("float32"), (2, 3))
    lines = differences({}, {f"w{i}": kind for i in range(25)})
    assert len(lines) == 21
    assert lines[0] == "w0: float32[2, 3] in the graph, not in the checkpoint"
    assert lines[-1] == "and 5 more"


# ------------------------------------------------------------------------------------------- training


class Model:
    """Parameters whose elements all count the steps; equal numbers are a whole state."""

    def __init__(self, size: int = 1000, count: int = 4) -> None:
        self.graph = sg.Graph()
        with self.graph.as_default():
            self.ps = [sg.parameter(np.zeros(size), name=f"layer/p{i}") for i in range(count)]
            self.steps = [sg.assign(p, p + 1.0) for p in self.ps]

    def session(self, engine: str = "xla") -> sg.Session:
        return sg.Session(self.graph, engine=engine)

    def count(self, session: sg.Session) -> float:
        found = {float(x) for p in self.ps for x in np.unique(session.value(p))}
        assert len(found) == 1, f"the state is torn: {found}"
        return found.pop()


class Position:
    """Stands for data."""

    def __init__(self) -> None:
        self.at: Any = 0

    def state(self) -> Any:
        return {"at": self.at}

    def restore(self, state: Any) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("engine", ["xla", "numpy"])
def test_a_run_is_taken_up_where_it_was(engine: str, tmp_path: Path) -> None:
    model, data = Model(), Position()
    folder = tmp_path / "a" / "run"
    with (
        model.session(engine) as session,
        sg.Checkpoints(folder, session, data=data, keep=2) as checkpoints,
    ):
        assert checkpoints.steps == []
        assert checkpoints.restore() is None
        for step in range(1, 6):
            session.run(model.steps)
            data.at += 10
            checkpoints.save(step)
    assert checkpoints.steps == [4, 5]
    assert sorted(os.listdir(folder)) == ["4", "5"]
    for other in ("xla", "numpy"):
        data = Position()
        with model.session(other) as session:
            assert sg.Checkpoints(folder, session, data=data).restore() == 5
            assert model.count(session) == 5
            assert data.at == 50
            session.run(model.steps)
            assert model.count(session) == 6


def test_training_goes_on_while_it_is_saved(tmp_path: Path) -> None:
    """The arrays saved are those of the moment, though the engine writes into them soon after."""
    model = Model(size=300_000)
    with model.session() as session:
        for _ in range(3):  # From here on new values are written over old ones.
            session.run(model.steps)
        with sg.Checkpoints(tmp_path, session, keep=100) as checkpoints:
            for step in range(4, 60, 8):
                session.run(model.steps)
                checkpoints.save(step)
                for _ in range(7):
                    session.run(model.steps)
        for step in checkpoints.steps:
            found = read(tmp_path / str(step))
            assert {float(x) for value in found.values() for x in np.unique(value)} == {float(step)}
        assert checkpoints.steps == list(range(4, 60, 8))


def test_saving_again_replaces(tmp_path: Path) -> None:
    model = Model()
    with model.session() as session, sg.Checkpoints(tmp_path, session) as checkpoints:
        for _ in range(3):
            session.run(model.steps)
            checkpoints.save(7, wait=True)
        assert checkpoints.steps == [7]
        assert os.listdir(tmp_path) == ["7.2"]
        session.run(model.steps)
        assert checkpoints.restore() == 7
        assert model.count(session) == 3


def broken(path: Path) -> None:
    file = max((path / "arrays").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_broken_checkpoint_is_passed_over(tmp_path: Path) -> None:
    model = Model()
    with model.session() as session, sg.Checkpoints(tmp_path, session) as checkpoints:
        for step in (1, 2, 3):
            session.run(model.steps)
            checkpoints.save(step, wait=True)
        broken(tmp_path / "3")
        (tmp_path / "2" / NOTES).unlink()
        with pytest.warns(UserWarning, match="passed over") as caught:
            assert checkpoints.restore() == 1
        assert model.count(session) == 1
        assert [w.filename for w in caught] == [__file__, __file__]
        assert re.search(r"/3 is broken: arrays/.* is not as it was written", str(caught[0].message))
        assert "/2 is no checkpoint: it has no notes" in str(caught[1].message)
        # The run goes on, and replaces what is broken.
        for step in (2, 3):
            session.run(model.steps)
            checkpoints.save(step, wait=True)
        assert checkpoints.restore() == 3
        assert model.count(session) == 3
        assert sorted(os.listdir(tmp_path)) == ["1", "2.1", "3"]
        for entry in list(tmp_path.iterdir()):
            broken(entry)
        with pytest.warns(UserWarning, match="passed over"):
            assert checkpoints.restore() is None


def test_a_checkpoint_of_another_graph(tmp_path: Path) -> None:
    model = Model()
    with model.session() as session, sg.Checkpoints(tmp_path, session) as checkpoints:
        session.run(model.steps)
        checkpoints.save(1)
    other, data = sg.Graph(), Position()
    with other.as_default():
        w = sg.parameter(np.zeros(1000), name="layer/p0")
        sg.parameter(np.zeros(999), name="layer/p1")
        sg.parameter(np.zeros(1000, np.float32), name="layer/p2")
        sg.parameter(np.zeros((2, 2), np.int32), name="head")
    with sg.Session(other) as session:
        with pytest.raises(sg.CheckpointError, match="was saved from another graph") as caught:
            sg.Checkpoints(tmp_path, session, data=data).restore()
        assert caught.value.message.split("\n  ")[1:] == [
            "head: int32[2, 2] in the graph, not in the checkpoint",
            "layer/p3: float64[1000] in the checkpoint, not in the graph",
            "layer/p1: float64[1000] in the checkpoint, float64[999] in the graph",
            "layer/p2: float64[1000] in the checkpoint, float32[1000] in the graph",
        ]
        assert not session.value(w).any()
        assert data.at == 0


def test_nothing_is_taken_up_where_the_data_refuses(tmp_path: Path) -> None:
    model, data = Model(), Position()
    with model.session() as session, sg.Checkpoints(tmp_path, session) as checkpoints:
        session.run(model.steps)
        checkpoints.save(1, wait=True)
        with pytest.raises(sg.CheckpointError, match="was saved without data"):
            sg.Checkpoints(tmp_path, session, data=data).restore()
        session.run(model.steps)
        data.at = object()
        with pytest.raises(sg.ArgumentError, match="must be numbers, texts, lists and dicts"):
            sg.Checkpoints(tmp_path, session, data=data).save(2)
        data.at = 3
        sg.Checkpoints(tmp_path, session, data=data).save(2, wait=True)
        session.run(model.steps)

        class Refuses(Position):
            def restore(self, state: Any) -> None:
                raise KeyError("no such epoch")

        with pytest.raises(KeyError, match="no such epoch"):
            sg.Checkpoints(tmp_path, session, data=Refuses()).restore()
        assert model.count(session) == 3
        assert sg.Checkpoints(tmp_path, session, data=data).restore() == 2


def test_wrong_arguments(tmp_path: Path) -> None:
    model = Model()
    with model.session() as session:
        for arguments, why in [
            ((tmp_path, model.graph), "a session is needed"),
            ((3, session), "is no path"),
            (("", session), "is no path"),
        ]:
            with pytest.raises(sg.ArgumentError, match=why):
                sg.Checkpoints(*arguments)  # type: ignore[arg-type]
        for keep in (0, -1, 1.5, None, "3", True):
            with pytest.raises(sg.ArgumentError, match="keep is how many checkpoints are kept"):
                sg.Checkpoints(tmp_path, session, keep=keep)  # type: ignore[arg-type]
        with pytest.raises(sg.ArgumentError, match=r"data must have state\(\) and restore\(state\)"):
            sg.Checkpoints(tmp_path, session, data=[1, 2])
        checkpoints = sg.Checkpoints(tmp_path, session)
        for step in (-1, 1.5, None, "3", True):
            with pytest.raises(sg.ArgumentError, match="step is a whole number, 0 or more"):
                checkpoints.save(step)  # type: ignore[arg-type]
        checkpoints.save(np.int64(3), wait=True)
        assert checkpoints.steps == [3]
        checkpoints.close()
        with pytest.raises(sg.CheckpointError, match="these are closed"):
            checkpoints.save(4)
    with pytest.raises(sg.GraphError, match="the session is closed"):
        sg.Checkpoints(tmp_path, session).save(4)
    with pytest.raises(sg.GraphError, match="the session is closed"):
        sg.Checkpoints(tmp_path, session).restore()


def test_another_run_in_the_same_folder(tmp_path: Path) -> None:
    model = Model()
    with model.session() as session:
        sg.Checkpoints(tmp_path, session).save(100, wait=True)
        checkpoints = sg.Checkpoints(tmp_path, session)
        with pytest.raises(sg.CheckpointError, match="holds later steps, up to 100, of another run"):
            checkpoints.save(1)
        assert checkpoints.restore() == 100
        checkpoints.save(1, wait=True)


def test_two_programs_save_at_once(tmp_path: Path) -> None:
    with Model().session() as session:
        file = os.open(tmp_path, os.O_RDONLY)
        assert locked(file, wait=False)  # As another program does while it writes.
        with pytest.raises(sg.CheckpointError, match="another program saves there"):
            sg.Checkpoints(tmp_path, session).save(2, wait=True)
        os.close(file)
        assert os.listdir(tmp_path) == []
        sg.Checkpoints(tmp_path, session).save(2, wait=True)
    assert os.listdir(tmp_path) == ["2"]


def test_one_program_that_saves_there_already_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, copy = threading.Event(), Writing._copy

    def slow(self: Writing, part: str) -> Any:
        go_on.wait(20)
        return copy(self, part)

    with Model().session() as session:
        monkeypatch.setattr(Writing, "_copy", slow)
        first = threading.Thread(target=lambda: write_folder(str(tmp_path / "1"), several(), {}))
        first.start()
        while not (tmp_path / ".1.part" / "parts").exists():
            pass
        monkeypatch.undo()
        threading.Timer(0.1, go_on.set).start()
        sg.Checkpoints(tmp_path, session).save(2, wait=True)
        first.join()
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


def test_what_was_left_by_a_program_that_died_is_removed(tmp_path: Path) -> None:
    write_folder(str(tmp_path / "1"), several(), {})
    shutil.copytree(tmp_path / "1", tmp_path / ".2.part")
    (tmp_path / ".3.1.part").mkdir()
    (tmp_path / "notes of mine.txt").write_text("stay")
    model = Model()
    with model.session() as session:
        checkpoints = sg.Checkpoints(tmp_path, session)
        assert checkpoints.steps == [1]
        checkpoints.save(4, wait=True)
    assert sorted(os.listdir(tmp_path)) == ["1", "4", "notes of mine.txt"]
    remove_folder(str(tmp_path / "1"))
    assert sorted(os.listdir(tmp_path)) == ["4", "notes of mine.txt"]


# ----------------------------------------------------------------------------------- disks that refuse


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, what: str, number: int) -> Iterator[None]:
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, what, fails)
        yield


@pytest.mark.parametrize("where", ["wait", "save", "close", "with"])
def test_an_error_of_the_background_comes_up(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    with model.session() as session:
        checkpoints = sg.Checkpoints(tmp_path, session)
        session.run(model.steps)
        checkpoints.save(1, wait=True)
        with failing(monkeypatch, "rename", errno.ENOSPC):
            checkpoints.save(2)
            assert checkpoints._writing is not None
            checkpoints._writing._done.wait()
        match = f"{re.escape(str(tmp_path / '2'))} cannot be written: the disk is full; make room"
        ways = {"save": lambda: checkpoints.save(3), "with": lambda: checkpoints.__exit__(None)}
        with pytest.raises(sg.CheckpointError, match=match):
            ways.get(where, getattr(checkpoints, where, None))()  # type: ignore[misc]
        checkpoints.wait()  # It comes up once.
        assert os.listdir(tmp_path) == ["1"]
        assert checkpoints.restore() == 1


def test_the_error_that_led_to_the_end_is_the_one_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()

    def save_and_fail(session: sg.Session) -> None:
        with sg.Checkpoints(tmp_path, session) as checkpoints:
            checkpoints.save(2)
            raise ZeroDivisionError

    with model.session() as session, failing(monkeypatch, "rename", errno.ENOSPC):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(ZeroDivisionError):
                save_and_fail(session)
        assert ["the disk is full" in str(w.message) for w in caught] == [True]


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("step", ["makedirs", "fsync", "rename"])
def test_a_step_that_fails(step: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, step, number), pytest.raises(sg.CheckpointError, match="cannot be written"):
        write_folder(str(tmp_path / "run" / "1"), several(), {})
    assert not (tmp_path / "run").exists() or os.listdir(tmp_path / "run") == []
    write_folder(str(tmp_path / "run" / "1"), several(), {})


LIMITED = """
import os, resource, signal, sys
import numpy as np
import stopgrad as sg
from stopgrad.scale.array_folders import FolderReader, Writing, write_folder
folder = sys.argv[1]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
arrays = {f"w{i}": np.random.default_rng(0).standard_normal(300) for i in range(5)}
refused = failed = 0
for room in (*range(0, 12_000, 1200), 100_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        write_folder(f"{folder}/{room}", arrays, {})
    except sg.CheckpointError as error:
        failed += 1
        refused += "larger than the system allows" in str(error)
        assert not os.listdir(folder), os.listdir(folder)
    else:
        break
reader = FolderReader(f"{folder}/{room}")
reader.check()
assert all((x == arrays[name]).all() for name, x in reader.read(dict.fromkeys(arrays)).items())
print(refused, failed)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
Writing(f"{folder}/last", arrays, {}).begin()  # Nobody waits for it.
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the system has no limit for files")
@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 2),
    reason="no thread can begin at the end of this Python (gh-113964)",
)
def test_a_limit_of_the_system_on_files(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    refused, failed = map(int, run.stdout.split())
    assert refused == failed > 2
    assert read(tmp_path / "last").keys() == {f"w{i}" for i in range(5)}


FULL = """
import os, sys
import numpy as np
import stopgrad as sg
graph = sg.Graph()
with graph.as_default():
    w = sg.parameter(np.zeros((4, 10_000)), name="w")
    step = sg.assign(w, w + 1.0)
with sg.Session(graph) as session:
    checkpoints = sg.Checkpoints(sys.argv[1], session)
    for i in (1, 2):
        session.run(step)
        checkpoints.save(i, wait=True)
    for _ in range(3):
        checkpoints.save(3)
        try:
            checkpoints.wait()
        except sg.CheckpointError as error:
            print(str(error).partition("run/")[2].partition("\\n")[0])
        assert sorted(os.listdir(sys.argv[1])) == ["1", "2"], os.listdir(sys.argv[1])
    assert checkpoints.restore() == 2
    assert (session.value(w) == 2).all()
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:  # In a process of its own: callbacks that orbax loses would be another test's warnings.
        run = subprocess.run(
            [sys.executable, "-c", FULL, str(small / "run")],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert run.returncode == 0, run.stderr
    why = "3 cannot be written: the disk is full; make room, or save elsewhere"
    assert run.stdout.splitlines() == [why] * 3


def test_a_read_only_folder() -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as outer, model.session() as session:
        folder = Path(outer) / "closed"
        checkpoints = sg.Checkpoints(folder, session)
        checkpoints.save(1, wait=True)
        folder.chmod(0o555)
        Path(outer).chmod(0o755)
        with (
            without_privileges(),
            pytest.raises(sg.CheckpointError, match="2 cannot be written: this is not permitted"),
        ):
            checkpoints.save(2, wait=True)
        folder.chmod(0o755)
        assert os.listdir(folder) == ["1"]


def test_what_is_no_place_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    model = Model()
    with model.session() as session:
        for place, why in {
            "file": "is a file; checkpoints stand in a folder",
            "file/run": "its folder is no folder",
            "x" * 300: "the name is too long; take a shorter one",
        }.items():
            with pytest.raises(sg.CheckpointError, match=why):
                sg.Checkpoints(tmp_path / place, session).save(1, wait=True)


# --------------------------------------------------------------------------------- sessions on a mesh


def sharded(shape: tuple[int, ...]) -> tuple[sg.Graph, list[Any]]:
    """A graph with a divided parameter, a whole one and one of 64 bits, and what assigns them."""
    graph = sg.Graph()
    with graph.as_default():
        w = sg.parameter(
            np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape),
            name="w",
            sharding=("data", "model"),
        )
        b = sg.parameter(np.ones(3, np.int64) * 2**40, name="b")
        v = sg.parameter(np.linspace(0, 1, 8), name="v", sharding=("model",))
        return graph, [sg.assign(w, w * 2.0), sg.assign(b, b + 1), sg.assign(v, v / 3.0)]


def values(session: sg.Session) -> dict[str, Any]:
    return {name: session.value(session.graph.output(name)) for name in ("w", "b", "v")}


@pytest.mark.parametrize("before", [{"data": 4, "model": 2}, {"data": 1, "model": 4}, None], ids=str)
def test_a_session_on_a_mesh_saves_and_restores(before: Any, tmp_path: Path) -> None:
    mesh(8)
    graph, steps = sharded((8, 4))
    path = tmp_path / "saved"
    with sg.Session(graph, mesh=None if before is None else sg.Mesh(**before)) as session:
        for _ in range(3):
            session.run(steps)
            session.save(path)
        saved = values(session)
        assert path.is_dir() is (before is not None)
    if before is not None:
        assert os.listdir(path) == ["values.2"]
    for after in ({"data": 2, "model": 4}, {"data": 1, "model": 1}, None):
        other, steps = sharded((8, 4))
        with sg.Session(other, mesh=None if after is None else sg.Mesh(**after)) as session:
            session.restore(path)
            for name, x in values(session).items():
                same_bits(x, saved[name])
            session.run(steps)
            assert (session.value(other.output("w")) == saved["w"] * 2).all()
            assert (session.value(other.output("b")) == 2**40 + 4).all()


def test_checkpoints_of_a_session_on_a_mesh(tmp_path: Path) -> None:
    mesh(8)
    graph, steps = sharded((8, 4))
    on = sg.Mesh(data=4, model=2)
    with sg.Session(graph, mesh=on) as session, sg.Checkpoints(tmp_path, session) as checkpoints:
        for step in range(1, 11):
            session.run(steps)
            checkpoints.save(step)
        ten = values(session)
        for _ in range(3):
            session.run(steps)
        checkpoints.wait()
        broken(tmp_path / "9")
    with sg.Session(graph, mesh=sg.Mesh(data=2, model=2)) as session:
        assert sg.Checkpoints(tmp_path, session).restore() == 10
        for name, x in values(session).items():
            same_bits(x, ten[name])
        broken(tmp_path / "10")
        with pytest.warns(UserWarning, match="passed over"):
            assert sg.Checkpoints(tmp_path, session).restore() == 8
    with sg.Session(graph) as session:
        session.restore(tmp_path / "8")
        with pytest.raises(sg.CheckpointError, match="/9 is broken"):
            session.restore(tmp_path / "9")
        with pytest.warns(UserWarning, match="passed over"):
            session.restore(tmp_path)
        assert (session.value(graph.output("b")) == 2**40 + 8).all()


def test_a_folder_of_another_graph_or_of_none(tmp_path: Path) -> None:
    mesh(8)
    graph, _ = sharded((8, 4))
    other, _ = sharded((8, 8))
    with sg.Session(graph, mesh=sg.Mesh(data=4, model=2)) as session:
        session.save(tmp_path / "saved")
        (tmp_path / "file").write_text("text")
        with pytest.raises(sg.CheckpointError, match="is a file; checkpoints stand in a folder"):
            session.save(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "text"
        with pytest.raises(sg.CheckpointError, match="it is a folder without a checkpoint that is whole"):
            session.restore(tmp_path)
        with pytest.raises(sg.MissingFileError):
            session.restore(tmp_path / "nowhere")
    with sg.Session(other) as session:
        with pytest.raises(sg.CheckpointError) as caught:
            session.restore(tmp_path / "saved")
        assert "w: float32[8, 4] in the checkpoint, float32[8, 8] in the graph" in str(caught.value)


def test_a_file_of_another_graph_is_told_with_all_that_differs(tmp_path: Path) -> None:
    model = Model()
    with model.session() as session:
        session.save(tmp_path / "file")
    other = sg.Graph()
    with other.as_default():
        w = sg.parameter(np.ones(1000), name="layer/p0")
        sg.parameter(np.ones(7), name="layer/p1")
        sg.parameter(np.ones(1000, np.float32), name="layer/p2")
        sg.parameter(np.ones(2), name="head")
    with sg.Session(other) as session:
        with pytest.raises(sg.GraphError, match="file does not fit the graph") as caught:
            session.restore(tmp_path / "file")
        lines = caught.value.message.split("\n  ")[1:]
        assert [re.sub(" built at .*?(, not|;)", r"\1", line) for line in lines] == [
            "holds float64[1000] for Parameter 'layer/p1' float64[7], not float64[7]",
            "holds float64[1000] for Parameter 'layer/p2' float32[1000], not float32[1000]",
            "holds no value of Parameter 'head' float64[2]; it has layer/p0, layer/p1, layer/p2, layer/p3",
        ]
        assert session.value(w).all()
