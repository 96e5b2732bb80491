"""After a fork: the child computes, or is told at once why it cannot and what to do. It never hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_tools import Counting
from places import HELPERS

import stopgrad as sg

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")]


def in_child(function: Callable[[], Any], seconds: int = 20) -> None:
    """Call a function in a forked process, which is to end by itself."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's own, that forking it leads to a deadlock.
        pid = os.fork()
    if pid == 0:
        signal.alarm(seconds)
        try:
            function()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child was ended by signal {status}: it hung"
    assert not text, text


@pytest.fixture
def running_jax() -> None:
    c = Counting()
    with sg.Session(c.graph, engine="xla") as session:
        c.step(session)


@pytest.mark.usefixtures("running_jax")
def test_numpy_goes_on_in_the_child() -> None:
    c = Counting()
    f = sg.function(lambda x: x * 2.0, engine="numpy")
    f(np.ones(2))
    with sg.Session(c.graph, engine="numpy") as session:
        c.step(session)

        def child() -> None:
            c.step(session)
            assert c.count(session) == 2
            assert f(np.ones(2)).tolist() == [2.0, 2.0]
            assert f(np.ones(3)).tolist() == [2.0] * 3

        in_child(child)
        assert c.count(session) == 1


@pytest.mark.usefixtures("running_jax")
def test_a_fork_while_another_thread_runs() -> None:
    c = Counting(200_000)
    with sg.Session(c.graph, engine="numpy") as session:
        c.step(session)
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                c.step(session)

        def child() -> None:
            before = c.count(session)
            c.step(session)
            assert c.count(session) == before + 1
            os.path.exists(os.devnull)
            with pytest.raises(sg.GraphError, match="closed"):
                session.close() or c.step(session)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(20):
                time.sleep(0.003)
                in_child(child)
        finally:
            done.set()
            worker.join()


@pytest.mark.usefixtures("running_jax")
def test_xla_says_at_once_what_to_do(tmp_path: Path) -> None:
    c = Counting()
    f = sg.function(lambda x: x * 2.0, engine="xla")
    f(np.ones(2))
    with sg.Session(c.graph, engine="xla") as session, sg.Session(c.graph) as auto:
        c.step(session)
        c.step(auto)

        def child() -> None:
            for use in (
                lambda: c.step(session),
                lambda: session.value(c.parameters[0]),
                lambda: session.save(tmp_path / "x.npz"),
                lambda: session.restore(tmp_path / "x.npz"),
                lambda: c.step(auto),
                lambda: f(np.ones(2)),
                lambda: f(np.ones(3)),
                lambda: sg.Session(c.graph, engine="xla"),
                lambda: sg.function(lambda x: x, engine="xla")(1.0),
            ):
                with pytest.raises(sg.EngineError, match=r"forked.*'spawn'.*engine='numpy'"):
                    use()
            session.close()

        in_child(child)
        c.step(session)
        assert c.count(session) == 2


@pytest.mark.usefixtures("running_jax")
def test_auto_is_another_engine_in_the_child() -> None:
    c = Counting()
    f = sg.function(lambda x: x * 2.0)
    f(np.ones(2))
    with sg.Session(c.graph) as fresh:

        def child() -> None:
            assert f(np.ones(2)).tolist() == [2.0, 2.0]
            with sg.Session(c.graph) as session:
                assert session.engine == "onnxruntime"
                c.step(session)
            c.step(fresh)  # It holds no values yet.
            assert fresh.engine == "onnxruntime"

        in_child(child)
        c.step(fresh)
        assert fresh.engine == "xla"


def test_onnxruntime_that_has_run_goes_on_in_the_child() -> None:
    x = np.random.default_rng(0).normal(size=(300, 300))
    f = sg.function(lambda x: sg.reduce_sum(sg.exp(x @ x)), engine="onnxruntime")
    expected = f(x)

    def child() -> None:
        assert f(x) == expected
        assert sg.function(lambda x: 2.0 * sg.reduce_sum(sg.exp(x @ x)), engine="onnxruntime")(x) > 0.0

    in_child(child)
    assert f(x) == expected


