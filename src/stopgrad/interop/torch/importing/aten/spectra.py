"""Discrete Fourier transforms; PyTorch gives the normalisation as a number."""

from __future__ import annotations

from collections.abc import Sequence

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.interop.shared.conversions import axes_of, brought, product
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table
from stopgrad.ops.fourier import discrete_fourier as fourier


def _scaled(y: sg.Output, sizes: Sequence[Size], normalization: int) -> sg.Output:
    """y divided by 1 (normalization 0), by √n (1) or by n (2), for n elements."""
    if normalization == 0:
        return y
    real = sg.float32 if y.dtype in (sg.complex64, sg.float32) else sg.float64
    count = brought(product(sizes), real, y)
    factor = sg.rsqrt(count) if normalization == 1 else sg.reciprocal(count)
    return sg.multiply(y, sg.cast(factor, y.dtype))


def _from_real(call: Call, x: sg.Output, dim: Sequence[int], normalization: int, onesided: bool) -> sg.Output:
    axes = axes_of(dim, x.ndim)
    sizes = [x.shape[axis] for axis in axes]
    y = fourier.rfftn(x, axes=axes) if onesided else fourier.fftn(sg.cast(x, call.dtype), axes=axes)
    return _scaled(y, sizes, normalization)


def _to_real(call: Call, x: sg.Output, dim: Sequence[int], normalization: int, last: int) -> sg.Output:
    axes = axes_of(dim, x.ndim)
    sizes = [*(x.shape[axis] for axis in axes[:-1]), last]
    y = fourier.irfftn(x, s=sizes, axes=axes, norm="forward")
    return _scaled(y, sizes, normalization)


def _complex(call: Call, x: sg.Output, dim: Sequence[int], normalization: int, forward: bool) -> sg.Output:
    axes = axes_of(dim, x.ndim)
    sizes = [x.shape[axis] for axis in axes]
    y = fourier.fftn(x, axes=axes) if forward else fourier.ifftn(x, axes=axes, norm="forward")
    return _scaled(y, sizes, normalization)


SPECTRA: Table = dict(table({"_fft_r2c": _from_real, "_fft_c2r": _to_real, "_fft_c2c": _complex}))
