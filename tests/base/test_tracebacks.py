"""What a terminal and IPython, for whose shell there is a stand-in, show of errors."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from mistaken import MISTAKES, Mistake

import stopgrad as sg
from stopgrad.base import tracebacks
from stopgrad.base.tracebacks import LINES, VARIABLE, in_ipython, in_terminal, take_over

FOREIGN = ("an ONNX model with an unknown operator", "wrong shapes in a PyTorch model")


@pytest.fixture(autouse=True)
def not_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def raised(call: Callable[[], Any], file: str = __file__) -> BaseException:
    """An error, with the traceback that Python would show: from the first frame of a file on."""
    try:
        call()
    except Exception as error:
        tb = error.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename != file:
            tb = tb.tb_next
        return error.with_traceback(tb)
    raise AssertionError("no error")


def in_a_terminal(error: BaseException, capsys: Any) -> list[str]:
    in_terminal(type(error), error, error.__traceback__)
    return list(capsys.readouterr().err.splitlines())


def files(tb: TracebackType | None) -> list[str]:
    return [os.path.basename(frame.filename) for frame in traceback.extract_tb(tb)]


# ------------------------------------------------------------------------------------- ordinary mistakes


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, id=name, marks=[pytest.mark.slow] if name in FOREIGN else [])
        for name, mistake in MISTAKES.items()
    ],
)
def test_a_terminal_shows_the_users_line_and_the_cure_in_few_lines(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(mistake.source)
    lines = in_a_terminal(raised(lambda: runpy.run_path(str(program)), str(program)), capsys)
    assert any(mistake.line in line for line in lines)
    assert any(mistake.cure in line for line in lines)
    assert not any("src/stopgrad" in line or "site-packages" in line for line in lines)
    assert len(lines) <= LINES


@pytest.mark.slow
@pytest.mark.parametrize(("full", "shown"), [("", False), ("full", True)])
def test_python_shows_it_so_unless_the_environment_wants_all_frames(
    tmp_path: Path, full: str, shown: bool
) -> None:
    program = tmp_path / "program.py"
    program.write_text(MISTAKES["the gradient of an integer"].source)
    ran = subprocess.run(
        [sys.executable, program], env={**os.environ, VARIABLE: full}, capture_output=True, text=True
    )
    assert "pass a float" in ran.stderr
    assert ("transforms.py" in ran.stderr) is shown


# ------------------------------------------------------------------------------------------- which frames


def deep(times: int, value: Any) -> Any:
    return sg.reduce_sum(value) if not times else deep(times - 1, value)


def test_of_many_calls_the_outermost_and_the_innermost_are_shown(capsys: Any) -> None:
    error = raised(lambda: deep(30, "a"))
    lines = in_a_terminal(error, capsys)
    # From 3.13 on, Python marks another call with a line of carets, and one call fewer fits.
    length, left_out, innermost = (LINES, 29, 3) if sys.version_info < (3, 13) else (LINES - 2, 30, 2)
    assert len(lines) == length
    assert "call()" in lines[2]
    assert lines[-1].startswith(f"{left_out} calls in between left out; STOPGRAD_TRACEBACK=full")
    assert sum("return sg.reduce_sum" in line for line in lines) == innermost
    assert len(files(error.__traceback__)) > 32  # A debugger still finds all of them.


def test_defects_and_errors_of_others_are_shown_whole(capsys: Any) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def defect() -> None:
        sg.graph.public.call(interrupted)

    for error in (sg.errors.InternalError("broken"), ValueError("of nobody")):
        assert "test_tracebacks.py" in in_a_terminal(raised(lambda e=error: _raise(e)), capsys)[1]
    try:
        defect()
    except KeyboardInterrupt as error:
        in_terminal(KeyboardInterrupt, error, error.__traceback__)
    assert "public.py" in capsys.readouterr().err


def _raise(error: BaseException) -> None:
    raise error


def test_a_users_error_in_a_call_of_ours_is_shown_without_ours(capsys: Any) -> None:
    def loss(x: Any) -> Any:
        raise OSError("of the user")

    lines = in_a_terminal(raised(lambda: sg.grad(loss)(1.0)), capsys)
    assert lines[-1] == "OSError: of the user"
    assert not any("public.py" in line for line in lines)
    with pytest.raises(AttributeError) as caught:  # Ours, and raised in our own code: it may be a defect.
        tracebacks.missing  # type: ignore[attr-defined]  # noqa: B018
    assert not tracebacks.is_shortened(caught.value, caught.value.__traceback__)


def test_what_led_to_an_error_within_our_code_is_left_out_and_kept(capsys: Any, tmp_path: Path) -> None:
    error = raised(lambda: sg.load(tmp_path / "missing.npz"))
    cause = error.__cause__
    lines = in_a_terminal(error, capsys)
    assert not any("direct cause" in line for line in lines)
    assert error.__cause__ is cause is not None

    def wrapped() -> None:
        try:
            deep(0, "a")
        except sg.StopgradError as found:
            raise ValueError("mine") from found

    error = raised(wrapped)
    assert not tracebacks.is_shortened(error, error.__traceback__)


# ------------------------------------------------------------------------------------------- taking over


def test_a_handler_of_the_users_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", print)
    take_over()
    assert sys.excepthook is print
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    take_over()
    assert sys.excepthook is in_terminal


class Shell:
    """What is used of IPython's shell."""

    def __init__(self) -> None:
        self.custom_exceptions: tuple[type, ...] = ()
        self.shown: list[list[str]] = []
        self.mode, self.tb_offset, self.InteractiveTB = "Context", 1, self

    def set_custom_exc(self, kinds: tuple[type, ...], handler: Any) -> None:
        self.custom_exceptions, self.handler = kinds, handler

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def structured_traceback(
        self, kind: Any, error: Any, tb: Any, tb_offset: int | None = None, context: int = 5
    ) -> list[str]:
        shown = traceback.extract_tb(tb)[1 if tb_offset is None else tb_offset :]
        return [line for frame in shown for line in [frame.name] * (context or 2)] + [str(error)]

    def stb2text(self, lines: list[str]) -> str:
        return "\n".join(lines)

    def showtraceback(self, found: tuple[Any, Any, Any], tb_offset: int | None = None) -> None:
        error = found[1]
        known = getattr(error, "_render_traceback_", lambda: self.structured_traceback(*found, tb_offset))
        self.shown.append("\n".join(known()).splitlines())


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell()
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: made
    monkeypatch.setitem(sys.modules, "IPython", module)
    return made


