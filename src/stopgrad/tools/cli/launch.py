"""``stopgrad launch``: several processes of one script on this machine, for development."""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TextIO

from stopgrad.base.namespaces import require
from stopgrad.scale.distributed import COUNT, INDEX, SECRET
from stopgrad.tools.cli.common import OK, Commands

GRACE = 5.0
"""Seconds for processes to end by themselves after one failed, and again after they are told to end."""

_LONGEST = 1 << 20
"""The most bytes of an unfinished line before it is printed."""


def add_launch(commands: Commands) -> None:
    """The command and its options."""
    launch = commands.add_parser(
        "launch",
        help="run a script in several processes on this machine",
        description="Run a script in several processes on this machine, joined by sg.distributed.",
        usage="stopgrad launch [-h] [-n N] [--devices K] [--port P] (script.py | -m module) ...",
    )
    launch.add_argument("-n", type=int, default=1, metavar="N", help="how many processes (1)")
    launch.add_argument(
        "--devices", type=int, metavar="K", help="give each process K virtual CPU devices, and no others"
    )
    launch.add_argument("--port", type=int, metavar="P", help="where process 0 listens (any that is free)")
    launch.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="a module, as 'python -m' runs it"
    )
    launch.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="script.py ...", help="the script and its arguments"
    )
    launch.set_defaults(run=run_launch, parser=launch)


def run_launch(arguments: argparse.Namespace) -> int:
    """Start the processes, pass on their output, and wait; the status of the first that failed."""
    command = _command(arguments)
    for name, least, most in (("n", 1, 1 << 16), ("devices", 1, 1 << 16), ("port", 1, (1 << 16) - 1)):
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            option = "-n" if name == "n" else f"--{name}"
            arguments.parser.error(f"{option} must be from {least} to {most}, not {value}")
    return _Launch(command, arguments.n, arguments.devices, arguments.port or _free_port()).run()


