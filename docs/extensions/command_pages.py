"""Writes the page of all commands and their options, from the parsers of the commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

from stopgrad.tools import cli

BEGINNING = """Commands and options
====================

What ``stopgrad COMMAND --help`` says of each command.
:doc:`The page on the command line </command-line>` shows them at work.
"""


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command, with its options."""
    whole = cli._parser(command)
    (choices,) = [one.choices for one in whole._actions if isinstance(one, argparse._SubParsersAction)]
    return choices[command]


def told(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A section on a command."""
    yield f"{parser.prog}\n{'-' * len(parser.prog)}\n"
    yield f".. program:: {parser.prog}\n"
    yield f"{parser.description or ''}\n"
    usage = parser.format_usage().removeprefix("usage: ")
    yield ".. code-block:: text\n\n" + "".join(f"   {line}\n" for line in usage.splitlines())
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        shown = parser._get_formatter()._format_action_invocation(action)
        kind = "option" if action.option_strings else "describe"
        yield f".. {kind}:: {shown}\n\n   {action.help or ''}\n".replace("|", r"\|").replace("*", r"\*")


def write(app: Sphinx) -> None:
    os.environ["COLUMNS"] = "84"
    page = Path(app.srcdir) / "api" / "commands.rst"
    text = "\n".join([BEGINNING, *(line for command in cli.COMMANDS for line in told(parser_of(command)))])
    page.parent.mkdir(exist_ok=True)
    if not page.exists() or page.read_text() != text:
        page.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write, priority=200)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
