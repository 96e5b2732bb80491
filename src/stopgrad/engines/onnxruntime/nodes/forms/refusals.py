"""Operations that have no form in ONNX, and why."""

from __future__ import annotations

from collections.abc import Mapping

from stopgrad.engines.onnxruntime.nodes.onnx_nodes import NO_COMPLEX
from stopgrad.graph.op import Op, Unsupported, unsupported
from stopgrad.ops.elementwise.convert import Complex
from stopgrad.ops.fourier.discrete_fourier import Fft, Irfft, Rfft
from stopgrad.ops.linalg.eigenvalues import Eig, Eigenvalues, SelfAdjointEig, SelfAdjointEigenvalues
from stopgrad.ops.linalg.factorizations import Qr
from stopgrad.ops.linalg.matrix_functions import PseudoInverse
from stopgrad.ops.linalg.spectra import SingularValues, Svd

_DECOMPOSED = unsupported("ONNX has no decomposition of matrices, and one of its nodes would iterate")
_COMPLEX = unsupported(NO_COMPLEX)

REFUSALS: Mapping[type[Op], Unsupported] = {
    **dict.fromkeys((Qr, Svd, SingularValues, PseudoInverse), _DECOMPOSED),
    **dict.fromkeys((SelfAdjointEig, SelfAdjointEigenvalues, Eig, Eigenvalues), _DECOMPOSED),
    **dict.fromkeys((Complex, Fft, Irfft, Rfft), _COMPLEX),
}
