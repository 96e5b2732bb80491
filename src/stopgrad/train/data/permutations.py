"""The order of the examples: random permutations of any size that are computed element by element.

grain's own shuffle is not used: an index costs milliseconds if there are fewer than twenty examples, and
epoch e with seed s has the order of epoch e - 1 with seed s + 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stopgrad.base.arrays import ArrayLike
from stopgrad.base.coercion import is_whole, whole
from stopgrad.base.errors import ArgumentError
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.operands import NumpyArray
from stopgrad.ops.random.keys import threefry, words

ROUNDS = 24
"""With this many, tests find all orders of up to eight examples equally frequent."""

_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _mixed(x: NumpyArray, key: NumpyArray) -> Any:
    """64 bits that depend on all bits of x and of the key: the finaliser of SplitMix64."""
    x = x + key
    x = (x ^ (x >> np.uint64(30))) * _MULTIPLIERS[0]
    x = (x ^ (x >> np.uint64(27))) * _MULTIPLIERS[1]
    return x ^ (x >> np.uint64(31))


def round_keys(key: NumpyArray, epoch: int) -> Any:
    """A key for each round of an epoch's permutation, from :func:`random_fold_in` (key, epoch)."""
    high, low = np.array([[epoch >> 32], [epoch % 2**32]], np.uint32)
    folded = np.concatenate(threefry(np, key[:1], key[1:], high, low))
    high, low = words(np, folded, (ROUNDS,))
    return high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)


def permuted(x: NumpyArray, n: int, keys: NumpyArray) -> Any:
    """The images of the numbers *x*, uint64, in a random permutation of 0, ..., n - 1.

    A Feistel network (Luby and Rackoff, 1988) over slightly more than n pairs; a number that lands outside is
    mapped again until it is inside (Black and Rogaway, 2002).
    """
    # One of the two sizes is even, since all permutations would be even otherwise.
    columns = np.uint64(2 * (math.isqrt(n - 1) // 2 + 1))
    rows = np.uint64(-(-n // int(columns)))

    def once(x: NumpyArray) -> Any:
        row, column = np.divmod(x, columns)
        for i in range(0, ROUNDS, 2):
            row = (row + _mixed(column, keys[i]) % rows) % rows
            column = (column + _mixed(row, keys[i + 1]) % columns) % columns
        return row * columns + column

    y = once(x)
    while (outside := y >= n).any():
        y[outside] = once(y[outside])
    return y


def read_key(key: int | ArrayLike | None) -> Any:
    """The two words of a key, or of a seed's key; None for None."""
    if key is None:
        return None
    if is_whole(key):
        seed = whole(key) % 2**64
        return np.array([seed >> 32, seed % 2**32], np.uint32)
    built = isinstance(key, (Output, Operation))  # Outputs have no value yet.
    if built or getattr(key, "dtype", None) != np.uint32 or getattr(key, "shape", None) != (2,):
        raise ArgumentError(
            "key is an integer, or a key's value as sg.random_key(seed) gives it outside of graphs, "
            f"not {key!r:.60}"
        )
    return np.array(key)
