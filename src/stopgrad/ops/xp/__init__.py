"""The Python array API standard, version 2025.12, on NumPy arrays and on outputs of graphs alike.

Functions take arrays and return arrays where no graph is about; with an output among their arguments, they
build. Most are the library's own under the standard's names. They are used in every style, run on any engine,
and have gradients.

Examples:
    >>> import stopgrad.xp as xp
    >>> xp.sum(xp.asarray([1.0, 2.0]))
    array(3., dtype=float32)

References:
    https://data-apis.org/array-api/2025.12
"""

from __future__ import annotations

import math as _math

from stopgrad.ops.xp import fft as fft, linalg as linalg
from stopgrad.ops.xp.creation import *
from stopgrad.ops.xp.data_types import *
from stopgrad.ops.xp.data_types import __array_namespace_info__ as __array_namespace_info__
from stopgrad.ops.xp.elementwise import *
from stopgrad.ops.xp.linalg import (
    matmul as matmul,
    matrix_transpose as matrix_transpose,
    tensordot as tensordot,
    vecdot as vecdot,
)
from stopgrad.ops.xp.manipulation import *
from stopgrad.ops.xp.sets import *
from stopgrad.ops.xp.statistical import *

e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi

__array_api_version__ = "2025.12"
VERSIONS = ("2022.12", "2023.12", "2024.12", "2025.12")
"""Of the standard, those that this namespace keeps: each takes what the one before took."""
