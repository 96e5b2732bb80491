"""What terminals and notebooks show of an error: the user's lines and the cure, in few lines."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import Any

from stopgrad.base.notebooks import shell
from stopgrad.base.source import OURS, OWN, is_internal, kind_of

VARIABLE = "STOPGRAD_TRACEBACK"
"""The environment variable that, as ``full``, leaves all frames in the tracebacks."""
FULL = "full"

LINES = 15
"""The most lines of a traceback, unless its message alone is longer: as many as are read at a glance."""
CONTEXTS = (5, 3)
"""The lines of source at each frame that IPython shows: the first of these that leaves few lines in all."""


def take_over() -> None:
    """Let Python, and IPython where it runs, leave our frames out of the errors that they show.

    Nothing changes where somebody has installed a handler of their own.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = in_terminal
    running = shell()
    if running is not None and not running.custom_exceptions:
        running.set_custom_exc((Exception,), in_ipython)


# ---------------------------------------------------------------------------------------- which errors


def is_shortened(error: BaseException, tb: TracebackType | None) -> bool:
    """Whether our frames say nothing to the reader of an error, because it is about the user's program.

    It is if it is one of ours, and no defect, or if it arose in code of the user's that ours had called.
    """
    if os.environ.get(VARIABLE) == FULL or not isinstance(error, Exception):
        return False
    defect = getattr(error, "defect", None)
    return _arose_in_a_call(tb) if defect is None else not defect


CALLING: set[CodeType] = set()
"""Code of ours that does nothing but call functions of the user's."""


def _arose_in_a_call(tb: TracebackType | None) -> bool:
    if any(step.tb_frame.f_code in CALLING for step in _steps(tb)):
        return True
    kinds = [kind_of(step.tb_frame.f_code.co_filename) for step in _steps(tb)]
    return OURS in kinds and OWN in kinds[kinds.index(OURS) :]


def _steps(tb: TracebackType | None) -> list[TracebackType]:
    steps = []
    while tb is not None:
        steps.append(tb)
        tb = tb.tb_next
    return steps


def _joined(steps: Sequence[TracebackType]) -> TracebackType | None:
    joined = None
    for step in reversed(steps):
        joined = TracebackType(joined, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return joined


def _without_ours(tb: TracebackType | None) -> list[TracebackType]:
    return [step for step in _steps(tb) if not is_internal(step.tb_frame.f_code.co_filename)]


@contextlib.contextmanager
def _chain_without_ours(error: BaseException) -> Iterator[None]:
    """While an error is shown, those that led to it lack our frames, or are absent if they have no others."""
    before: list[tuple[BaseException, tuple[TracebackType | None, BaseException | None, bool]]] = []
    link: BaseException | None = error
    while link is not None and all(link is not earlier for earlier, _ in before):
        before.append((link, (link.__traceback__, link.__cause__, link.__suppress_context__)))
        led = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if led is not None and led.__traceback__ is not None and not _without_ours(led.__traceback__):
            led = link.__cause__ = None  # This hides the context, too. Its message is in that of the error.
        link.__traceback__ = _joined(_without_ours(link.__traceback__))
        link = led
    try:
        yield
    finally:
        for link, (tb, cause, suppressed) in before:
            link.__traceback__, link.__cause__, link.__suppress_context__ = tb, cause, suppressed


# ------------------------------------------------------------------------------------------ in few lines


def _fitting(
    steps: Sequence[TracebackType], lines: Callable[[TracebackType | None], int]
) -> list[TracebackType]:
    """The outermost step and the innermost ones, as many of these as are shown in few lines."""
    if len(steps) <= LINES and lines(_joined(steps)) <= LINES:
        return list(steps)
    shown = [steps[0], *steps[1:][-LINES // 2 :]] if steps else []  # Each takes two lines at least.
    while len(shown) > 2 and lines(_joined(shown)) >= LINES:  # A line says that some are left out.
        del shown[1]
    return shown


def _left_out(count: int) -> str:
    calls = "1 call" if count == 1 else f"{count} calls"
    return f"{calls} in between left out; {VARIABLE}={FULL} in the environment shows all"


def in_terminal(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    """Show an uncaught error, as ``sys.excepthook``."""
    if not is_shortened(error, tb):
        sys.__excepthook__(kind, error, tb)
        return
    with _chain_without_ours(error):
        steps = _without_ours(tb)
        shown = _fitting(steps, lambda some: _length(traceback.format_exception(kind, error, some)))
        error.__traceback__ = _joined(shown)
        sys.__excepthook__(kind, error, error.__traceback__)
    if len(shown) < len(steps) and sys.stderr is not None:
        print(_left_out(len(steps) - len(shown)), file=sys.stderr)


def in_ipython(
    self: Any,
    kind: type[BaseException],
    error: BaseException,
    tb: TracebackType,
    tb_offset: int | None = None,
) -> object:
    """Show an error of a cell, as a handler of IPython's shell."""
    if hasattr(error, RENDER) or not is_shortened(error, tb):
        return self.showtraceback((kind, error, tb), tb_offset=tb_offset)
    shown = rendered(error, tb)
    setattr(error, RENDER, lambda: shown)
    try:
        return self.showtraceback((kind, error, tb), tb_offset=tb_offset)
    finally:
        delattr(error, RENDER)


RENDER = "_render_traceback_"
"""The method by which an error tells IPython how it is shown. The debugger of IPython gets all frames."""


def rendered(error: BaseException, tb: TracebackType | None) -> list[str]:
    """What IPython shows of an error: in its own form if that takes few lines, else in that of Python."""
    running = shell()
    if running is None:
        return traceback.format_exception(type(error), error, tb)
    formatter = running.InteractiveTB
    if not is_shortened(error, tb):
        structured: list[str] = formatter.structured_traceback(type(error), error, tb)
        return structured

    def text(some: TracebackType | None, context: int) -> str:
        mode = formatter.mode
        if not context:
            formatter.set_mode("Plain")
        try:
            lines = formatter.structured_traceback(type(error), error, some, tb_offset=0, context=context)
            whole: str = formatter.stb2text(lines)
        finally:
            formatter.set_mode(mode)
        return whole

    with _chain_without_ours(error):
        steps = shown_steps = _from_users(_without_ours(tb))
        shown = next((one for n in CONTEXTS if _length([one := text(_joined(steps), n)]) <= LINES), "")
        if not shown:
            shown_steps = _fitting(steps, lambda some: _length([text(some, 0)]))
            shown = text(_joined(shown_steps), 0)
    count = len(steps) - len(shown_steps)
    return [shown.rstrip("\n"), _left_out(count)] if count else [shown]


def _from_users(steps: Sequence[TracebackType]) -> list[TracebackType]:
    """Without what IPython runs cells by."""
    kinds = [kind_of(step.tb_frame.f_code.co_filename) for step in steps]
    return list(steps[kinds.index(OWN) :]) if OWN in kinds else list(steps)


def _length(texts: Sequence[str]) -> int:
    return sum(text.count("\n") + (not text.endswith("\n")) for text in texts)
