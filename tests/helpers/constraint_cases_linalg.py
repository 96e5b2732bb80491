"""For each documented constraint of linear algebra and Fourier transforms, a call that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from stopgrad.graph.immediate import evaluate
from stopgrad.graph.op import REGISTRY

INTS = np.ones((3, 3), np.int32)
VECTOR = np.ones(3, np.float32)
MATRIX = np.ones((2, 3), np.float32)
SQUARE = np.eye(3, dtype=np.float32)
DOUBLE = np.eye(3)
SCALAR = np.ones((), np.float32)
BATCH = np.ones((2, 3, 3), np.float32)
OTHER = np.ones((4, 3, 3), np.float32)
COMPLEX = np.ones((2, 3), np.complex64)
NOTHING = np.ones((2, 0), np.complex64)

CASES: dict[tuple[str, str], Callable[[], Any]] = {}


def refuses(type: str, *calls: Callable[[], Any]) -> None:
    """The calls break the constraints of an operation, in their order."""
    for i, call in enumerate(calls, 1):
        CASES[type, f"C{i}"] = call


def of(type: str, *operands: Any, **attributes: Any) -> Callable[[], Any]:
    """The operation itself, computed at once."""
    return partial(evaluate, REGISTRY[type], operands, tuple(attributes.values()))


refuses("MatrixBandPart", of("MatrixBandPart", VECTOR, low=0, high=0))
refuses("MatrixDiagPart", of("MatrixDiagPart", VECTOR, offset=0))
refuses(
    "MatrixDiag",
    of("MatrixDiag", SCALAR, offset=0, rows=1, columns=1),
    of("MatrixDiag", VECTOR, offset=1, rows=3, columns=3),
)
for name, values in (
    ("TriangularSolve", {"lower": True, "adjoint": False}),
    ("MatrixSolve", {"adjoint": False}),
):
    refuses(
        name,
        of(name, SQUARE, DOUBLE, **values),
        of(name, MATRIX, MATRIX, **values),
        of(name, SQUARE, MATRIX, **values),
        of(name, BATCH, OTHER, **values),
    )
for name in (
    *("MatrixInverse", "Cholesky", "MatrixDeterminant", "Adjugate", "LogMatrixDeterminant"),
    *("SelfAdjointEig", "SelfAdjointEigenvalues", "Eig", "Eigenvalues", "MatrixExponential"),
):
    refuses(name, of(name, INTS), of(name, MATRIX))
for name, values in (("Qr", {"full": False}), ("Svd", {"full": False}), ("SingularValues", {})):
    refuses(name, of(name, INTS, **values), of(name, VECTOR, **values))
refuses(
    "MatrixExponentialGrad",
    of("MatrixExponentialGrad", SQUARE, DOUBLE),
    of("MatrixExponentialGrad", MATRIX, MATRIX),
    of("MatrixExponentialGrad", SQUARE, BATCH),
)
refuses(
    "PseudoInverse",
    of("PseudoInverse", INTS, SCALAR),
    of("PseudoInverse", VECTOR, SCALAR),
    of("PseudoInverse", BATCH, VECTOR),
)
refuses(
    "VectorNorm",
    of("VectorNorm", INTS, order=2.0, axis=(0,), keepdims=False),
    of("VectorNorm", MATRIX, order=0.0, axis=(0,), keepdims=False),
    of("VectorNorm", MATRIX, order=2.0, axis=(2,), keepdims=False),
)
refuses(
    "Fft",
    of("Fft", MATRIX, axes=(0,), inverse=False, norm="ortho"),
    of("Fft", COMPLEX, axes=(2,), inverse=False, norm="ortho"),
    of("Fft", NOTHING, axes=(1,), inverse=False, norm="ortho"),
    of("Fft", COMPLEX, axes=(0,), inverse=False, norm="orthogonal"),
)
refuses(
    "Rfft",
    of("Rfft", COMPLEX, axis=0, norm="ortho"),
    of("Rfft", MATRIX, axis=2, norm="ortho"),
    of("Rfft", NOTHING.real, axis=1, norm="ortho"),
    of("Rfft", MATRIX, axis=0, norm="orthogonal"),
)
refuses(
    "Irfft",
    of("Irfft", MATRIX, axis=1, n=4, norm="ortho"),
    of("Irfft", COMPLEX, axis=2, n=4, norm="ortho"),
    of("Irfft", COMPLEX, axis=1, n=6, norm="ortho"),
    of("Irfft", COMPLEX, axis=1, n=4, norm="orthogonal"),
)
