"""Memory: how much XLA asks for at once, and the handing over of results.

XLA asks for all intermediate values at once, in one of its own threads. For such a thread glibc keeps pieces
of less than 64 MiB only: it gets larger ones from the system each time, whatever it was told
(:mod:`stopgrad.base.memory`). So XLA is told to ask for several pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PIECE = 48 * 2**20
"""The most bytes that XLA asks for at once, unless one value has more. It leaves room in 64 MiB."""


class _Lent:
    """Memory of one of JAX's arrays, which stays alive with it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        self.owner = owner
        interface = owner.__array_interface__  # A dict of its own each time, which takes a while to make.
        interface["data"] = interface["data"][0], False
        self.__array_interface__ = interface


SMALL = 2**15
"""Copying fewer bytes takes no longer than not copying them."""


def handed_over(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A result of JAX's as an array that the caller may write into.

    JAX's own view is read-only, because others may hold its memory. A result is nobody else's, so its memory
    is handed over without a copy.
    """
    if array.flags.writeable:
        return array
    if array.nbytes < SMALL or not array.flags.c_contiguous:
        return array.copy()
    writable = np.asarray(_Lent(array))
    return writable if writable.dtype == array.dtype else writable.view(array.dtype)
