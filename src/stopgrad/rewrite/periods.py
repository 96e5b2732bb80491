"""Finds repetitions in a sequence: stretches in which every element equals the one a period before.

It takes n log n time for any sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_SCALES = (1, 4, 16, 64, 256)  # Lengths of the pieces; distances between equal pieces are the periods to try.
_PER_SCALE = 8
_Array = np.ndarray[Any, Any]


class Stretch(NamedTuple):
    """``length`` elements from ``start`` on, each equal to the one ``period`` before, if that is inside."""

    start: int
    period: int
    length: int


def stretches(tokens: _Array, least: int) -> list[Stretch]:
    """Disjoint stretches of at least *least* periods, in order. Those that save most are chosen first.

    Examples:
        >>> stretches(np.array([7, 1, 2, 1, 2, 1, 2, 1, 9]), 3)
        [Stretch(start=1, period=2, length=7)]
    """
    candidates = []
    for period in _candidates(tokens, least):
        repeated = np.concatenate([[False], tokens[period:] == tokens[:-period], [False]])
        edges = np.flatnonzero(repeated[1:] != repeated[:-1])
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - start >= (least - 1) * period:
                candidates.append(Stretch(start, period, end - start + period))
    candidates.sort(key=lambda s: (s.period - s.length, s.period))
    free = np.ones(len(tokens), bool)
    chosen = []
    for stretch in candidates:
        part = _free_part(stretch, free)
        if part.length >= least * part.period:
            free[part.start : part.start + part.length] = False
            chosen.append(part)
    return sorted(chosen)


def _candidates(tokens: _Array, least: int) -> list[int]:
    """The periods to try: the most frequent distances between a piece and the next equal one."""
    periods: set[int] = set()
    hashes = _mixed(tokens.astype(np.uint64))
    length = 1
    for scale in _SCALES:
        while length < scale and len(hashes) > length:
            hashes = _mixed(hashes[:-length] * np.uint64(3) + hashes[length:])
            length *= 2
        if length < scale:
            break
        order = np.argsort(hashes, kind="stable")
        equal = hashes[order[1:]] == hashes[order[:-1]]
        distances = (order[1:] - order[:-1])[equal]
        counts = np.bincount(distances[distances <= len(tokens) // least])
        best = np.argsort(counts)[: -_PER_SCALE - 1 : -1]
        periods.update(int(period) for period in best if counts[period])
    return sorted(periods)


def _mixed(values: _Array) -> _Array:
    """A hash of 64-bit numbers."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed: _Array = values ^ (values >> np.uint64(31))
    return mixed


def _free_part(stretch: Stretch, free: _Array) -> Stretch:
    """The longest free part of a stretch."""
    start, period, length = stretch
    part = free[start : start + length]
    if part.all():
        return stretch
    edges = np.flatnonzero(np.diff(np.concatenate([[False], part, [False]])))
    if not len(edges):
        return Stretch(start, period, 0)
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    return Stretch(start + int(edges[2 * longest]), period, int(edges[2 * longest + 1] - edges[2 * longest]))
