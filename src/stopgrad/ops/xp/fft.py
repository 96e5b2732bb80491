"""The extension ``fft`` of the array API: discrete Fourier transforms."""

from __future__ import annotations

from stopgrad.graph.defining import DTypeLike, Tensor, float32
from stopgrad.ops.fourier.discrete_fourier import (
    fft as fft,
    fftn as fftn,
    ifft as ifft,
    ifftn as ifftn,
    irfft as irfft,
    irfftn as irfftn,
    rfft as rfft,
    rfftn as rfftn,
)
from stopgrad.ops.fourier.frequencies import (
    fftfreq as _fftfreq,
    fftshift as fftshift,
    ifftshift as ifftshift,
    rfftfreq as _rfftfreq,
)
from stopgrad.ops.fourier.planes import hfft as hfft, ihfft as ihfft
from stopgrad.ops.xp.support import check_device, standard

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]


@standard
def fftfreq(n: int, /, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """The frequencies of the elements of :func:`fft`, for samples at a distance of *d*.

    Examples:
        >>> sg.xp.fft.fftfreq(4)
        array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    check_device(device)
    return _fftfreq(n, d, float32 if dtype is None else dtype)


@standard
def rfftfreq(n: int, /, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """The frequencies of the elements of :func:`rfft`, for samples at a distance of *d*.

    Examples:
        >>> sg.xp.fft.rfftfreq(4)
        array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    check_device(device)
    return _rfftfreq(n, d, float32 if dtype is None else dtype)
