"""Tests run in a process of their own: forked from one that has imported other libraries, never ours."""

from __future__ import annotations

import builtins
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import Any

import pytest

from .hook import sitecustomize as hook

MEMORY = 10 * 2**30
# The last one: plugins that were imported before the fork are none that could be rewritten.
OPTIONS = ["-q", "-n", "0", "--dist", "no", "-p", "no:cacheprovider", "-m", "not nightly"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]

Message = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where tests run.

    Attributes:
        tree: the checkout; nothing is written into it.
        cache: what is kept between runs.
    """

    tree: Path
    cache: Path

    @property
    def kept(self) -> Path:
        """The cache folder that the library under test gets: built once, copied for each fault."""
        return self.cache / "kept"


@dataclass(frozen=True)
class Wave:
    """Tests that are run in one go.

    Attributes:
        files: where they are.
        tests: their names, in the order in which they run; None for all.
        seconds: how long they may take: a whole wave that has not ended then is killed.
        stop: after how many seconds no further test begins.
    """

    files: Sequence[str]
    tests: Sequence[str] | None
    seconds: float
    stop: float = float("inf")


class Watch:
    """A plugin: picks and orders the tests, tells what becomes of them, and what they reach."""

    def __init__(self, wave: Wave, tell: Callable[[Message], None], reached: Path | None) -> None:
        self._wave = wave
        self._tell = tell
        self._reached = reached
        self._end = time.monotonic() + wave.stop
        self._good: dict[str, bool] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: Any, config: Any, items: list[Any]) -> None:
        """Keep the tests that are wanted, in the order in which they are."""
        if self._wave.tests is None:
            seen: Counter[str] = Counter()
            keys = {}
            for item in items:
                function = item.nodeid.partition("[")[0]
                keys[item.nodeid] = seen[function]
                seen[function] += 1
            # One case of each test first: where time ends, every test has had its turn.
            items.sort(key=lambda item: keys[item.nodeid])
        else:
            order = {name: index for index, name in enumerate(self._wave.tests)}
            items[:] = sorted((x for x in items if x.nodeid in order), key=lambda x: order[x.nodeid])
        self._tell({"collected": len(items)})

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be collected has failed."""
        if report.failed:
            self._tell({"failed": report.nodeid, "when": "import", "why": _last_line(report)})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Tell what one test reached and how long it took."""
        self._tell({"begins": item.nodeid})
        began = time.perf_counter()
        if self._reached is not None:
            reached = builtins.mutants_reached  # type: ignore[attr-defined]
            reached[:] = bytes(len(reached))
        self._good[item.nodeid] = False
        result = yield
        if self._reached is not None:
            self._tell(
                {
                    "test": item.nodeid,
                    "seconds": round(time.perf_counter() - began, 4),
                    "good": self._good[item.nodeid],
                    "slow": item.get_closest_marker("slow") is not None,
                    "reached": b64encode(zlib.compress(self._everywhere(), 1)).decode(),
                }
            )
        if time.monotonic() > self._end:
            item.session.shouldstop = "time is up"
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Tell of a failure at once; note a test that has passed."""
        if report.failed:
            self._tell({"failed": report.nodeid, "when": report.when, "why": _last_line(report)})
        elif report.when == "call":
            self._good[report.nodeid] = report.passed

    def _everywhere(self) -> bytes:
        """What this process and those it started have reached."""
        assert self._reached is not None
        reached = bytes(builtins.mutants_reached)  # type: ignore[attr-defined]
        for path in list(self._reached.iterdir()):
            other = path.read_bytes()
            path.unlink()
            if len(other) == len(reached):
                together = int.from_bytes(reached, "little") | int.from_bytes(other, "little")
                reached = together.to_bytes(len(reached), "little")
        return reached


def _last_line(report: Any) -> str:
    return str(report.longrepr).strip().rpartition("\n")[2][:200]


