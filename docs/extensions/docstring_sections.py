"""Docstrings as the reference shows them.

They are read in Python and in editors, too, and so use little markup: numbered constraints become lists here,
and ``|x|`` is no substitution.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

NUMBER = re.compile(r"^(\s*)(\(C\d+\))")
CODE = re.compile(r"(``.*?``|:\w+:`.*?`)")


def attribute_text(name: str, value: Any) -> str:
    """What stands below an assignment, for a value that has no docstring of its own."""
    for module_name, module in sorted(sys.modules.items()):
        if module_name.startswith("stopgrad") and vars(module).get(name) is value:
            analyzer = ModuleAnalyzer.for_module(module_name)
            analyzer.analyze()
            if ("", name) in analyzer.attr_docs:
                return " ".join(analyzer.attr_docs["", name]).strip()
    return ""


def listed(_app: Sphinx, _what: str, name: str, value: Any, _options: Any, lines: list[str]) -> None:
    """Make each constraint, ``(C1) ...``, an item of a list."""
    if type(value) in (dict, list, tuple, str, int, float):  # Their docstring is that of their class.
        lines[:] = [attribute_text(name.rpartition(".")[2], value)]
    told = []
    inside = shown = False
    for line in lines:
        shown = bool(line.strip()) and (shown or line.lstrip().startswith(">>> "))
        if not shown:
            parts = CODE.split(line)
            parts[::2] = [part.replace("|", r"\|").replace("[*", r"[\*") for part in parts[::2]]
            line = "".join(parts)
        number = NUMBER.match(line)
        if number:
            inside = True
            line = NUMBER.sub(r"\1- \2", line)
        elif inside and line.strip() and not line.endswith(":"):
            line = "  " + line
        elif line.endswith(":") and not line.startswith(" "):
            inside = False
        told.append(line)
    lines[:] = told


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", listed, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
