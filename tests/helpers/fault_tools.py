"""What the tests of faults share: a graph whose state shows whether it is whole, and ways to interrupt."""

from __future__ import annotations

import ctypes
import dis
import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
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


class Injection:
    """Raises :class:`Interrupt` at one of the places where an interrupt can come, in the files named.

    Args:
        files: parts of the paths of the modules, below the package.
        at: which of the places met, from 0; None for nowhere, to count them.
    """

    def __init__(self, files: tuple[str, ...], at: int | None = None) -> None:
        self._files = tuple(str(HOME / file) for file in files)
        self._at = at
        self.met = 0
        self.place = ""
        self._last: dict[FrameType, str] = {}
        self._names: dict[Any, dict[int, str]] = {}

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
        names = self._names.get(code)
        if names is None:
            names = self._names[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
        before, self._last[frame] = self._last.get(frame, ""), names.get(frame.f_lasti, "")
        if before in _INTERRUPTIBLE:
            self.met += 1
            if self._at is not None and self.met > self._at:
                self.place = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}, after {before}"
                sys.settrace(None)
                raise Interrupt
        return self._local

    def __call__(self, function: Callable[[], Any]) -> bool:
        """Call a function; whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._global)
        try:
            function()
        except Interrupt:
            return True
        finally:
            sys.settrace(before)
            self._last.clear()
        return False
