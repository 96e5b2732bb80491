"""DFT, STFT, windows and mel weights. Complex numbers are pairs along the last axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

import stopgrad as sg
from stopgrad.interop.onnx.operators.attention import precision
from stopgrad.interop.onnx.operators.calling import Call, Known, Table, knows
from stopgrad.interop.shared.conversions import along, axis_of, bounded, brought
from stopgrad.ops.fourier import discrete_fourier as fourier


def _joined(x: sg.Output) -> Any:
    """Numbers without the last axis: real if it has one element, complex if it has two."""
    return x[..., 0] if x.shape[-1] == 1 else sg.complex(x[..., 0], x[..., 1])


def _pairs(x: sg.Output) -> Any:
    return sg.stack([sg.real(x), sg.imag(x)], axis=-1)


def _transformed(x: sg.Output, length: int | None, axis: int, one_sided: bool) -> Any:
    """The spectrum along an axis; with *one_sided*, only the half that determines that of real numbers."""
    if not one_sided:
        return fourier.fft(x if x.dtype.is_complex else sg.complex(x, sg.zeros_like(x)), length, axis)
    if not x.dtype.is_complex:
        return fourier.rfft(x, length, axis)
    y = fourier.fft(x, length, axis)
    return y[(slice(None),) * axis + (slice(0, y.shape[axis] // 2 + 1),)]


@knows(1, 2)
def dft(node: Call, x: sg.Output, length: Known | None = None, axis: sg.Output | Known | None = None) -> Any:
    if node.opset < 20:
        place = int(node.attribute("axis", 1))
    else:
        place = -2 if axis is None else int(node.known(2, axis).item())
    place = axis_of(place, x.ndim)
    size = None if length is None else node.sizes(length, 1)[0]
    dtype, one_sided = x.dtype, bool(node.attribute("onesided", 0))
    values = _joined(brought(x, sg.float32) if dtype.itemsize == 2 else x)
    if not node.attribute("inverse", 0):
        return brought(_pairs(_transformed(values, size, place, one_sided)), dtype)
    if not values.dtype.is_complex:
        values = sg.complex(values, sg.zeros_like(values))
    if one_sided:
        return brought(sg.expand_dims(fourier.irfft(values, size, place), -1), dtype)
    return brought(_pairs(fourier.ifft(values, size, place)), dtype)


@knows(1, 3)
def stft(
    node: Call,
    x: sg.Output,
    step: sg.Output | Known,
    window: sg.Output | None = None,
    length: sg.Output | Known | None = None,
) -> Any:
    """Spectra of frames: [batch, frames, frequencies, 2]."""
    hop = int(node.known(1, step).item())
    width = window.shape[0] if window is not None else None
    if length is not None:
        width = node.sizes(length, 3)[0]
    if width is None:
        node.fail("it has neither a window nor a frame_length")
    frames = (x.shape[1] - width) // hop + 1
    starts = sg.multiply(sg.range(0, frames, dtype=sg.int64), hop)
    places = sg.add(along(starts, 0, 2), along(sg.range(0, width, dtype=sg.int64), 1, 2))
    cut = sg.take(x, places, 1)  # [batch, frames, width, parts]
    if window is not None:
        cut = sg.multiply(cut, along(brought(window, x.dtype), 2, 4))
    return _pairs(_transformed(_joined(cut), None, 2, bool(node.attribute("onesided", 1))))


@knows(0, 1, 2, 3, 4)
def mel_weights(node: Call, *operands: sg.Output | Known) -> Any:
    """``MelWeightMatrix``: a constant, so its operands must be known."""
    values = [node.known(i, x) for i, x in enumerate(operands)]
    bounded(math.prod([abs(int(x.item())) + 3 for x in values[:2]]), "so many frequencies")
    names = list(node.node.input)
    (matrix,) = ReferenceEvaluator(node.node).run(None, dict(zip(names, values, strict=True)))
    return sg.constant(np.asarray(matrix))


def _window(formula: Callable[..., Any]) -> Any:
    """The rule for a window, from a formula for its value at an angle from 0 to 2π.

    The operators' own bodies compute in single precision, also where they are asked for double.
    """

    @knows(0)
    def rule(node: Call, size: sg.Output | Known) -> Any:
        dtype = precision(node, "output_datatype", sg.float32)
        (count,) = node.sizes(size, 0)
        last = count if node.attribute("periodic", 1) else count - 1
        places = sg.cast(sg.range(0, count, dtype=sg.int64), sg.float64)
        turn = sg.realdiv(sg.multiply(places, 2 * math.pi), brought(last, sg.float64, places))
        return brought(formula(turn), dtype)

    return rule


def _cosines(*weights: float) -> Any:
    """A sum of cosines of multiples of an angle."""
    return lambda turn: sg.add_n(
        [sg.multiply(sg.cos(sg.multiply(turn, float(i))), weight) for i, weight in enumerate(weights)]
    )


SIGNALS: Table = {
    "HannWindow": _window(_cosines(0.5, -0.5)),
    "HammingWindow": _window(_cosines(25 / 46, -21 / 46)),
    "BlackmanWindow": _window(_cosines(0.42, -0.5, 0.08)),
    "DFT": dft,
    "STFT": stft,
    "MelWeightMatrix": mel_weights,
}
