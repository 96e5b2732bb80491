"""A script behaves under ``stopgrad run`` as under plain Python: its output, its errors, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import run_like_python

pytestmark = pytest.mark.slow

SCRIPTS = {
    # ---------------------------------------------------------------------------------- how it ends
    "exit_3": "import sys; print('a'); sys.exit(3)",
    "exit_text": "import sys; sys.exit('bye')",
    "exit_large": "import sys; sys.exit(263)",
    "exit_negative": "import sys; sys.exit(-1)",
    "exit_none": "raise SystemExit",
    "exit_at_once": "import os\nprint('x', flush=True)\nos._exit(4)",
    "raises": "def f():\n    raise ValueError('x')\nf()",
    "raises_from": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "raises_within": "try:\n    1/0\nexcept ZeroDivisionError:\n    {}['q']",
    "raises_group": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
    "raises_noted": "e = ValueError('x'); e.add_note('mine'); raise e",
    "raises_base": "class B(BaseException): pass\nraise B('x')",
    "raises_deep": "def f(n):\n    if n: f(n - 1)\n    else: 1/0\nf(30)",
    "raises_in_exec": "exec('1/0')",
    "raises_unprintable": "class E(Exception):\n    def __str__(self): raise ValueError\nraise E('x')",
    "raises_elsewhere": "import os; os.chdir('/'); raise ValueError('moved')",
    "no_such_module": "import nothing_there_x",
    "syntax_error": "x = 1\ndef f(:\n  pass",
    "indentation": "x = 1\n  y = 2",
    "tabs": "if 1:\n\tx = 1\n        y = 2",
    "interrupted": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)",
    "terminated": "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "hook": "import sys\nsys.excepthook = lambda t, e, at: print(t, e, at.tb_lineno, at.tb_next)\n1/0",
    "hook_raises": "import sys\ndef hook(t, e, at): raise RuntimeError('in hook')\n"
    "sys.excepthook = hook\n1/0",
    "hook_exits": "import sys\ndef hook(t, e, at): sys.exit(9)\nsys.excepthook = hook\n1/0",
    "hook_untouched": "import sys; print(sys.excepthook is sys.__excepthook__)",
    "at_exit": "import atexit, sys\nfor i in range(3): atexit.register(print, i)\nsys.exit(2)",
    "at_exit_raises": "import atexit, sys\natexit.register(lambda: print(sys.last_type))\n"
    "raise ValueError('z')",
    "deleted_at_exit": "import json\nclass A:\n    def __del__(self): print('del', json.dumps([1]), A)\n"
    "a = A()",
    "unraisable": "class A:\n    def __del__(self): raise ValueError('d')\na = A(); del a\nprint('end')",
    # -------------------------------------------------------------------------------------- streams
    "streams": "import sys\nprint('out'); print('err', file=sys.stderr); sys.stdout.write('no newline')",
    "stdout_replaced": "import sys, io\nold, sys.stdout = sys.stdout, io.StringIO()\nprint('hidden')\n"
    "old.write(sys.stdout.getvalue().upper())",
    "stdout_closed": "import sys\nprint('x')\nsys.stdout.close()",
    "stdout_none": "import sys\nprint('x')\nsys.stdout = None",
    "stderr_closed": "import sys\nsys.stderr.close()\nprint('x')",
    "stderr_none": "import sys\nsys.stderr = None\nprint('x')",
    "descriptor_closed": "import os\nprint('x', flush=True)\nos.close(2)",
    "utf8": "print('ü→✓')",
    # ---------------------------------------------------------------------------------- what it sees
    "arguments": "import sys; print(sys.argv, sys.path[0], __file__, __name__, __spec__, __package__)",
    "names": "print(sorted(globals()), __builtins__, type(__loader__), __cached__)\nx: int = 3\n"
    "print(__annotations__)",
    "docstring": "'''The doc.'''\nprint(__doc__)",
    "own_module": "import sys, __main__\n"
    "print(__main__.__file__, sys.modules['__main__'].__dict__ is globals())",
    "parser": "import argparse\np = argparse.ArgumentParser(); p.add_argument('--lr', type=float)\n"
    "p.add_argument('x', nargs='*'); p.add_argument('--json'); p.add_argument('-m')\n"
    "print(p.prog, p.parse_args())",
    "parser_refuses": "import argparse\n"
    "p = argparse.ArgumentParser(); p.add_argument('--lr', required=True)\n"
    "p.parse_args()",
    "handlers": "import signal\nprint([signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGPIPE)])",
    "handler": "import signal, os\n"
    "signal.signal(signal.SIGUSR1, lambda s, f: print('got', s, f.f_code.co_name))\n"
    "os.kill(os.getpid(), signal.SIGUSR1)\nprint('done')",
    "limits": "import gc, sys\n"
    "print(sys.getrecursionlimit(), gc.isenabled(), gc.get_threshold(), sys.gettrace())",
    "sources": "import inspect\ndef f(a):\n    return a\n"
    "print(inspect.getsource(f), inspect.getmodule(f).__name__)",
    "pickles": "import pickle\nclass A: x = 3\nprint(A.__module__, pickle.loads(pickle.dumps(A())).x)",
    "hints": "from __future__ import annotations\nimport typing\ndef f(x: int): pass\n"
    "print(typing.get_type_hints(f))",
    "warns": "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)",
    "warns_as_error": "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('careful')",
    "logs": "import logging\nlogging.basicConfig(); logging.warning('w'); print(len(logging.root.handlers))",
    "seeded": "import random; random.seed(0); print(random.random())",
    "sibling": "import sibling; print(sibling.X, sibling.__file__)",
    "runs_another": "import runpy\nprint(runpy.run_path('sibling.py', run_name='zz')['X'])",
    # ---------------------------------------------------------------------------- threads, processes
    "thread": "import threading, time\ndef w(): time.sleep(.05); print('thread done')\n"
    "threading.Thread(target=w).start()\nprint(threading.main_thread() is threading.current_thread())",
    "thread_raises": "import threading\nt = threading.Thread(target=lambda: 1/0); t.start(); t.join()",
    "daemon": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "forks": "import os, sys\nif not (pid := os.fork()):\n    print('child', flush=True)\n    sys.exit(5)\n"
    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "fork_raises": "import os\nif not (pid := os.fork()):\n    raise ValueError('child')\n"
    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "fork_goes_on": "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nprint(pid > 0, flush=True)",
    "spawns": "import multiprocessing as mp\nclass K:\n    def __init__(self, v): self.v = v\n"
    "def f(k): return K(k.v + 1)\nif __name__ == '__main__':\n"
    "    with mp.get_context('spawn').Pool(1) as p: print([k.v for k in p.map(f, [K(1), K(2)])])",
    "spawned_raises": "import multiprocessing as mp\ndef f(x): raise ValueError(x)\n"
    "if __name__ == '__main__':\n"
    "    p = mp.get_context('spawn').Process(target=f, args=(1,)); p.start(); p.join(); print(p.exitcode)",
    "replaces_itself": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "async_interrupted": "import asyncio, os, signal\nasync def main():\n"
    "    os.kill(os.getpid(), signal.SIGINT)\n"
    "    await asyncio.sleep(9)\nasyncio.run(main())",
}
ARGUMENTS = {
    "parser": ["--lr", "3", "a", "--json", "q", "-m", "z", "--", "-k"],
    "arguments": ["-m", "x", "--steps", "3", "--help", "--"],
}
OTHERS = {
    "module": ["-m", "package.train", "a"],
    "package": ["-m", "package", "a"],
    "no_module": ["-m", "package.nothing"],
    "folder": ["folder", "a"],
    "archive": ["app.zip", "a"],
    "empty_folder": ["empty"],
    "no_script": ["nothing.py"],
    "link": ["./empty/../linked.py"],
}
SHOWS = """import sys
print(__name__, repr(__package__), __spec__ and __spec__.name, sys.argv, sys.path[0], __file__)
"""


class Ended(NamedTuple):
    """How a process ended, and what it printed."""

    status: int
    out: str
    err: str


def cleaned(text: str) -> str:
    """A text without what differs between processes."""
    return re.sub(r"0x[0-9a-f]+|SpawnProcess-\d+|Thread-\d+", "#", text)


def without_report(text: str) -> str:
    """The standard error of a script, without the report that follows, or that a fork's end is in between."""
    return re.sub(r"stopgrad: (nothing found|\d+ finding)[^\n]*\n(not known: [^\n]*\n)?", "", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("like").resolve()
    for name, source in SCRIPTS.items():
        (found / f"{name}.py").write_text(source)
    for path, source in {
        "sibling.py": "X = 1",
        "package/__init__.py": "print('init', __name__)",
        "package/train.py": "from .there import X\n" + SHOWS,
        "package/__main__.py": "from .there import X\n" + SHOWS,
        "package/there.py": "X = 5",
        "folder/__main__.py": "import there\n" + SHOWS,
        "folder/there.py": "",
        "empty/real.py": SHOWS,
    }.items():
        (found / path).parent.mkdir(exist_ok=True)
        (found / path).write_text(source)
    with zipfile.ZipFile(found / "app.zip", "w") as archive:
        for name in ("__main__.py", "there.py"):
            archive.write(found / "folder" / name, name)
    (found / "linked.py").symlink_to("empty/real.py")
    return found


JOBS = {name: [f"{name}.py", *ARGUMENTS.get(name, [])] for name in SCRIPTS} | OTHERS


@pytest.fixture(scope="module")
def ran(folder: Path) -> dict[str, Ended]:
    """How the scripts ended under ``stopgrad run``; one process starts them all, which takes less time."""
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps(JOBS))
    subprocess.run(
        [sys.executable, run_like_python.__file__, str(jobs)],
        check=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
    )
    return {
        name: Ended(
            int((folder / f"{name}.status").read_text()),
            (folder / f"{name}.out").read_text(),
            (folder / f"{name}.err").read_text(),
        )
        for name in JOBS
    }


