"""Cells and tracebacks of IPython, which a stand-in for its shell shows."""

from __future__ import annotations

import os
import sys
import traceback
import types
from typing import Any

import pytest

import stopgrad as sg
from stopgrad.base.notebooks import VARIABLE, cell_of, without
from stopgrad.base.source import Location


class Shell:
    """What is used of IPython's shell."""

    def __init__(self) -> None:
        self.compile = self
        self.custom_exceptions: tuple[type, ...] = ()
        self.handler: Any = None
        self.shown: list[tuple[Any, Any, Any]] = []

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", "In[7]") if name == "/tmp/ipykernel_1/2.py" else None

    def set_custom_exc(self, kinds: tuple[type, ...], handler: Any) -> None:
        self.custom_exceptions, self.handler = kinds, handler

    def showtraceback(self, found: tuple[Any, Any, Any], tb_offset: int | None = None) -> None:
        self.shown.append(found)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell()
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: made
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.delenv(VARIABLE, raising=False)
    return made


def files(tb: Any) -> list[str]:
    return [os.path.basename(frame.filename) for frame in traceback.extract_tb(tb)]


def failed() -> BaseException:
    try:
        sg.grad(lambda x: sg.matmul(x, x))(1.0)
    except sg.StopgradError as error:
        return error
    raise AssertionError("no error")


@pytest.mark.usefixtures("shell")
def test_places_in_a_notebook_are_cells_and_lines() -> None:
    assert repr(Location("/tmp/ipykernel_1/2.py", 3)) == "cell 7, line 3"
    assert repr(Location("/tmp/ipykernel_1/3.py", 3)) == "/tmp/ipykernel_1/3.py:3"
    assert cell_of("/tmp/program.py") == ""


def test_outside_of_ipython_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert repr(Location("/tmp/ipykernel_1/2.py", 3)) == "/tmp/ipykernel_1/2.py:3"


def test_ipython_shows_our_errors_with_the_frames_of_the_user_alone(shell: Shell) -> None:
    error = failed()
    assert shell.custom_exceptions == (sg.StopgradError,)
    assert "public.py" in files(error.__traceback__)
    shell.handler(shell, type(error), error, error.__traceback__)
    ((_, value, tb),) = shell.shown
    assert value is error
    assert files(tb) == ["test_notebooks.py"] * 2
    assert tb.tb_lineno == error.__traceback__.tb_lineno  # type: ignore[union-attr]


def test_the_environment_brings_all_frames_back(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    error = failed()
    monkeypatch.setenv(VARIABLE, "full")
    shell.handler(shell, type(error), error, error.__traceback__)
    assert shell.shown == [(type(error), error, error.__traceback__)]


def test_a_handler_of_the_user_stays(shell: Shell) -> None:
    shell.set_custom_exc((ValueError,), print)
    failed()
    assert shell.handler is print


def test_frames_of_other_files_stay_in_their_order() -> None:
    error = failed()
    assert files(without(error.__traceback__, lambda file: False)) == files(error.__traceback__)
    assert without(error.__traceback__, lambda file: True) is None
