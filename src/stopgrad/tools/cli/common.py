"""Helpers of all commands: exit statuses, writing files, printing errors."""

from __future__ import annotations

import argparse
import contextlib
import re
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from stopgrad.base.errors import ArgumentError, StopgradError
from stopgrad.base.source import is_internal
from stopgrad.flow.source_lines import shown_file
from stopgrad.graph.files import AnyPath, replacing
from stopgrad.tools.cli.statuses import (
    ERROR as ERROR,
    FAILED as FAILED,
    INTERRUPTED as INTERRUPTED,
    LEFT as LEFT,
    OK as OK,
)

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The object to which a command adds its parser."""

# --------------------------------------------------------------------------------------------- files


def write_text(path: AnyPath, text: str) -> None:
    """Write a file; an old one is kept until the new one is complete."""
    with replacing(path) as file, open(file, "w", encoding="utf-8", closefd=False) as stream:
        stream.write(text)


class _UnwrittenError(Exception):
    """Leaves :func:`replacing` without writing a file."""


def require_writable(path: AnyPath) -> None:
    """Raise unless a file can be written there; called before the work whose result it is to hold.

    Raises:
        FileError: the folder is missing or read-only, or the path is that of a folder.
    """
    with contextlib.suppress(_UnwrittenError), replacing(path):
        raise _UnwrittenError


# -------------------------------------------------------------------------------------------- errors


def told(error: BaseException) -> str | None:
    """The text to print for an error: one line, after a traceback if the user's own code raised it.

    None for an error that neither the user's files nor the system raised: a defect of the command.
    """
    frames = users_frames(error)
    place = f"{shown_file(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    if isinstance(error, StopgradError):
        return f"stopgrad: {'' if place and place[:-2] in error.message else place}{error.message}"
    if isinstance(error, SyntaxError):
        place = f"{shown_file(error.filename or '')}:{error.lineno}: "
        return f"{_traceback(error)}stopgrad: {place}this is no Python: {error.msg}"
    if frames:
        name = type(error).__name__
        cure = _cure(error)
        return f"{_traceback(error)}stopgrad: {place}{name}{f': {error}' if str(error) else ''}{cure}"
    return f"stopgrad: {error}" if isinstance(error, OSError) else None


_EXTRAS = {"torch": "torch", "jax": "jax", "jaxlib": "jax"}
"""Packages that users' files may need, and our extra that installs each."""


def _cure(error: BaseException) -> str:
    """What to install, if a missing package caused the error."""
    extra = (
        _EXTRAS.get((error.name or "").partition(".")[0]) if isinstance(error, ModuleNotFoundError) else None
    )
    return f"; pip install 'stopgrad[{extra}]'" if extra else ""


def users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an error that are the user's code, or code that it imported."""
    return _users(traceback.extract_tb(error.__traceback__))


def _users(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in frames
        if not (is_internal(frame.filename) or frame.filename.startswith("<frozen "))
    ]


def _traceback(error: BaseException) -> str:
    """The traceback as Python prints it, with causes, but without frames of this package."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        part.stack = traceback.StackSummary.from_list(_users(part.stack))
        part = part.__cause__ or (None if part.__suppress_context__ else part.__context__)
    return "".join(shown.format() if shown.stack else shown.format_exception_only())


# ----------------------------------------------------------------------------------------- arguments


def listed(text: str, choices: Sequence[str], option: str) -> list[str]:
    """The words of an option that takes several separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = next((word for word in words if word not in choices), None)
    if wrong is not None or not words:
        raise ArgumentError(f"{option}: {wrong or text!r} is none of {', '.join(choices)}")
    return words


# --------------------------------------------------------------------------------------------- text


def wrapped(text: str, width: int) -> str:
    """Text wrapped between words, where a bracketed part counts as one word.

    Examples:
        >>> print(wrapped("x float32[2, 3], y float32[2, 3]", 20))
        x float32[2, 3], y
          float32[2, 3]
    """
    joined = re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(" ", _JOINED), text)
    lines = textwrap.wrap(
        joined, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(_JOINED, " ")


_JOINED = "\N{NO-BREAK SPACE}"
