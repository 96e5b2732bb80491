"""Selects names of tensors by patterns."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.words import some

SHOWN = 6
"""The most names that an error about a pattern shows."""


def matching(what: str, patterns: str | Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that match any of the patterns, and those below matches, in their order.

    Args:
        what: the name of the caller, for errors.
        patterns: patterns such as ``"encoder.*"``, or ``"encoder"``, which stands for all below it.
        names: the existing names.

    Raises:
        ArgumentError: one matches nothing.

    Examples:
        >>> matching("only", ["*.w", "head"], ["body.w", "body.b", "head.w", "head.b"])
        ['body.w', 'head.w', 'head.b']
    """
    known = list(names)
    found: dict[str, None] = {}
    several = isinstance(patterns, Iterable) and not isinstance(patterns, str)
    for pattern in patterns if several else [patterns]:
        if not isinstance(pattern, str):
            raise ArgumentError(
                f"{what}: a pattern of names is text, such as 'encoder.*', not {pattern!r:.60}"
            )
        hits = [name for name in known if _matches(name, pattern)]
        if not hits:
            near = difflib.get_close_matches(pattern, known, 3) or known
            raise ArgumentError(
                f"{what}: nothing is called {pattern!r}; "
                + (f"there are {some(near, SHOWN)}" if known else "nothing is asked about")
            )
        found |= dict.fromkeys(hits)
    return [name for name in known if name in found]


def _matches(name: str, pattern: str) -> bool:
    # Paths of arguments are separated by dots, scopes of a graph by slashes.
    return any(fnmatch.fnmatchcase(name, f"{pattern}{below}") for below in ("", ".*", "/*"))