@dataclass
class Run:
    """A process that runs waves of tests, one after the other, while someone listens.

    Args:
        place: where.
        substitutes: a folder of compiled modules, as ``hook/sitecustomize.py`` has it.
        waves: what to run.
        blocks: how many blocks there are to be reached; None where nobody asks.
        first_only: end at the first failure.
    """

    place: Place
    substitutes: Path
    waves: Sequence[Wave]
    blocks: int | None = None
    first_only: bool = True
    ended: str = field(default="", init=False)
    output: str = field(default="", init=False)

    def messages(self) -> Generator[Message, None, None]:
        """What the process tells, as it tells it; ``ended`` then says how it ended."""
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        listening, telling = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(listening)
            self._inside(folder, telling)
        os.close(telling)
        try:
            yield from self._heard(listening)
        finally:
            self._end(child)
            os.close(listening)
            with suppress(OSError):
                self.output = (folder / "output").read_text(errors="replace")[-2000:]
            shutil.rmtree(folder, ignore_errors=True)

    def _heard(self, listening: int) -> Iterator[Message]:
        rest, end = b"", time.monotonic() + 60
        while True:
            ready, _, _ = select([listening], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.ended = "timeout"
                return
            read = os.read(listening, 1 << 20)
            if not read:
                self.ended = self.ended or "crash"
                return
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "wave" in message:
                    end = time.monotonic() + self.waves[message["wave"]].seconds
                    yield message
                elif "done" in message:
                    self.ended = "done"
                else:
                    yield message

    def _end(self, child: int) -> None:
        """End the process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def _inside(self, folder: Path, telling: int) -> None:
        """In the new process: run the waves and end."""
        status = 1
        try:
            os.setsid()
            self._prepare(folder)
            tell = lambda message: _write(telling, message)
            for index, wave in enumerate(self.waves):
                tell({"wave": index})
                reached = folder / "reached" if self.blocks is not None else None
                failed = self._wave(wave, tell, reached)
                if failed and self.first_only:
                    break
            tell({"done": True})
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _wave(self, wave: Wave, tell: Callable[[Message], None], reached: Path | None) -> bool:
        told = []

        def listen(message: Message) -> None:
            tell(message)
            if "failed" in message:
                told.append(message)

        options = [*OPTIONS, *(["-x"] if self.first_only else [])]
        if "hypothesis" in sys.modules:
            options.append("--hypothesis-seed=0")
        code = int(pytest.main([*options, *wave.files], plugins=[Watch(wave, listen, reached)]))
        if code in (2, 3, 4) and not told:
            listen({"failed": "pytest", "when": "start", "why": f"pytest ended with {code}"})
        return bool(told)

    def _prepare(self, folder: Path) -> None:
        """The process's environment: its own folders, the hook, and a limit to memory."""
        out = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
        for number in (1, 2):
            os.dup2(out, number)
        for name in ("reached", "tmp"):
            (folder / name).mkdir()
        if self.place.kept.exists():
            shutil.copytree(self.place.kept, folder / "kept")
        tree, source = self.place.tree, self.place.tree / "src"
        os.environ.update(
            MUTANTS_FOLDER=str(self.substitutes),
            PYTHONPATH=os.pathsep.join([hook.HERE, str(source)]),
            PYTHONPYCACHEPREFIX=str(self.place.cache / "bytecode"),
            STOPGRAD_CACHE_DIR=str(self.place.kept if self.blocks is not None else folder / "kept"),
            HYPOTHESIS_STORAGE_DIRECTORY=str(folder / "hypothesis"),
            TMPDIR=str(folder / "tmp"),
        )
        tempfile.tempdir = None
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]
        if self.blocks is not None:
            os.environ.update(MUTANTS_REACHED=str(folder / "reached"), MUTANTS_BLOCKS=str(self.blocks))
        os.chdir(tree)
        # What the tests import is found in the checkout under test.
        own = Path(__file__).parents[1], Path(__file__).parents[2]
        sys.path[:] = [str(source), *(path for path in sys.path if Path(path or ".").resolve() not in own)]
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Whoever listens ends what takes too long; should it be gone, this ends by itself.
        most = 2 * int(sum(wave.seconds for wave in self.waves)) + 60
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        hook.install()


def _write(telling: int, message: Message) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(telling, data) :]
