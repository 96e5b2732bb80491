"""Calls for test_numpy_numbers.py of discrete Fourier transforms, which are not in the package itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TENSORS: set[str] = set()
ELSEWHERE: set[tuple[str, str]] = set()


def calls(call: Callable[..., Any], tensor: Callable[..., Any]) -> list[Any]:
    """The calls, made of the constructors of test_numpy_numbers.py."""
    numbers, real = tensor(4, 6, dtype="complex64"), tensor(4, 6)
    one = {"n": 5, "axis": 0, "norm": "ortho"}
    several = {"s": [3, -1], "axes": [0, 1], "norm": "forward"}
    taken = {"fft": numbers, "ifft": numbers, "irfft": numbers, "rfft": real}
    order = ("ops.fourier.frequencies.fftshift", "ops.fourier.frequencies.ifftshift")
    return [
        *[call(f"ops.fourier.discrete_fourier.{name}", x, **one) for name, x in taken.items()],
        *[call(f"ops.fourier.discrete_fourier.{name}n", x, **several) for name, x in taken.items()],
        *[call(f"ops.fourier.planes.{name}2", x, [4, 2], axes=(1, 0)) for name, x in taken.items()],
        call("ops.fourier.planes.hfft", numbers, **one),
        call("ops.fourier.planes.ihfft", real, **one),
        *[call(f"ops.fourier.frequencies.{name}", 5, 0.25) for name in ("fftfreq", "rfftfreq")],
        *[call(name, numbers, axes=[0, -1]) for name in order],
        *[call(name, numbers, axes=1) for name in order],
    ]
