"""What a report says of lines of source, for machines that show it beside them.

GitHub reads annotations from a job's output; editors and code scanning read SARIF.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from stopgrad.base.printable import printable
from stopgrad.base.source import Location
from stopgrad.flow.source_lines import character_columns, relative_file


class Notice(NamedTuple):
    """A message about a line of the user's source.

    Attributes:
        level: ``"error"``, ``"warning"`` or ``"note"``.
        rule: what kind of finding it is, in a word or two, such as ``"stopped"``.
        message: the finding, in a sentence.
        location: the line; None if it has none.
    """

    level: str
    rule: str
    message: str
    location: Location | None = None


def at_lines(level: str, rule: str, message: str, locations: Iterable[Location | None]) -> Iterator[Notice]:
    """One notice for each of the user's own lines among the places; if there is none, one without a line."""
    own = [at.own for at in locations if at is not None]
    lines = {(at.file, at.line): at for at in own}
    for at in lines.values() or (None,):
        yield Notice(level, rule, message, at)


# ------------------------------------------------------------------------------------------- GitHub

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def github(notices: Iterable[Notice]) -> str:
    """Workflow commands of GitHub's, one line for each notice, that annotate the changed files of a request.

    References:
        GitHub, "Workflow commands for GitHub Actions", section on messages.

    Examples:
        >>> print(github([Notice("warning", "stopped", "no gradient: w", Location("/ci/net.py", 3))]))
        ::warning file=/ci/net.py,line=3,title=stopgrad%3A stopped::no gradient: w
    """
    return "\n".join(_command(notice) for notice in notices)


def _command(notice: Notice) -> str:
    properties: dict[str, object] = {}
    if notice.location is not None:
        properties |= {"file": relative_file(notice.location.file), "line": notice.location.line}
        properties |= {"endLine": notice.location.end_line} if notice.location.end_line else {}
    properties["title"] = f"stopgrad: {notice.rule}"
    options = ",".join(f"{name}={_escaped(str(value), property=True)}" for name, value in properties.items())
    return f"::{_COMMANDS[notice.level]} {options}::{_escaped(notice.message)}"


def _escaped(text: str, property: bool = False) -> str:
    text = printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text


# -------------------------------------------------------------------------------------------- SARIF


def sarif(notices: Iterable[Notice]) -> str:
    """The notices as a log of static analysis.

    Files below the working directory are named relative to it.

    References:
        OASIS 2020, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
    """
    every = list(notices)
    rules = [{"id": _identifier(rule)} for rule in dict.fromkeys(notice.rule for notice in every)]
    run = {
        "tool": {"driver": {"name": "stopgrad", "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(notice) for notice in every],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _identifier(rule: str) -> str:
    return printable(rule).replace(" ", "-")


def _result(notice: Notice) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": _identifier(notice.rule),
        "level": notice.level,
        "message": {"text": printable(notice.message)},
    }
    if notice.location is not None:
        artifact = {"uri": _uri(notice.location.file)}
        region = _region(notice.location)
        result["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]
    return result


def _uri(file: str) -> str:
    shown = Path(relative_file(file))
    try:
        return shown.as_uri() if shown.is_absolute() else quote(os.fsencode(shown.as_posix()))
    except UnicodeEncodeError:  # A name that no file can have, from a graph's file.
        return quote(printable(shown.as_posix()))


def _region(location: Location) -> dict[str, int]:
    """Lines and columns count from 1, and the end column is the one after the last."""
    region = {"startLine": location.line}
    columns = character_columns(location)
    if columns is not None:
        region["startColumn"] = columns[0] + 1
        region["endLine"] = location.end_line or location.line
        region["endColumn"] = columns[1] + 1
    return region