def test_ipython_shows_the_users_frames_with_as_much_around_them_as_fits(shell: Shell) -> None:
    for error in (raised(lambda: deep(0, "a")), raised(lambda: sg.grad(lambda x: {}[x])(1.0))):
        in_ipython(shell, type(error), error, error.__traceback__)  # type: ignore[arg-type]
    names = [[name for name in lines[:-3] if name != "<lambda>"] for lines in shell.shown]
    assert shell.shown[0].count("deep") == 3  # Of 5, 3 and 2 lines: three frames of five are one too many.
    assert names[1] == ["raised"] * len(names[1])
    assert all(len(lines) <= LINES for lines in shell.shown)
    assert shell.mode == "Context"
    assert shell.custom_exceptions == (Exception,)


def test_ipython_leaves_calls_out_where_they_do_not_fit(shell: Shell) -> None:
    error = raised(lambda: deep(30, "a"))
    in_ipython(shell, type(error), error, error.__traceback__)  # type: ignore[arg-type]
    (lines,) = shell.shown
    assert len(lines) == LINES
    assert lines[0] == "raised"
    assert "left out" in lines[-1]


def test_the_environment_brings_all_frames_back_in_ipython(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "full")
    error = raised(lambda: deep(0, "a"))
    in_ipython(shell, type(error), error, error.__traceback__)  # type: ignore[arg-type]
    assert "public" in shell.shown[0]


def test_a_handler_of_ipythons_user_stays(shell: Shell) -> None:
    shell.set_custom_exc((ValueError,), print)
    raised(lambda: deep(0, "a"))
    assert shell.handler is print
