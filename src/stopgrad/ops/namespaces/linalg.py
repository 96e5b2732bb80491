"""Linear algebra, as ``numpy.linalg`` has it: the array API's ``linalg``, and what else there is.

``svd``, ``qr``, ``eigh`` and ``slogdet`` return what NumPy's do: ``sg.linalg.svd`` gives U, S and Vh, while
``sg.svd`` gives S, U and V, as TensorFlow does.

Examples:
    >>> U, S, Vh = sg.linalg.svd(np.diag([3.0, 2.0]))
    >>> S
    array([3., 2.])
"""

from __future__ import annotations

import typing

from stopgrad.ops.linalg.contractions import *
from stopgrad.ops.linalg.determinants import *
from stopgrad.ops.linalg.diagonals import *
from stopgrad.ops.linalg.eigenvalues import *
from stopgrad.ops.linalg.exponential import *
from stopgrad.ops.linalg.factorizations import *
from stopgrad.ops.linalg.matrices import *
from stopgrad.ops.linalg.matrix_functions import *
from stopgrad.ops.linalg.norms import *
from stopgrad.ops.linalg.products import *
from stopgrad.ops.linalg.solvers import *
from stopgrad.ops.linalg.spectra import *
from stopgrad.ops.namespaces.contents import public_in, reads
from stopgrad.ops.xp.linalg import *  # type: ignore[assignment]  # with NumPy's results

if not typing.TYPE_CHECKING:  # Type checkers see what is imported.
    __all__ = public_in(globals())
    __getattr__, __dir__ = reads("linalg", __all__)
