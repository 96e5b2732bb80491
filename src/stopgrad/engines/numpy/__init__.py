"""The reference engine: NumPy, one operation after the other. Large arrays are computed in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.base.types import Size
from stopgrad.engines.protocol import PLAIN, Compiled, Engine, Variant
from stopgrad.engines.registry import register
from stopgrad.graph import rowwise
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import compiled
from stopgrad.graph.operands import NumpyArray


@register
class NumPyEngine(Engine):
    """Interprets a graph with NumPy, without NumPy's floating-point warnings."""

    name = "numpy"
    priority = 0
    checks = True
    variants: Sequence[Variant] = (Variant("pieces"), PLAIN)

    def compile(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int] = (),
        variant: Variant = PLAIN,
    ) -> Compiled:
        compute = compiled(inputs, outputs, None if variant is PLAIN else rowwise.regions)

        def run(arrays: Sequence[Any]) -> list[Any]:
            return _apart(compute(*arrays), arrays)

        shapes = None if any(x.type.symbolic for x in inputs) else [x.shape for x in inputs]
        run.direct = partial(_direct, run, shapes)  # type: ignore[attr-defined]
        return run

    def hold(self, array: npt.ArrayLike) -> NumpyArray:
        return np.array(array)

    def is_native(self, x: object) -> bool:
        return type(x) is np.ndarray and x.dtype.isnative

    def taken(self, values: Sequence[Any]) -> Sequence[Any]:
        return values


def _direct(
    run: Compiled, shapes: Sequence[tuple[Size, ...]] | None, arrays: Sequence[Any]
) -> Callable[..., Sequence[Any]] | None:
    """A function of arrays like these, or floats, that does what *run* does; None for symbolic sizes."""
    if shapes is None:
        return None
    floats = [i for i, x in enumerate(arrays) if type(x) is float]

    def direct(*values: Array | float) -> Sequence[Any]:
        if floats:
            arrays = [*values]
            for i in floats:
                arrays[i] = np.asarray(values[i], np.float32)
            values = (*arrays,)
        if [*map(_SHAPE, values)] != shapes:
            raise ValueError("arrays of other shapes")
        return run(values)

    return direct


_SHAPE = attrgetter("shape")


def _apart(values: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Copies results that share memory with what was fed or with each other.

    A session may hand one result out and keep another.
    """
    taken = {id(array) for array in arrays}
    apart = []
    for value in values:
        if value.base is not None or not value.flags.writeable or id(value) in taken:
            value = np.array(value)
        taken.add(id(value))
        apart.append(value)
    return apart
