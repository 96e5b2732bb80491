"""Eigenvalues and eigenvectors of Hermitian and of general matrices; ``spectra`` has the shared functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from stopgrad.graph import defining as d
from stopgrad.graph.defining import (
    Array,
    ArrayLike,
    Joint,
    Namespace,
    Op,
    Output,
    Promotion,
    Tensor,
    TensorType,
)
from stopgrad.ops.elementwise.convert import cast, conj, real, wide
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.linalg.diagonals import diag
from stopgrad.ops.linalg.factorizations import hermitian_part
from stopgrad.ops.linalg.matrices import adjoint, check_square
from stopgrad.ops.linalg.solvers import INEXACT, MatrixSolve, where_possible
from stopgrad.ops.linalg.spectra import finite_only, inverse, pairs, phases, scaled, turn, turned
from stopgrad.ops.shapes.reshape import reduce_sum

__all__ = [
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
]


# ---------------------------------------------------------------------------------- Hermitian matrices


class SelfAdjointEig(Op):
    """The eigenvalues and eigenvectors of Hermitian matrices.

    Args:
        tensor: [..., m, m]. Its Hermitian part, (tensor + tensorᴴ) / 2, is decomposed.

    Returns:
        The real eigenvalues, [..., m], in ascending order, and the eigenvectors as columns, [..., m, m]. Of
        each vector's largest components (within 0.1 %), the first is real and positive. Matrices that hold a
        NaN or an infinity give NaN.

        The gradient of the eigenvalues is finite everywhere. That of the vectors is not defined where two
        eigenvalues are equal. If they are closer than 16 units in the last place of the largest, the infinite
        terms are left out, which is right for every function that depends only on the span of the vectors.

    Constraints:
        (C1) tensor holds floating-point or complex numbers.
        (C2) tensor holds square matrices.

    References:
        M. Giles 2008, "An extended collection of matrix derivative results for forward and reverse mode
        algorithmic differentiation".

    Examples:
        >>> sg.eigh(np.array([[2.0, 0.0], [0.0, 1.0]]))
        (array([1., 2.]), array([[0., 1.],
               [1., 0.]]))
    """

    @staticmethod
    def infer(x: TensorType) -> tuple[TensorType, TensorType]:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_square(x, "C2", "tensor")
        return d.tensor_type(x.dtype.real, x.shape[:-1]), x

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = Joint(lambda gs, op, live, acting: [_to_hermitian(gs, *op.outputs)])
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "its matrix is its own conjugate transpose"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> tuple[Array, ...]:
        def both(x: Array) -> Any:
            values, vectors = where_possible(lambda a: tuple(xp.linalg.eigh(a)), hermitian_part(xp, x))
            return values, vectors * phases(xp, vectors)

        return finite_only(xp, both, x)

    @staticmethod
    def xla(xp: Namespace, x: Array) -> tuple[Array, ...]:
        def both(x: Array) -> tuple[Any, Any]:
            values, vectors = xp.linalg.eigh(hermitian_part(xp, x), symmetrize_input=False)
            return values, vectors * phases(xp, vectors)

        return finite_only(xp, both, x)

    samples: d.Samples = [
        d.sample(d.floats(3, 3, distinct=True)),
        d.sample(d.floats("n", 2, 2, distinct=True)),
        d.sample(d.complexes(3, 3)),
        d.sample(d.floats(0, 0)),
    ]
    extremes = (([[float("nan"), 0.0], [0.0, 1.0]],), ([[1.0, 0.0], [0.0, 1.0]],))


def _to_hermitian(gs: Sequence[Output | None], values: Output, vectors: Output) -> Tensor:
    values, vectors = wide(values), wide(vectors)
    inner: Any = None if gs[0] is None else cast(diag(wide(gs[0])), vectors.dtype)
    if gs[1] is not None:
        g = wide(gs[1])
        if vectors.dtype.is_complex:
            g = turned(g, vectors, turn(vectors, g))
        apart = cast(inverse(pairs(values), values), vectors.dtype)
        mixed = apart * matmul(vectors, g, adjoint_a=True)
        inner = mixed if inner is None else inner + mixed
    whole = matmul(matmul(vectors, inner), vectors, adjoint_b=True)
    return (whole + adjoint(whole)) * 0.5


@d.builds(SelfAdjointEig)
def eigh(tensor: ArrayLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    values, vectors = d.apply(SelfAdjointEig, (tensor,), (), name)
    return values, vectors


class SelfAdjointEigenvalues(Op):
    """The eigenvalues of Hermitian matrices.

    Args:
        tensor: [..., m, m]. Only its Hermitian part, (tensor + tensorᴴ) / 2, is used.

    Returns:
        The real eigenvalues, [..., m], in ascending order. Their gradient is finite everywhere; where some
        are equal, it depends on the choice of vectors. It is Hermitian, as in JAX;
        TensorFlow puts both halves into the lower triangle.

    Constraints:
        (C1) tensor holds floating-point or complex numbers.
        (C2) tensor holds square matrices.

    Examples:
        >>> sg.eigvalsh(np.array([[2.0, 0.0], [0.0, 1.0]]))
        array([1., 2.])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return SelfAdjointEig.infer(x)[0]

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {"x": lambda g, op: _to_hermitian((g, None), *d.apply(SelfAdjointEig, (op.x,)))}
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "they are real"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        def values(x: Array) -> Any:
            return (where_possible(xp.linalg.eigvalsh, hermitian_part(xp, x)),)

        return finite_only(xp, values, x)[0]

    @staticmethod
    def xla(xp: Namespace, x: Array) -> Array:
        def values(x: Array) -> tuple[Any]:
            return (xp.linalg.eigvalsh(hermitian_part(xp, x), symmetrize_input=False),)

        return finite_only(xp, values, x)[0]

    samples: d.Samples = SelfAdjointEig.samples
    extremes: ClassVar[Sequence[tuple[Any, ...]]] = SelfAdjointEig.extremes


