"""Names and numbers for readers: many names in few words, numbers of any size."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

EXACT = 10**6
"""The largest number that is written out."""

READ = 1000
"""The largest number of paths that a report shows."""

WHOLE, MOST = Fraction(1), Fraction(3, 4)
"""The parts of a module's tensors that are told as the module's."""

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


def paths_cut(counts: Iterable[tuple[int, int]]) -> str:
    """How many paths are cut, as somebody would say it; numbers too large to be read become words.

    It is empty if there is only one path to each.

    Args:
        counts: for each of some tensors how many of the paths to it are cut, and how many there are. All
            together these numbers may not fit into memory.

    Examples:
        >>> paths_cut([(1, 3)]), paths_cut([(1, 2), (3, 6)]), paths_cut([(10**60 - 1, 10**60)])
        ('1 of 3 paths is cut', 'half of the paths to each are cut', 'nearly all of the paths are cut')
        >>> paths_cut([(2, 2)]), paths_cut([(3, 3), (4, 4)])
        ('both paths are cut', 'all paths to each are cut')
    """
    rest = iter(counts)
    first = cut, every = next(rest)
    worded, same, each = {_in_words(*first)}, True, ""
    for one in rest:
        worded.add(_in_words(*one))
        same, each = same and one == first, " to each"
    if same and every <= READ:
        if cut == every:
            return {1: "", 2: f"both paths{each} are cut"}.get(every, f"all {every} paths{each} are cut")
        return f"{cut} of {every} paths{each} {'is' if cut == 1 else 'are'} cut"
    return f"{worded.pop() if len(worded) == 1 else 'some of the paths'}{each} are cut"


def _in_words(cut: int, every: int) -> str:
    if cut == every:
        return "all paths"
    if 100 * cut <= every:
        return "very few of the paths"
    if 100 * (every - cut) <= every:
        return "nearly all of the paths"
    if 2 * cut == every:
        return "half of the paths"
    return "most of the paths" if 3 * cut > 2 * every else "some of the paths"


def names(some: Sequence[str], every: Iterable[str] = (), room: int = 60) -> str:
    """Names of tensors: all of them if there is room; else those of a module as one.

    Args:
        some: the names.
        every: all existing names, which show whether a module is complete.
        room: the columns that are available.

    Examples:
        >>> layers = [f"params.layers.{i}.{k}" for i in range(12) for k in "bw"]
        >>> names(["x", "y"]), names([*layers, "x"], [*layers, "x", "params.scale"])
        ('x, y', 'params.layers (24 tensors), x')
        >>> names(layers[:20], layers), names(layers[::2], layers)
        ('params.layers.0-9 (20 tensors)', 'params.layers.0-11.b (12 tensors)')
    """
    shown = ", ".join(map(plain, some))
    if len(shown) <= room or len(some) < 3:
        return shown
    total = Counter(part for name in set(every).union(some) for part in _prefixes(name))
    # In complete modules; if that is long, also in nearly complete ones; if there are many, in larger ones.
    for part, least in ((WHOLE, 3), (MOST, 2)):
        counts = _numbered(_modules(some, total, part), least)
        texts = [_worded(name, count, total) for name, count in counts.items()]
        if len(texts) < 3 or len(", ".join(texts)) <= room:
            return ", ".join(texts)
    if len(texts) > FEW:
        if len(some) == len(set(every)):
            return f"all {number(len(some))} tensors"
        texts = [_worded(name, count, total) for name, count in _shorter(counts).items()]
    return ", ".join(texts) if len(texts) <= FEW else f"{texts[0]} ... {texts[-1]} ({len(some)} tensors)"


def _modules(some: Sequence[str], total: Mapping[str, int], part: Fraction) -> dict[str, int]:
    """The names with their counts, modules as one of which at least a *part* is there.

    The name of a module ends with its separator.
    """
    here = Counter(part for name in some for part in _prefixes(name))
    modules = {at for at, count in here.items() if count >= 2 and count >= part * total[at]}
    return _summed([(next((at for at in _prefixes(name) if at in modules), name), 1) for name in some])


def _numbered(counts: dict[str, int], least: int) -> dict[str, int]:
    """The names, with at least so many that differ only by consecutive numbers at one place as one."""
    parted = {name: re.split(f"({_SEPARATOR.pattern})", name) for name in counts}
    for place in range(0, max(map(len, parted.values())), 2):
        alike: dict[tuple[str | None, ...], dict[int, str]] = {}
        for name in counts:
            parts = parted[name]
            if place < len(parts) and parts[place].isdecimal():
                rest = (*parts[:place], None, *parts[place + 1 :])
                alike.setdefault(rest, {})[int(parts[place])] = name
        together: dict[str, str] = {}
        for rest, numbered in alike.items():
            first, last = min(numbered), max(numbered)
            if len(numbered) >= least and last - first == len(numbered) - 1:
                united = [f"{first}-{last}" if part is None else part for part in rest]
                parted["".join(united)] = united
                together |= dict.fromkeys(numbered.values(), "".join(united))
        counts = _summed([(together.get(name, name), count) for name, count in counts.items()])
    return counts


def _shorter(counts: dict[str, int]) -> dict[str, int]:
    """Instead of these names those of a few modules that hold them, the smallest possible."""
    for depth in range(max(len(_prefixes(name)) for name in counts), 0, -1):
        shorter = _summed([([*_prefixes(name), name][:depth][-1], count) for name, count in counts.items()])
        if len(shorter) <= FEW:
            return shorter
    return counts


def _summed(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, count in counts:
        sums[name] = sums.get(name, 0) + count
    return sums


def _worded(name: str, count: int, total: Mapping[str, int]) -> str:
    """A tensor, or a module with how many of its tensors are meant."""
    every = total.get(name, count)
    if count == every == 1:
        return plain(name)
    of = f" of {number(every)}" if every != count else ""
    return f"{plain(name.rstrip('./'))} ({number(count)}{of} tensors)"


def _prefixes(name: str) -> list[str]:
    """The beginnings of a name up to each dot or slash, the shortest first."""
    return [name[: sign.end()] for sign in _SEPARATOR.finditer(name)]


_SEPARATOR = re.compile(r"[./]")
