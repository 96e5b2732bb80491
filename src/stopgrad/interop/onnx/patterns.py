"""Patterns of names, by which tensors are chosen."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from stopgrad.base.errors import ArgumentError


def patterns_of(names: str | Iterable[str], what: str) -> list[str]:
    """Patterns as a list; a single one may be a string."""
    patterns = [names] if isinstance(names, str) else list(names)
    wrong = next(
        (pattern for pattern in patterns if not isinstance(pattern, str) or not pattern.strip()), None
    )
    if wrong is not None:
        raise ArgumentError(f"{what}: a pattern of names is text, such as 'encoder.*', not {wrong!r:.60}")
    return [pattern.strip() for pattern in patterns]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name, or a scope around it.

    Examples:
        >>> matches("encoder.0.weight", "encoder"), matches("encoder.0.weight", "*.weight")
        (True, True)
        >>> matches("encoder2.weight", "encoder")
        False
    """
    name, pattern = name.strip("/"), pattern.strip("/")
    return name == pattern or any(
        fnmatch.fnmatchcase(name, variant) for variant in (pattern, f"{pattern}.*", f"{pattern}/*")
    )
