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
    existing = list(names)
    matched: dict[str, None] = {}
    several = isinstance(patterns, Iterable) and not isinstance(patterns, str)
    for pattern in patterns if several else [patterns]:
        if not isinstance(pattern, str):
            raise ArgumentError(
                f"{what}: a pattern of names is text, such as 'encoder.*', not {pattern!r:.60}"
            )
        hits = called(pattern, existing)
        if not hits:
            near = difflib.get_close_matches(pattern, existing, 3) or existing
            raise ArgumentError(
                f"{what}: nothing is called {pattern!r}; "
                + (f"there are {some(near, SHOWN)}" if existing else "nothing is asked about")
            )
        matched |= dict.fromkeys(hits)
    return [name for name in existing if name in matched]


def called(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that one pattern stands for: itself, all below it, or what it matches; none if nothing does.

    A name is taken as it is written if there is one, with whatever signs it holds; then ``*`` and ``?`` stand
    for any; then a bracket for a set of signs.

    Examples:
        >>> called("params.target", ["params.target/~/linear_0.w", "params.targets.w"])
        ['params.target/~/linear_0.w']
        >>> called("blocks[0]", ["blocks[0].w", "blocks[1].w"]), called("blocks[[]?].w", ["blocks[0].w"])
        (['blocks[0].w'], ['blocks[0].w'])
    """
    existing = list(names)
    hits = [
        name for name in existing if name == pattern or name.startswith(tuple(map(pattern.__add__, _BELOW)))
    ]
    if hits or not pattern:
        return hits
    for reading in dict.fromkeys((pattern.replace("[", "[[]"), pattern)):
        readings = [reading, *[f"{reading}{sign.replace('[', '[[]')}*" for sign in _BELOW]]
        hits = [name for name in existing if any(fnmatch.fnmatchcase(name, one) for one in readings)]
        if hits:
            break
    return hits


_BELOW = (".", "/", "[")
"""What separates a name from those below it: paths of arguments, scopes and modules, positions."""
