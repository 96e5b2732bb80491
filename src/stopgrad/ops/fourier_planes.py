"""Discrete Fourier transforms along two axes, as NumPy has them: those of :mod:`stopgrad.ops.fourier`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.operands import Tensor
from stopgrad.ops.fourier import fftn, ifftn, irfftn, rfftn
from stopgrad.public import guarded

__all__: list[str] = []


def _along_two(whole: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """A transform along several axes, by default the last two."""

    def function(
        x: Any,
        s: Sequence[Any] | None = None,
        axes: Sequence[int] = (-2, -1),
        norm: str = "backward",
        name: str | None = None,
    ) -> Tensor:
        return whole(x, s, axes, norm, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f""":func:`{whole.__name__}` along two axes, the last ones by default.

    Args:
        x: as there.
        s: for each axis the length to transform.
        axes: along which.
        norm: "backward", "ortho" or "forward".
        name: of the operation; by default none.

    Returns:
        The transform.

    Examples:
        >>> from stopgrad.ops import fourier_planes
        >>> fourier_planes.{name}(np.ones((5, 2, 2))).shape
        (5, 2, 2)
    """
    return guarded(name)(function)


fft2 = _along_two(fftn, "fft2")
ifft2 = _along_two(ifftn, "ifft2")
rfft2 = _along_two(rfftn, "rfft2")
irfft2 = _along_two(irfftn, "irfft2")
