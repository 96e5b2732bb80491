"""Slopes of the frozen function, by the most precise means that its operations allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stopgrad.base.errors import StopgradError
from stopgrad.base.types import TensorType
from stopgrad.flow.checking.finite_differences import Slope, Steps, complex_slope, slope_at
from stopgrad.flow.checking.frozen import COMPLEX, WIDE, Frozen, Holding, Posed, draws, evaluate, moving
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.operands import NumpyArray

ROUNDINGS = 256.0
"""The number of roundings of the largest term that may be left of a derivative whose terms cancel.

A decomposition of a matrix leaves about so many; if that is more than the tolerance, this counts.
"""


ELEMENTWISE = 64
"""The most real numbers of an input that is compared number by number; larger ones in directions."""


@dataclass(frozen=True)
class Settings:
    """The user's settings, see :func:`stopgrad.check_gradients`, and two of the world's.

    Attributes:
        elementwise: the most numbers of an input that are moved one by one.
        only_proven: whether a difference that is less than the error of single-precision differences passes.
    """

    modes: tuple[str, ...]
    holding: Holding | None
    rtol: float
    atol: float | None
    directions: int | None
    seed: int
    epsilon: float
    elementwise: int = ELEMENTWISE
    only_proven: bool = False


# ------------------------------------------------------------------------------------------------ vectors


def flat(arrays: Sequence[NumpyArray]) -> NumpyArray:
    """Arrays as a vector of real numbers; a complex number becomes two."""
    parts = [
        np.ascontiguousarray(a, np.complex128).reshape(-1).view(np.float64)
        if a.dtype.kind == "c"
        else np.asarray(a).astype(np.float64).reshape(-1)
        for a in arrays
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def unflat(vector: NumpyArray, like: Sequence[Output | TensorType]) -> list[NumpyArray]:
    """Arrays of the types of some outputs, from a vector of real numbers."""
    arrays, start = [], 0
    for x in like:
        count = size_of(x)
        part = vector[start : start + count]
        start += count
        part = part.view(np.complex128) if x.dtype.is_complex else part
        arrays.append(part.reshape(x.shape).astype(x.dtype.numpy))
    return arrays


def size_of(x: Output | TensorType) -> int:
    """The number of real numbers in an output, or in one of a type."""
    return math.prod(map(int, x.shape)) * (2 if x.dtype.is_complex else 1)  # Sizes of posed graphs are known.


# ------------------------------------------------------------------------------------------------- slopes


class OfFrozen:
    """Slopes of the frozen function of ys at the posed point.

    Attributes:
        here: its values.
        terms: the size of the terms that add up to them: *terms* if given, because these cancel.
        is_double: whether they are computed in double precision.
        operations: those between the xs and ys.
        notes: notes for the reader.
    """

    is_double: bool
    here: NumpyArray
    operations: list[Operation]
    terms: NumpyArray

    def __init__(
        self, posed: Posed, ys: Sequence[Output], settings: Settings, terms: NumpyArray | float = 0.0
    ) -> None:
        self._posed, self._ys, self._settings = posed, ys, settings
        self.operations = moving(ys, posed.xs)
        self._drawn = draws(self.operations)
        self.notes: list[str] = []
        exact = flat(evaluate(ys, posed.feeds))
        wide = self._in_double(exact)
        self._plain = wide or Frozen(posed, ys, {}, settings.holding)
        self._steps = Steps.of(2.0**-52 if wide else settings.epsilon)
        self.is_double = self._steps.epsilon < 1e-12
        self.here = flat(self._plain.here)
        self.terms = np.fmax(np.abs(self.here), terms)
        self._inside = min(ROUNDINGS * self._steps.epsilon, settings.rtol) * terms
        self._complex = self._in_complex()

    def _in_double(self, exact: NumpyArray) -> Frozen | None:
        """The function in double precision, if that is the same function."""
        if not self._drawn:
            try:
                frozen = Frozen(self._posed, self._ys, WIDE, self._settings.holding)
                near = 1e3 * self._settings.epsilon * (1.0 + np.abs(exact))
                if np.all(np.abs(flat(frozen.here) - exact) <= near):
                    return frozen
            except StopgradError:
                pass  # An operation does not support it.
        if self._settings.epsilon > 1e-12:
            self.notes.append(
                "differences are taken in the precision of the graph; in double precision it computes "
                "something else, such as other random numbers"
            )
        return None

    def _in_complex(self) -> Frozen | None:
        """The function of complex numbers, if all is real and all that moves is holomorphic."""
        inside = list(walk(self.operations))
        tensors = [*self._posed.xs, *(y for op in inside for y in op.outputs)]
        if self._drawn or any(x.dtype.is_complex for x in tensors):
            return None
        for op in inside:
            why = op.definition.not_holomorphic
            if why is not None:
                self.notes.append(f"no complex step: {op.type} is not holomorphic: {why}")
                return None
        try:
            frozen = Frozen(self._posed, self._ys, COMPLEX, self._settings.holding)
        except StopgradError:
            return None  # An operation takes no complex numbers.
        if any(y.dtype.is_floating for op in walk(frozen.moving) for y in op.outputs):
            return None
        near = 1e-9 * np.max(np.abs(self.here), initial=0.0)
        parts = flat([np.real(y) for y in frozen.here])
        return frozen if np.all(np.abs(parts - self.here) <= near) else None

    def point(self, which: int) -> NumpyArray:
        """One x at the base point, as a vector."""
        return flat([self._plain.points[which]])

    def along(self, which: int, direction: NumpyArray, size: float) -> Slope:
        """The slopes of ys as one x moves in a direction, by differences with steps relative to *size*."""

        def curve(step: float) -> NumpyArray:
            return self.moved(which, step * direction)

        return slope_at(curve, self.here, size, self._steps, self._settings.rtol / 10.0, self._inside)

    def moved(self, which: int, change: NumpyArray) -> NumpyArray:
        """The values of ys where one x is changed by a vector."""
        there, like = self.point(which) + change, self._plain.points[which]
        there = there.view(np.complex128) if like.dtype.kind == "c" else there
        return flat(self._plain.at(which, there.reshape(like.shape)))

    def by_complex_step(self, which: int, direction: NumpyArray, size: float) -> Slope | None:
        """The same by a step along the imaginary axis; None if that is not possible."""
        held = self._complex
        if held is None:
            return None
        point = held.points[which]

        def curve(step: complex) -> tuple[NumpyArray, NumpyArray]:
            try:
                values = held.at(which, point + step * direction.reshape(point.shape))
            except StopgradError:
                values = [np.full(y.shape, np.nan) for y in held.here]
            return flat([np.real(y) for y in values]), flat([np.imag(y) for y in values])

        return complex_slope(curve, self.here, size)
