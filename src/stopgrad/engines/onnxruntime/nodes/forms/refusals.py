"""Operations that have no form in ONNX, and why."""

from __future__ import annotations

from collections.abc import Mapping

from stopgrad.onnx_nodes.nodes import NO_COMPLEX
from stopgrad.op import Op, Unsupported, unsupported
from stopgrad.ops.convert import Complex
from stopgrad.ops.eigenvalues import Eig, Eigenvalues, SelfAdjointEig, SelfAdjointEigenvalues
from stopgrad.ops.factorizations import Qr
from stopgrad.ops.fourier import Fft, Irfft, Rfft
from stopgrad.ops.matrix_functions import PseudoInverse
from stopgrad.ops.spectra import SingularValues, Svd

_DECOMPOSED = unsupported("ONNX has no decomposition of matrices, and one of its nodes would iterate")
_COMPLEX = unsupported(NO_COMPLEX)

REFUSALS: Mapping[type[Op], Unsupported] = {
    **dict.fromkeys((Qr, Svd, SingularValues, PseudoInverse), _DECOMPOSED),
    **dict.fromkeys((SelfAdjointEig, SelfAdjointEigenvalues, Eig, Eigenvalues), _DECOMPOSED),
    **dict.fromkeys((Complex, Fft, Irfft, Rfft), _COMPLEX),
}
