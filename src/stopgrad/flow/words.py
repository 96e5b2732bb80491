"""Names and numbers for readers: many names in few words, numbers of any size."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

EXACT = 10**6
"""The largest number that is written out."""

FEW = 6
"""The most names that are listed; of more, the first and the last are."""


def number(n: int) -> str:
    """A number as text. Python refuses to write integers of thousands of digits, which nobody would read.

    Examples:
        >>> number(12), number(65536), number(2**200)
        ('12', '65,536', 'about 1.6e60')
    """
    if n <= EXACT:
        return f"{n:,}"
    exponent, rest = divmod(math.log10(n), 1.0)
    digits = f"{10.0**rest:.1f}"
    return f"about 1.0e{exponent + 1:.0f}" if digits == "10.0" else f"about {digits}e{exponent:.0f}"


def counted(n: int, what: str) -> str:
    """A count of things.

    Examples:
        >>> counted(1, "tensor"), counted(3, "path")
        ('1 tensor', '3 paths')
    """
    return f"{number(n)} {what}" if n == 1 else f"{number(n)} {what}s"


def listed(words: Sequence[str]) -> str:
    """
    Examples:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def some(words: Sequence[str], limit: int = 8) -> str:
    """Words, the first few of many.

    Examples:
        >>> some("abcd", 2)
        'a, b and 2 more'
    """
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more


def plain(name: str) -> str:
    """The name of a tensor, without the position of the output if that is the first.

    Examples:
        >>> plain("layer/w:0"), plain("split:1"), plain("params.w")
        ('layer/w', 'split:1', 'params.w')
    """
    return name.removesuffix(":0")


def names(some: Sequence[str], every: Iterable[str] = (), room: int = 60) -> str:
    """Names of tensors: all of them if there is room; else those of complete subtrees as one.

    Args:
        some: the names.
        every: all existing names, which show whether a subtree is complete.
        room: the columns that are available.

    Examples:
        >>> layers = [f"params.layers.{i}.{k}" for i in range(12) for k in "bw"]
        >>> names(["x", "y"]), names([*layers, "x"], [*layers, "x", "params.scale"])
        ('x, y', 'params.layers.* (24), x')
        >>> names([f"params.layers.{i}.w" for i in range(12)], layers)
        'params.layers.0.w ... params.layers.11.w (12 tensors)'
    """
    shown = ", ".join(map(plain, some))
    if len(shown) <= room or len(some) < 3:
        return shown
    found = _subtrees(some, every)
    if len(found) > FEW:
        return f"{found[0]} ... {found[-1]} ({len(some)} tensors)"
    return ", ".join(found)


def _subtrees(some: Sequence[str], every: Iterable[str]) -> list[str]:
    """The names, with a complete subtree of three or more as one."""
    here = Counter(part for name in some for part in _prefixes(name))
    there = Counter(part for name in set(every).union(some) for part in _prefixes(name))
    found: dict[str, None] = {}
    for name in some:
        whole = next((part for part in _prefixes(name) if here[part] == there[part] >= 3), None)
        found[plain(name) if whole is None else f"{whole}* ({here[whole]})"] = None
    return list(found)


def _prefixes(name: str) -> list[str]:
    """The beginnings of a name up to each dot or slash, the shortest first."""
    return [name[: sign.end()] for sign in _SEPARATOR.finditer(name)]


_SEPARATOR = re.compile(r"[./]")
