"""NumPy's discrete Fourier transforms along two axes, and of Hermitian tensors.

They are composed of those of :mod:`stopgrad.ops.fourier.discrete_fourier`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArrayLike, Size, Tensor
from stopgrad.ops.elementwise.convert import conj
from stopgrad.ops.fourier.discrete_fourier import DUAL, fftn, ifftn, irfft, irfftn, rfft, rfftn

__all__: list[str] = []


def _along_two(whole: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The form of a transform whose default axes are the last two."""

    def function(
        x: ArrayLike,
        s: Sequence[Any] | None = None,
        axes: Sequence[int] = (-2, -1),
        norm: str = "backward",
        name: str | None = None,
    ) -> Tensor:
        return whole(x, s, axes, norm, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f""":func:`{whole.__name__}` along two axes, the last ones by default.

    Args:
        x: as for that function.
        s: for each axis, the length to transform.
        axes: the axes along which to transform.
        norm: "backward", "ortho" or "forward".
        name: of the operation; by default none.

    Returns:
        The transform.

    Examples:
        >>> from stopgrad.ops.fourier import planes as fourier_planes
        >>> fourier_planes.{name}(np.ones((5, 2, 2))).shape
        (5, 2, 2)
    """
    return d.guarded(name)(function)


fft2: Callable[..., Tensor] = _along_two(fftn, "fft2")
ifft2: Callable[..., Tensor] = _along_two(ifftn, "ifft2")
rfft2: Callable[..., Tensor] = _along_two(rfftn, "rfft2")
irfft2: Callable[..., Tensor] = _along_two(irfftn, "irfft2")


def _dual(norm: str) -> str:
    """The norm of the transform in the other direction; the transform refuses an unknown word."""
    return DUAL.get(norm, norm) if isinstance(norm, str) else norm


@d.guarded("hfft")
def hfft(
    x: ArrayLike, n: Size | str | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The discrete Fourier transform of a Hermitian sequence, given its first half; the result is real.

    Args:
        x: numbers; real ones are converted to complex.
        n: the number of real numbers; by default 2 · (m - 1) for the m elements of x.
        axis: the axis along which to transform.
        norm: "backward" for no factor, "forward" for 1 / n, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The real numbers.

    Examples:
        >>> from stopgrad.ops.fourier import planes as fourier_planes
        >>> fourier_planes.hfft(np.array([1.0, 1.0]))
        array([2., 0.])
    """
    return irfft(conj(x), n, axis, _dual(norm), name)


@d.guarded("ihfft")
def ihfft(
    x: ArrayLike, n: Size | str | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of :func:`hfft`.

    Args:
        x: real numbers.
        n: the length to transform: x is cut, or padded with zeros at the end; by default that of x.
        axis: the axis along which to transform.
        norm: "backward" for a factor of 1 / n, "forward" for none, "ortho" for 1 / √n.
        name: of the operation; by default none.

    Returns:
        The first n // 2 + 1 elements, complex.

    Examples:
        >>> from stopgrad.ops.fourier import planes as fourier_planes
        >>> fourier_planes.ihfft(np.array([2.0, 0.0]))
        array([1.-0.j, 1.-0.j])
    """
    return conj(rfft(x, n, axis, _dual(norm)), name)
