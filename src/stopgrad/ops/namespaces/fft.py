"""Discrete Fourier transforms, as ``numpy.fft`` has them: the extension ``fft`` of the array API.

Examples:
    >>> sg.fft.fft(np.array([1.0, 0.0, 0.0, 0.0]))
    array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stopgrad.ops.namespaces.contents import reads
from stopgrad.ops.xp import fft as _fft
from stopgrad.ops.xp.fft import *

__all__ = _fft.__all__
if not TYPE_CHECKING:  # Type checkers know what is there.
    __getattr__, __dir__ = reads("fft", __all__)
