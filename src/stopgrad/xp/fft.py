"""The extension ``fft`` of the array API: discrete Fourier transforms."""

from __future__ import annotations

__all__: list[str] = []
