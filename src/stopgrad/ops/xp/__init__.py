"""The Python array API standard, version 2025.12, on NumPy arrays and on outputs of graphs alike.

Outside of a graph, functions take and return arrays; with an output among their arguments, they build
operations. Most are the library's own functions under the standard's names: they work in every style, run on
any engine, and have gradients.

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

e: float = _math.e
inf: float = _math.inf
nan: float = _math.nan
newaxis = None
pi: float = _math.pi

__array_api_version__ = "2025.12"
VERSIONS = ("2022.12", "2023.12", "2024.12", "2025.12")
"""The versions of the standard that this namespace follows; each accepts all that the one before accepted."""