def _command(arguments: argparse.Namespace) -> list[str]:
    script = [word for i, word in enumerate(arguments.script) if i or word != "--"]
    if arguments.module is not None:
        if not arguments.module:
            arguments.parser.error("-m needs the name of a module")
        return ["-m", *arguments.module]
    if not script:
        arguments.parser.error("the following arguments are required: script.py, or -m module")
    if not Path(script[0]).is_file():
        arguments.parser.error(f"there is no file {script[0]!r}")
    return script


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class _Launch:
    """The processes of one launch."""

    def __init__(self, command: Sequence[str], count: int, devices: int | None, port: int) -> None:
        self.command, self.count = command, count
        address = f"127.0.0.1:{port}"
        # Bound to this machine, so that no other can connect.
        self.environment = {
            **os.environ,
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            COUNT: str(count),
            SECRET: secrets.token_hex(32),
            "PYTHONUNBUFFERED": "1",
        }
        if devices is not None:
            self.environment |= {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pumps: list[threading.Thread] = []
        self.news: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.guard = _Guard()

    def run(self) -> int:
        """The status of the first that failed; 128 plus the signal's number if a signal ended them."""
        with self._signals():
            try:
                for i in range(self.count):
                    self._start(i)
                for i, process in enumerate(self.processes):
                    self._attend(i, process)
                return self._watch()
            finally:
                self._kill()
                self._wait_for_output()
                self.guard.close()

    def _start(self, index: int) -> None:
        process = subprocess.Popen(  # noqa: S603 - the user's own script
            [*self.guard.prefix, sys.executable, *self.command],
            env={**self.environment, INDEX: str(index)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Its children end with it; Ctrl-C is passed on by this process.
            pass_fds=self.guard.pipes,
        )
        self.processes.append(process)

    def _attend(self, index: int, process: subprocess.Popen[bytes]) -> None:
        prefix = _prefix(index)
        for pipe, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            pump = threading.Thread(target=self._pump, args=(pipe, out, prefix), daemon=True)
            self.pumps.append(pump)
            pump.start()
        threading.Thread(target=self._await, args=(index, process), daemon=True).start()

    def _pump(self, pipe: IO[bytes], out: TextIO, prefix: bytes) -> None:
        """Pass on a process's output, as bytes, line by line."""
        with pipe:
            for line in iter(lambda: pipe.readline(_LONGEST), b""):
                whole = line if line.endswith(b"\n") else line + b"\n"
                try:
                    with self.lock:
                        out.flush()
                        out.buffer.write(prefix + whole)
                        out.buffer.flush()
                except (OSError, ValueError):  # The reader has left.
                    self.news.put(("unread", 0))
                    return

    def _await(self, index: int, process: subprocess.Popen[bytes]) -> None:
        if hasattr(os, "waitid"):  # Until it is waited for below, no other process can get its number.
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            if ended is not None and ended.si_status:
                _signal_group(process.pid, signal.SIGKILL)  # Its children would hold its output open.
        self.guard.forget(process.pid)
        process.wait()
        self.news.put(("ended", index))

    def _wait_for_output(self) -> None:
        """Wait until all that was printed is passed on; not for long, since others may hold the pipes."""
        until = time.monotonic() + GRACE
        for pump in self.pumps:
            pump.join(max(0.0, until - time.monotonic()))

    # --------------------------------------------------------------------------------------- how it ends

    def _watch(self) -> int:
        running, first, sent = self.count, None, 0
        deadline = None
        while running:
            kind, number = self._next(deadline)
            if kind == "late" and sent == 0:
                self._pass_on(signal.SIGTERM)
                sent, deadline = signal.SIGTERM, time.monotonic() + GRACE
            elif kind == "late":
                self._kill()
                deadline = None
            elif kind == "unread":
                raise BrokenPipeError
            elif kind == "signal":
                if sent == number:  # The second request is serious.
                    self._kill()
                self._pass_on(number)
                sent, deadline = number, time.monotonic() + GRACE
                first = first or (f"ended by {signal.Signals(number).name}", 128 + number)
            else:
                running -= 1
                status = self.processes[number].returncode
                if status and first is None:
                    first = _failure(number, status)
                    deadline = time.monotonic() + GRACE
        if first is None:
            return OK
        self._wait_for_output()  # The verdict is printed last.
        others = "; the others were ended" if sent and first[1] != 128 + sent else ""
        print(f"stopgrad: {first[0]}{others}", file=sys.stderr)
        return first[1]

    def _next(self, deadline: float | None) -> tuple[str, int]:
        while True:
            # In short waits, since signals are handled in between.
            left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
            try:
                return self.news.get(timeout=max(left, 0.0))
            except queue.Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    return "late", 0

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, frame: FrameType | None) -> None:
            self.news.put(("signal", number))

        # Only the main thread receives signals.
        heard = (
            (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        )
        before = {number: signal.signal(number, note) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pass_on(self, number: int) -> None:
        for process in self.processes:
            if process.returncode is None:
                _signal_group(process.pid, number)

    def _kill(self) -> None:
        self._pass_on(signal.SIGKILL)


def _failure(index: int, status: int) -> tuple[str, int]:
    """The message about a process that failed, and the launch's own status."""
    if status > 0:
        return f"process {index} failed first, with status {status}", status
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"process {index} failed first, ended by {name}", 128 - status


def _prefix(index: int) -> bytes:
    """``[0] ``, in a colour of its own if the terminal has colours."""
    console = require("rich.console", "stopgrad launch").Console()
    text = require("rich.text", "stopgrad launch").Text(f"[{index}]", style=_COLORS[index % len(_COLORS)])
    with console.capture() as captured:
        console.print(text, end=" ")
    return str(captured.get()).encode()


_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Guard:
    """A process that waits until this one ends, however that comes, and then ends what still runs.

    It learns of the processes through a pipe, from themselves: each starts as a program that says its number
    and is then replaced by the command. (In a process with threads, such as NumPy's, no Python code may run
    between a fork and the start of a program.) So none is forgotten, whenever this process is killed.

    Attributes:
        prefix: what comes before the command of a process.
        pipes: the files that the process must have, too.
    """

    def __init__(self) -> None:
        self.prefix: list[str] = []
        self.pipes: tuple[int, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        if os.name == "posix":
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(  # noqa: S603 - the text below
                [*_PYTHON, _GUARD],
                stdin=subprocess.PIPE,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            self.pipes = (self._process.stdin.fileno(),)
            self.prefix = [*_PYTHON, _GUARDED, str(self.pipes[0])]

    def forget(self, group: int) -> None:
        """Of a process that has ended."""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):  # It was ended, and guards no more.
                os.write(pipe, b"-%d\n" % group)

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


_PYTHON = (sys.executable, "-I", "-S", "-c")
_GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    number = int(line)
    groups.add(number) if number > 0 else groups.discard(-number)
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""
_GUARDED = """
import os, sys
pipe = int(sys.argv[1])
try:
    os.write(pipe, b"%d\\n" % os.getpid())
except OSError:
    pass
os.close(pipe)
os.execv(sys.argv[2], sys.argv[2:])
"""
