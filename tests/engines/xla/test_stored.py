"""Compiled programs on disk: loaded by the next process, and never anything but what was asked for."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import serialize_executable

import stopgrad as sg
from stopgrad.engines.xla import stored
from stopgrad.engines.xla.native import library, paying
from stopgrad.graph.fingerprint import fingerprint
from stopgrad.rewrite import passes, rolling

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for programs, all of which are worth keeping."""
    monkeypatch.setenv("STOPGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("STOPGRAD_COMPILED")
    monkeypatch.setattr(stored, "WORTH", 0.0)
    return tmp_path / "xla"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been compiled, rather than loaded."""
    made: list[Any] = []
    compile_lowered = stored.compile_lowered

    def counted(*args: Any) -> Any:
        made.append(args)
        return compile_lowered(*args)

    monkeypatch.setattr(stored, "compile_lowered", counted)
    return made


def compute(scale: float = 2.0, f: Callable[..., Any] | None = None, **how: Any) -> Any:
    """The gradient of a small function, traced and compiled anew."""
    made = sg.function(sg.grad(f or (lambda x: sg.reduce_sum(sg.sin(x) * scale))), engine="xla", **how)
    return made(np.array([0.5, 1.0], np.float32))


def test_a_program_is_compiled_once_and_computes_the_same(folder: Path, compilations: list[Any]) -> None:
    first, second = compute(), compute()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(second, 2 * np.cos([0.5, 1.0]), rtol=1e-6)
    assert len(compilations) == len(list(folder.iterdir())) == 1
    assert (folder.stat().st_mode & 0o777) == 0o700


@pytest.mark.parametrize(
    "other",
    [
        lambda: compute(3.0),
        lambda: compute(strict=True),
        lambda: compute(donate_argnums=0),
        lambda: compute(f=lambda x: sg.reduce_sum(sg.cos(x) * 2.0)),
        lambda: sg.function(lambda x: sg.sin(x), engine="xla")(np.ones(3)),
        lambda: sg.function(lambda x: sg.sin(x), engine="xla")(np.ones(4)),
    ],
)
def test_what_differs_is_compiled(folder: Path, compilations: list[Any], other: Callable[[], Any]) -> None:
    compute()
    other()
    assert len(compilations) == 2


def test_loops_and_their_bodies_are_part_of_what_a_program_is(folder: Path, compilations: list[Any]) -> None:
    def looped(rate: float) -> Any:
        step = lambda c, _: (c * rate, c)
        return sg.function(lambda x: sg.scan(step, x, length=3), engine="xla")(1.0)

    for rate in (2.0, 3.0, 2.0):
        assert looped(rate)[0] == rate**3
    assert len(compilations) == 2


def test_programs_for_meshes_are_kept_for_just_these(folder: Path, compilations: list[Any]) -> None:
    x = np.arange(64.0).reshape(8, 8)

    def on(mesh: sg.Mesh, *sharding: Any) -> Any:
        f = sg.function(lambda x: sg.matmul(x, x), engine="xla", mesh=mesh, shardings={"x": sharding})
        np.testing.assert_array_equal(f(x), x @ x)
        return f.lower(x).compile().as_text()

    reversed_devices = np.array(jax.devices()[:4])[::-1]
    others = [
        (sg.Mesh(data=4, model=2), ("data", "model")),
        (sg.Mesh(data=2, model=4), ("data", "model")),
        (sg.Mesh(data=4, model=2), ("model", "data")),
        (sg.Mesh(data=4), ("data",)),
        (sg.Mesh(jax.sharding.Mesh(reversed_devices, ("data",))), ("data",)),
    ]
    first = [on(mesh, *sharding) for mesh, sharding in others]
    assert len(compilations) == len(others)
    assert [on(mesh, *sharding) for mesh, sharding in others] == first
    assert len(compilations) == len(others)


def test_a_damaged_file_is_made_again(
    folder: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, other = compute(), compute(3.0)
    first, second = sorted(folder.iterdir(), key=os.path.getmtime)
    whole, draw = first.read_bytes(), random.Random(0)
    damaged = [b"", b"nonsense", whole[: len(whole) // 2], whole + b"\0", second.read_bytes()]
    for _ in range(20):
        at = draw.randrange(len(whole))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
    read: list[bytes] = []
    monkeypatch.setattr(
        serialize_executable, "deserialize_and_load", lambda data, *_, **__: read.append(data) or 1 / 0
    )
    for n, data in enumerate(damaged):
        first.write_bytes(data)
        np.testing.assert_array_equal(compute(), expected)
        assert len(compilations) == 3 + n
    assert not read  # Nothing of them came to JAX, which unpickles.
    monkeypatch.undo()
    assert not np.array_equal(expected, other)
    assert first.stat().st_size == len(first.read_bytes()) > 100


def test_a_folder_to_which_others_can_write_is_left_alone(folder: Path, compilations: list[Any]) -> None:
    compute()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="is not used"):
        compute()
    assert len(compilations) == 2


def test_they_can_be_switched_off(
    folder: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPGRAD_COMPILED", "0")
    compute(), compute()
    assert len(compilations) == 2
    assert not folder.exists()


def test_what_was_used_longest_ago_goes(
    folder: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(1.0)
    size = next(folder.iterdir()).stat().st_size
    monkeypatch.setattr(stored, "ROOM", int(2.5 * size))
    for scale in (2.0, 1.0, 3.0, 1.0):
        for path in folder.iterdir():  # Clocks of file systems are coarse.
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
        compute(scale)
    assert len(compilations) == 3
    compute(2.0)
    assert len(compilations) == 4
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2.5 * size


def test_another_process_loads_it(folder: Path) -> None:
    program = (
        "import numpy as np, stopgrad as sg, stopgrad.engines.xla.stored as stored\n"
        "stored.WORTH = 0.0\n"
        "made, compile = [], stored.compile_lowered\n"
        "stored.compile_lowered = lambda *args: made.append(args) or compile(*args)\n"
        "f = sg.function(lambda x: sg.exp(x) * 2.0, engine='xla')\n"
        "print(f(np.zeros(2, np.float32)), len(made))\n"
    )
    found = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert found == ["[2. 2.] 1\n", "[2. 2.] 0\n"]


@pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")
@pytest.mark.parametrize("looped", [False, True])
def test_another_process_loads_what_needs_kernels(folder: Path, looped: bool) -> None:
    built = library().path
    assert built is not None
    shutil.copytree(built.parent, folder.parent / built.parent.name)  # To build it takes long.
    f = (
        "sg.scan(lambda c, _: (sg.softmax(c * 1.5), None), x, length=3)[0]"
        if looped
        else "sg.softmax(x * 1.5)"
    )
    program = (
        "import numpy as np, stopgrad as sg, stopgrad.engines.xla.stored as stored\n"
        "from stopgrad.engines.xla.native import loaded\n"
        "stored.WORTH = 0.0\n"
        "made, compile = [], stored.compile_lowered\n"
        "stored.compile_lowered = lambda *args: made.append(args) or compile(*args)\n"
        f"f = sg.function(lambda x: {f}, engine='xla')\n"
        "print(f(np.zeros((64, 128), np.float32)).sum(), len(made), loaded() is not None)\n"
    )
    found = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert found == ["64.0 1 True\n", "64.0 0 True\n"]


def test_operations_of_others_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3])
        y = sg.exp(x)
    assert fingerprint([x], [y]) is not None
    monkeypatch.setattr(sg.ops.Exp, "__module__", "elsewhere")
    assert fingerprint([x], [y]) is None


def test_names_and_lines_do_not_matter() -> None:
    def made(name: str) -> str | None:
        with sg.Graph().as_default():
            x = sg.placeholder(sg.float32, [3], name=name)
            y = sg.exp(x, name=f"{name}_exp")
        return fingerprint([x], [y])

    assert made("a") == made("b") is not None


def test_linear_algebra_and_transforms_are_loaded_by_the_next_process(folder: Path) -> None:
    """JAX looks up LAPACK's functions when it lowers, which a process that only loads does not."""
    text = (
        "import numpy as np, stopgrad as sg\n"
        "from stopgrad.engines.xla import stored\n"
        "stored.WORTH = 0.0\n"
        "f = lambda x: sg.reduce_sum(sg.inv(x)) + sg.reduce_sum(sg.svdvals(x)) + sg.trace(sg.eigh(x)[1])\n"
        "x = np.array([[2.0, 1.0], [0.0, 3.0]])\n"
        "print(sg.function(sg.grad(f), engine='xla')(x).tolist())\n"
        "transform = lambda x: sg.abs(sg.xp.fft.fft(x))\n"
        "print(sg.function(transform, engine='xla')(x).tolist())\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(list(folder.iterdir())) == 2


def layered(count: int = 130) -> Any:
    """Value and gradient of many layers, written as a loop of Python, whose weights are stacked outside."""

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = sg.tanh(x @ w)
        return sg.reduce_sum(x)

    weights = [np.eye(4, dtype=np.float32) * (1.0 + i / count) for i in range(count)]
    f = sg.function(sg.value_and_grad(loss), engine="xla")
    return f(weights, np.ones((2, 4), np.float32)), f


def test_a_stored_program_needs_no_form(
    folder: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stacked before it and cut after it is stored, too; notes are made when they are read."""
    monkeypatch.setattr(rolling, "LEAST_SAVED", 20)
    (value, gradient), f = layered()
    notes = f.report()[0].notes
    assert any("run as a loop" in note for note in notes)
    compiled, formed = len(compilations), []
    form = passes.formed
    monkeypatch.setattr(passes, "formed", lambda *args: formed.append(args) or form(*args))
    (again, same), g = layered()
    assert len(compilations) == compiled
    assert not formed
    np.testing.assert_array_equal(value, again)
    np.testing.assert_array_equal(gradient, same)
    assert g.report()[0].notes == notes
    assert len(formed) == 1


def test_a_stored_program_is_traced_by_jax(folder: Path, compilations: list[Any]) -> None:
    f = lambda x: sg.sin(x) * 2.0
    x = np.array([0.5, 1.0], np.float32)
    for _ in range(2):
        made = sg.function(f, engine="xla")
        np.testing.assert_allclose(made(x), 2 * np.sin(x), rtol=1e-6)
        traced = jax.jit(lambda x, made=made: made(x))(jax.numpy.asarray(x))
        np.testing.assert_allclose(traced, 2 * np.sin(x), rtol=1e-6)
    assert len(compilations) == 1


@pytest.mark.skipif(not library().available, reason=f"no kernels: {library().reason}")
def test_other_kernels_make_another_program(
    folder: Path, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    soft = lambda: sg.function(lambda x: sg.softmax(x * 1.5), engine="xla")(x)
    monkeypatch.setenv("STOPGRAD_NATIVE", "1")
    first = soft()
    np.testing.assert_array_equal(soft(), first)
    assert len(compilations) == 1
    monkeypatch.setattr(paying, "slower", lambda *_: frozenset({"rows, small"}))
    np.testing.assert_allclose(soft(), first, rtol=1e-5)
    assert len(compilations) == 2
    monkeypatch.setenv("STOPGRAD_NATIVE", "0")
    soft()
    assert len(compilations) == 3
    compute(), compute()  # Nothing for kernels to do: they do not matter.
    monkeypatch.setenv("STOPGRAD_NATIVE", "1")
    compute()
    assert len(compilations) == 4


def test_blocks_without_gradients_count_where_a_graph_is_to_be_rewritten() -> None:
    def made(where: int) -> list[str | None]:
        with sg.Graph().as_default():
            x = sg.placeholder(sg.float32, [3])
            y = [sg.exp(x), sg.sin(x)]
            with sg.no_gradient():
                z = sg.exp(x) if where == 0 else sg.sin(x)
            if where == 2:
                z = sg.sin(x)
        return [fingerprint([x], [*y, z], blocks) for blocks in (False, True)]

    (plain, within), (other, _) = made(1), made(0)
    assert plain == made(2)[0] != other
    assert within == made(1)[1] != made(2)[1]
