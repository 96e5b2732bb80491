"""Cells of IPython, which a stand-in for its shell names."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from stopgrad.base.notebooks import cell_of
from stopgrad.base.source import Location


class Shell:
    """What is used of IPython's shell."""

    def __init__(self) -> None:
        self.compile = self

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", "In[7]") if name == "/tmp/ipykernel_1/2.py" else None


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell()
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: made
    monkeypatch.setitem(sys.modules, "IPython", module)
    return made


@pytest.mark.usefixtures("shell")
def test_places_in_a_notebook_are_cells_and_lines() -> None:
    assert repr(Location("/tmp/ipykernel_1/2.py", 3)) == "cell 7, line 3"
    assert repr(Location("/tmp/ipykernel_1/3.py", 3)) == "/tmp/ipykernel_1/3.py:3"
    assert cell_of("/tmp/program.py") == ""


def test_outside_of_ipython_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert repr(Location("/tmp/ipykernel_1/2.py", 3)) == "/tmp/ipykernel_1/2.py:3"
