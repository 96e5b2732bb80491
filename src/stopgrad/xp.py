"""The namespace of the array API: :mod:`stopgrad.ops.xp` under its public name."""

import sys

from stopgrad.ops import xp
from stopgrad.ops.xp import *

# One module under both names: ``x.__array_namespace__() is stopgrad.xp``.
sys.modules |= {__name__: xp, f"{__name__}.fft": xp.fft, f"{__name__}.linalg": xp.linalg}