@d.builds(SelfAdjointEigenvalues)
def eigvalsh(tensor: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(SelfAdjointEigenvalues, (tensor,), (), name)


# ------------------------------------------------------------------------------------ general matrices


class Eig(Op):
    """The eigenvalues and eigenvectors of square matrices.

    Args:
        tensor: [..., m, m].

    Returns:
        The eigenvalues, [..., m], in no particular order, and the eigenvectors as columns, [..., m, m]; both
        complex. Each vector has length 1, and the first of its largest components (within 0.1 %) is real and
        positive. Matrices that hold a NaN or an infinity give NaN.

        Gradients are infinite or NaN for a matrix without m independent eigenvectors, and large close to such
        a matrix. If there are m, and two eigenvalues are closer than 16 units in the last place of the
        largest, the terms that would be infinite in the gradient of the vectors are left out.

    Constraints:
        (C1) tensor holds floating-point or complex numbers.
        (C2) tensor holds square matrices.

    References:
        C. Boeddeker et al. 2017, "On the computation of complex-valued gradients with application to
        statistically optimum beamforming", arXiv:1701.00392.

    Examples:
        >>> sg.eig(np.array([[0.0, -1.0], [1.0, 0.0]]))[0]
        array([0.+1.j, 0.-1.j])
    """

    @staticmethod
    def infer(x: TensorType) -> tuple[TensorType, TensorType]:
        d.check_dtype(x, d.is_inexact, INEXACT)
        check_square(x, "C2", "tensor")
        dtype = d.complex128 if x.dtype.real is d.float64 else d.complex64
        return d.tensor_type(dtype, x.shape[:-1]), d.tensor_type(dtype, x.shape)

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = Joint(lambda gs, op, live, acting: [_to_general(gs, *op.outputs)])
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "eigenvectors are normalized by absolute values"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> tuple[Array, ...]:
        def both(x: Array) -> Any:
            kind = np.result_type(x.dtype, np.complex64)  # NumPy returns real numbers if all are real.
            results = where_possible(lambda a: tuple(xp.linalg.eig(a)), x)
            values, vectors = (y.astype(kind) for y in results)
            return values, vectors * phases(xp, vectors)

        return finite_only(xp, both, x)

    @staticmethod
    def xla(xp: Namespace, x: Array) -> tuple[Array, ...]:
        def both(x: Array) -> tuple[Any, Any]:
            values, vectors = xp.linalg.eig(x)
            return values, vectors * phases(xp, vectors)

        return finite_only(xp, both, x)

    samples: d.Samples = [
        d.sample(d.floats(3, 3, distinct=True)),
        d.sample(d.floats("n", 2, 2, distinct=True)),
        d.sample(d.complexes(3, 3)),
        d.sample(d.floats(0, 0)),
    ]


def _to_general(gs: Sequence[Output | None], values: Output, vectors: Output) -> Tensor:
    inner: Any = None if gs[0] is None else diag(gs[0])
    if gs[1] is not None:
        g = turned(gs[1], vectors, turn(vectors, gs[1]))
        # The length of a vector stays 1, so that the part of g along it is dropped.
        longer = reduce_sum(real(conj(vectors) * g), -2)
        g = g - scaled(vectors, longer)
        apart = conj(inverse(pairs(values), values))
        mixed = apart * matmul(vectors, g, adjoint_a=True)
        inner = mixed if inner is None else inner + mixed
    return d.apply(MatrixSolve, (vectors, matmul(inner, vectors, adjoint_b=True)), (True,))


@d.builds(Eig)
def eig(tensor: ArrayLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    values, vectors = d.apply(Eig, (tensor,), (), name)
    return values, vectors


class Eigenvalues(Op):
    """The eigenvalues of square matrices.

    Args:
        tensor: [..., m, m].

    Returns:
        The eigenvalues, [..., m], in no particular order; complex. Gradients are infinite or NaN for a matrix
        without m independent eigenvectors, and large close to such a matrix.

    Constraints:
        (C1) tensor holds floating-point or complex numbers.
        (C2) tensor holds square matrices.

    Examples:
        >>> sg.eigvals(np.array([[0.0, -1.0], [1.0, 0.0]]))
        array([0.+1.j, 0.-1.j])
    """

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return Eig.infer(x)[0]

    promotes = Promotion(d.is_inexact)
    gradient: d.Gradient = {"x": lambda g, op: _to_general((g, None), *d.apply(Eig, (op.x,)))}
    batch = d.ALONG
    rounds_once = True
    not_holomorphic = "their order is that of a complex matrix's"

    @staticmethod
    def lower(xp: Namespace, x: Array) -> Array:
        def values(x: Array) -> Any:
            kind = np.result_type(x.dtype, np.complex64)
            return (where_possible(xp.linalg.eigvals, x).astype(kind),)

        return finite_only(xp, values, x)[0]

    xla: d.Lowering = lambda xp, x: finite_only(xp, lambda x: (xp.linalg.eigvals(x),), x)[0]
    samples: d.Samples = Eig.samples


@d.builds(Eigenvalues)
def eigvals(tensor: ArrayLike, name: str | None = None) -> Tensor:
    return d.apply(Eigenvalues, (tensor,), (), name)