def test_jax_that_has_not_run_may_run_in_the_child() -> None:
    """In a process of its own, for in this one JAX runs."""
    text = textwrap.dedent(
        """
        import os, sys
        import jax, numpy as np, stopgrad as sg
        with sg.Graph().as_default() as graph:
            w = sg.parameter(np.ones(3))
            step = sg.assign(w, w + 1.0)
        session = sg.Session(graph, engine="xla")
        pid = os.fork()
        if pid == 0:
            session.run(step)
            os._exit(17 if session.value(w).tolist() == [2.0] * 3 else 1)
        sys.exit(0 if os.waitpid(pid, 0)[1] == 17 * 256 else 1)
        """
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True, timeout=120)


def test_a_child_of_a_child_counts_for_itself() -> None:
    c = Counting()
    with sg.Session(c.graph, engine="numpy") as session:

        def child() -> None:
            c.step(session)
            in_child(lambda: c.step(session))
            assert c.count(session) == 1

        in_child(child)
        assert c.count(session) == 0


# ------------------------------------------------------------------------------------------ checkpoints

CHECKPOINTS = """
import os, sys, tempfile
sys.path.insert(0, sys.argv[1])
from fault_tools import Counting
from places import HELPERS
from multiprocessing import get_context
import stopgrad as sg

c, folder, how = Counting(300_000), tempfile.mkdtemp(), sys.argv[2]
session = sg.Session(c.graph, engine="numpy")
checkpoints = sg.Checkpoints(folder, session)
c.step(session)
if how != "unused":
    checkpoints.save(1, wait=True)
    checkpoints.save(2)  # While it is written, the process is forked.

def child():
    c.step(session)
    try:
        (checkpoints.restore if how == "restore" else lambda: checkpoints.save(3, wait=True))()
    except sg.CheckpointError as error:
        assert "forked" in str(error) and "'spawn'" in str(error), error
        sys.exit(3)

process = get_context("fork").Process(target=child)
process.start()
process.join(30)
assert process.exitcode == (0 if how == "unused" else 3), process.exitcode
checkpoints.close()
print(checkpoints.steps)
"""


@pytest.mark.parametrize(("how", "steps"), [("save", [1, 2]), ("restore", [1, 2]), ("unused", [3])])
def test_checkpoints_in_a_child_are_an_error_and_no_end_of_the_process(how: str, steps: list[int]) -> None:
    """Tensorstore aborts a process that was forked from one that had used it."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECKPOINTS, str(HELPERS), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{steps}\n"


# ------------------------------------------------------------------------------------------ new processes

SPAWNED = """
import numpy as np
import stopgrad as sg

def compute(engine):
    with sg.Graph().as_default() as graph:
        w = sg.parameter(np.arange(3.0), name="w")
        step = sg.assign(w, w * 2.0)
    with sg.Session(graph, engine=engine) as session:
        session.run(step)
        return session.value(w).tolist()

def told(engine):
    try:
        return compute(engine)
    except sg.EngineError as error:
        return "forked" in str(error) and "'spawn'" in str(error)
"""
SPAWNING = """
import sys
from multiprocessing import get_context
from spawned import compute, told

if __name__ == "__main__":
    for engine in ("numpy", "xla", "onnxruntime"):
        assert compute(engine) == [0.0, 2.0, 4.0]
    with get_context(sys.argv[1]).Pool(2) as pool:
        found = pool.map_async(told, ["numpy", "xla", "onnxruntime"]).get(60)
    xla = True if sys.argv[1] == "fork" else [0.0, 2.0, 4.0]
    assert found == [[0.0, 2.0, 4.0], xla, [0.0, 2.0, 4.0]]
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_new_processes_compute_with_every_engine_after_every_engine(method: str, tmp_path: Path) -> None:
    """But for xla in those that are forked, where an error says so."""
    (tmp_path / "spawned.py").write_text(SPAWNED)
    (tmp_path / "main.py").write_text(SPAWNING)
    words = [sys.executable, "-W", "ignore", tmp_path / "main.py", method]
    subprocess.run(words, check=True, timeout=120)
