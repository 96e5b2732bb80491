"""Linear algebra, and Fourier transforms."""

from __future__ import annotations

from typing import Any

import jax
from jax._src.lax import linalg

import stopgrad as sg
from stopgrad.graph.build import apply
from stopgrad.graph.graph import Output
from stopgrad.interop.jax.primitives.control import owned
from stopgrad.interop.jax.steps import NotOurs, Step, rule
from stopgrad.ops.fourier.discrete_fourier import Fft, Irfft, Rfft


def _transposed(x: Output) -> Output:
    transposed: Output = sg.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])
    return transposed


@rule("cholesky")
def _cholesky(step: Step, x: Output) -> Output | list[Output]:
    if _is_symmetrized(x):
        return sg.cholesky(x)

    def factor(_: Step, y: Output) -> list[Output]:
        return [sg.cholesky(y)]

    return owned(step, factor, [x])  # JAX's gradient need not be symmetric.


def _is_symmetrized(x: Output) -> bool:
    """Whether x is half the sum of a matrix and its transpose."""
    if x.op.type != "RealDiv" or x.op.x.op.type != "AddV2":
        return False
    a, b = x.op.x.op.inputs
    return any(operand.op.type in ("Transpose", "Conj") for operand in (a, b))


@rule("triangular_solve")
def _triangular_solve(step: Step, a: Output, b: Output) -> Output:
    lower, adjoint = bool(step["lower"]), bool(step["transpose_a"])
    if bool(step["conjugate_a"]) != adjoint:
        a = sg.conj(a)
    if step["unit_diagonal"]:
        n = int(a.shape[-1])
        inner = sg.tril(a, -1) if lower else sg.triu(a, 1)
        a = inner + sg.eye(n, dtype=a.dtype)
    if step["left_side"]:
        return sg.triangular_solve(a, b, lower=lower, adjoint=adjoint)
    # x a = b, both transposed and conjugated: aᴴ xᴴ = bᴴ.
    turned = sg.conj(_transposed(b))
    return sg.conj(_transposed(sg.triangular_solve(a, turned, lower=lower, adjoint=not adjoint)))


@rule("qr")
def _qr(step: Step, x: Output) -> list[Output]:
    if step.params.get("pivoting"):
        raise NotOurs("a decomposition that exchanges columns")
    return list(sg.qr(x, full_matrices=bool(step["full_matrices"])))


@rule("eigh")
def _eigh(step: Step, x: Output) -> list[Output]:
    if step.params.get("subset_by_index") not in (None, (0, x.shape[-1])):
        raise NotOurs("some of the eigenvalues")
    if not step["lower"]:
        x = sg.conj(_transposed(x))
    values, vectors = sg.eigh(x)
    return [vectors, values]


@rule("eig")
def _eig(step: Step, x: Output) -> list[Output]:
    if step["compute_left_eigenvectors"]:
        raise NotOurs("eigenvectors from the left")
    if not step["compute_right_eigenvectors"]:
        return [sg.eigvals(x)]
    return list(sg.eig(x))


@rule("svd")
def _svd(step: Step, x: Output) -> list[Any]:
    if step.params.get("subset_by_index") is not None:
        raise NotOurs("some of the singular values")
    if not step["compute_uv"]:
        return [sg.svd(x, compute_uv=False)]
    s, u, v = sg.svd(x, full_matrices=bool(step["full_matrices"]))
    return [s, u, sg.conj(_transposed(v))]


@rule("lu")
def _lu(step: Step, x: Output) -> list[Output]:
    (aval,) = step.avals
    loop = jax.make_jaxpr(linalg._lu_python)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return owned(step, lambda step, y: step.run(loop, y), [x])


@rule("custom_linear_solve")
def _linear_solve(step: Step, *inputs: Output) -> list[Output]:
    lengths, jaxprs = step["const_lengths"], step["jaxprs"]
    before = lengths.matvec + lengths.vecmat

    def solve(step: Step, *xs: Output) -> list[Output]:
        consts = xs[before : before + lengths.solve]
        return step.run(jaxprs.solve, *consts, *xs[before + lengths.solve + lengths.transpose_solve :])

    return owned(step, solve, inputs)


# -------------------------------------------------------------------------------------------- Fourier


@rule("fft")
def _fft(step: Step, x: Output) -> Any:
    kind, lengths = str(step["fft_type"]).rpartition(".")[2], tuple(step["fft_lengths"])
    kind = {"0": "FFT", "1": "IFFT", "2": "RFFT", "3": "IRFFT"}.get(kind, kind)
    last = x.ndim - 1
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    if kind in ("FFT", "IFFT"):
        return apply(Fft, (x,), (axes, kind == "IFFT", "backward"))
    if kind == "RFFT":
        y = apply(Rfft, (x,), (last, "backward"))
        return apply(Fft, (y,), (axes[:-1], False, "backward")) if len(axes) > 1 else y
    y = apply(Fft, (x,), (axes[:-1], True, "backward")) if len(axes) > 1 else x
    return apply(Irfft, (y,), (last, int(lengths[-1]), "backward"))