@pytest.mark.parametrize("name", JOBS)
def test_a_script_does_what_it_does_under_plain_python(
    name: str, folder: Path, ran: dict[str, Ended]
) -> None:
    with open(folder / "plain.out", "w") as out, open(folder / "plain.err", "w") as err:
        plain = subprocess.run(
            [sys.executable, *JOBS[name]], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    told = ran[name]
    assert told.status == plain.returncode, told.err
    assert cleaned(told.out) == cleaned((folder / "plain.out").read_text())
    assert cleaned(without_report(told.err)) == cleaned((folder / "plain.err").read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_from_outside_ends_it_as_it_ends_python(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "finally:\n    print('cleaned')\n"
    )
    ended = []
    for command in ([], ["-m", "stopgrad", "run"]):
        process = subprocess.Popen(
            [sys.executable, *command, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        time.sleep(1.0)  # Until it sleeps, so that the signal comes in that line.
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        ended.append((process.returncode, ready + out, without_report(err)))
    assert ended[0] == ended[1]


def test_input_reaches_the_script(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text("import sys\nprint(input('> '), sys.stdin.read())")
    command = [sys.executable, "-m", "stopgrad", "run", str(script)]
    told = subprocess.run(command, input="one\ntwo\n", capture_output=True, text=True, check=True)
    assert told.stdout == "> one two\n\n"
