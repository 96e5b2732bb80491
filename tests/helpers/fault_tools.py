"""What the tests of faults share: a graph whose state shows whether it is whole, and ways to interrupt."""

from __future__ import annotations

import ctypes
import dis
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
import numpy as np

import stopgrad as sg

HOME = Path(sg.__file__).parent


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, where pytest would take that one for itself."""


class Counting:
    """Parameters of several shapes whose elements all count the steps: equal numbers are a whole state."""

    def __init__(self, size: int = 500) -> None:
        self.graph = sg.Graph()
        with self.graph.as_default():
            shapes: list[tuple[int, ...]] = [(size,), (3, size), (), (size,)]
            self.parameters = [sg.parameter(np.zeros(shape), name=f"p{i}") for i, shape in enumerate(shapes)]
            self.by = sg.placeholder(sg.float64, [], name="by")
            self.x = sg.placeholder(sg.float64, ["n"], name="x")
            self.steps = [sg.assign(p, p + self.by) for p in self.parameters]
            self.total = sg.reduce_sum(self.x) + sg.reduce_max(self.parameters[0])

    def step(self, session: sg.Session) -> Any:
        """One more step, whose results are those of that step."""
        return session.run([self.steps, self.total], {self.by: 1.0, self.x: np.ones(4)})

    def count(self, session: sg.Session) -> float:
        """How many steps were made. All parameters say the same."""
        return whole([session.value(p) for p in self.parameters])

    def saved(self, path: Path) -> float:
        """How many steps had been made when a file was saved."""
        with sg.Session(self.graph, engine="numpy") as session:
            session.restore(path)
            return self.count(session)


def whole(values: list[Any]) -> float:
    """The one number that all elements of a set of values are."""
    found = {float(x) for value in values for x in (np.min(value), np.max(value))}
    assert len(found) == 1, f"the state is torn: {found}"
    return found.pop()


def settings() -> dict[str, Any]:
    """What belongs to the process or thread, and is to stay as it is."""
    return {"numpy": np.geterr(), "gc": gc.isenabled()} | {
        name: getattr(jax.config, name)
        for name in (
            "jax_enable_x64",
            "jax_disable_jit",
            "jax_debug_nans",
            "jax_debug_infs",
            "jax_numpy_rank_promotion",
            "jax_numpy_dtype_promotion",
            "jax_default_matmul_precision",
        )
    }


def raise_in(thread: threading.Thread) -> None:
    """Raise :class:`Interrupt` in another thread, wherever it is."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupt))


# Where CPython looks for signals and exceptions from other threads: at the start of a function, after a call,
# and when a loop begins anew.
_INTERRUPTIBLE = {"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "CALL_KW", "CALL_INTRINSIC_1"}


def _places(code: CodeType) -> dict[int, tuple[str, int | None]]:
    """The instructions of some code, by their offsets: names, and where their exceptions are handled."""
    read = dis.Bytecode(code)
    handlers = read.exception_entries
    return {
        i.offset: (i.opname, next((h.target for h in handlers if h.start <= i.offset < h.end), None))
        for i in read
    }


def _alike(places: dict[int, tuple[str, int | None]], before: int, frame: FrameType) -> bool:
    """Whether what is raised now is handled as if the instruction before had raised it, as CPython does."""
    return places[before][1] == places[frame.f_lasti][1]


class Injection:
    """Raises an exception at one of the places where an interrupt can come, in the files named.

    Args:
        files: parts of the paths of the modules, below the package; or whole paths.
        at: which of the places met, from 0; None for nowhere, to count them.
        error: what is raised.
    """

    def __init__(
        self, files: tuple[str, ...], at: int | None = None, error: type[BaseException] = Interrupt
    ) -> None:
        self._files = tuple(str(HOME / file) for file in files)
        self._at = at
        self._error = error
        self.met = 0
        self.place = ""
        self._last: dict[FrameType, int] = {}
        self._places: dict[CodeType, dict[int, tuple[str, int | None]]] = {}

    def _global(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._files):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._local

    def _local(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event != "opcode":
            return self._local
        code = frame.f_code
        places = self._places.get(code) or self._places.setdefault(code, _places(code))
        before, self._last[frame] = self._last.get(frame), frame.f_lasti
        if before is not None and places[before][0] in _INTERRUPTIBLE and _alike(places, before, frame):
            self.met += 1
            if self._raises():
                where = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
                self.place = f"{where}, after {places[before][0]}"
                sys.settrace(None)
                raise self._error
        return self._local

    def _raises(self) -> bool:
        """Whether the place that was just met is the one."""
        return self._at is not None and self.met > self._at

    def __call__(self, function: Callable[[], Any]) -> bool:
        """Call a function; whether it was interrupted."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = (
            True  # Python 3.12 looks whether any frame wants them when tracing begins.
        )
        sys.settrace(self._global)
        try:
            function()
        except BaseException:
            if not self.place:
                raise
            return True
        finally:
            sys.settrace(before)
            self._last.clear()
        return False


class Sampling(Injection):
    """Calls a function once, and at one place in so many lets a fork of the process meet the exception.

    For what takes long, has thousands of places, and survives a fork. A fork ends with what *check* says.

    Args:
        files: as of :class:`Injection`.
        every: one place in so many.
        check: is called in each fork, after the exception has gone through; an error that it raises is kept.
        passed_over: whether a place is left out, since the fork would disturb what its parent is doing.

    Attributes:
        tried: the number of forks.
        left_out: the numbers of the places that were passed over.
        broken: what was wrong in forks.
    """

    def __init__(
        self,
        files: tuple[str, ...],
        every: int,
        check: Callable[[], object],
        passed_over: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(files)
        self._every, self._check, self._passed_over = every, check, passed_over
        self._telling: int | None = None
        self.tried = 0
        self.left_out: list[int] = []
        self.broken: list[str] = []

    def _raises(self) -> bool:
        at = self.met - 1
        if at % self._every:
            return False
        if self._passed_over():
            self.left_out.append(at)
            return False
        self._error = (Interrupt, MemoryError)[self.tried % 2]
        self.tried += 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # What waits for ever ends by a signal.
            self._telling = writing
            return True
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode()
        status = os.waitpid(child, 0)[1]
        if said or status:
            self.broken.append(f"place {at}, status {status}: {said}")
        return False

    def __call__(self, function: Callable[[], Any]) -> bool:
        """Call a function; in forks, check what it left and end."""
        try:
            interrupted = super().__call__(function)
            if self._telling is not None:
                self._check()
        except BaseException:
            if self._telling is None:
                raise
            os.write(self._telling, f"{self.place}: {traceback.format_exc()[-3000:]}".encode())
        if self._telling is not None:
            os._exit(0)
        return interrupted
