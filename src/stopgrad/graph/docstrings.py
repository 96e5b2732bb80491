"""Docstrings of definitions: each says what differs, and inherits the rest from its family and its rule.

A family's docstring has the sections that all members share: ``Args``, ``Returns``, ``Constraints``,
``Raises``. A rule of inference has its constraints in its attribute ``document``, where ``{0}`` and ``{1}``
stand for the names of the operands (:mod:`stopgrad.graph.type_rules`). A section of a member, or an entry of
its ``Args`` or ``Constraints``, replaces the inherited one; a family's text comes before the rule's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

TITLES = ("Args", "Returns", "Constraints", "Raises", "References", "Examples")
_INHERITED = TITLES[:4]
_NUMBERS = [f"C{n}" for n in range(1, 30)]
_TITLE = re.compile(rf"^({'|'.join(TITLES)}):$", re.MULTILINE)
_NEXT_ENTRY = re.compile(r"\n(?=    \S)")
_KEY = re.compile(r"\w+")


def docstring(definition: Any, families: Iterable[type]) -> str:
    """The docstring of a definition, completed from its families and its rule of inference."""
    rule = getattr(definition.infer, "document", "")
    shared = [vars(family).get("__doc__") or "" for family in families]
    if not rule and not any(":\n" in text for text in shared):
        return definition.__doc__ or ""
    variadic = (definition.variadic,) if definition.variadic else ()
    names = (*definition.operands, *variadic, *definition.attributes)
    inherited = [*map(_clean, shared), rule.format(*definition.operands)]
    return composed(inspect.cleandoc(definition.__doc__), inherited, names)


@lru_cache(256)
def _clean(text: str) -> str:
    return inspect.cleandoc(text)


def composed(own: str, inherited: Iterable[str], names: Sequence[str]) -> str:
    """The docstring *own* completed from the inherited ones, the nearest first; all without indentation.

    Args:
        own: the member's docstring.
        inherited: the docstrings of its families and its rule.
        names: the names of operands and attributes, in the order of the entries of ``Args``.

    Examples:
        >>> family = "Args:\\n    x: a number.\\n    y: another."
        >>> print(composed("A sum.\\n\\nArgs:\\n    y: too.", [family], "xy"))
        A sum.
        <BLANKLINE>
        Args:
            x: a number.
            y: too.
    """
    parts, *others = [dict(_sections(text)) for text in (own, *inherited)]
    if not any(title in ancestor for ancestor in others for title in _INHERITED):
        return own
    for title in ("Returns", "Raises"):
        for ancestor in others:
            if title in ancestor:
                parts.setdefault(title, ancestor[title])
    for title, keys in ("Args", names), ("Constraints", _NUMBERS):
        entries = _entries(parts.get(title, ""))
        for ancestor in others:
            further = _entries(ancestor.get(title, ""))
            entries = {key: further[key] for key in further if key in keys} | entries
        parts[title] = "\n".join(entries[key] for key in sorted(entries, key=_place(keys)))
    return "\n\n".join([parts[""], *(f"{title}:\n{parts[title]}" for title in TITLES if parts.get(title))])


@lru_cache(256)
def _sections(text: str) -> dict[str, str]:
    """The parts of a docstring by title; the text before the first title has an empty one."""
    first, *rest = _TITLE.split(text)
    parts = zip(rest[::2], rest[1::2], strict=True)
    return {"": first.rstrip(), **{title: part.strip("\n") for title, part in parts}}


@lru_cache(256)
def _entries(part: str) -> dict[str, str]:
    """The entries of a section, by the name or the number of the constraint with which they begin."""
    entries = _NEXT_ENTRY.split(part) if part else []
    return {_KEY.findall(entry)[0]: entry for entry in entries}


def _place(keys: Sequence[str]) -> Callable[[str], int]:
    return lambda key: keys.index(key) if key in keys else len(keys)
