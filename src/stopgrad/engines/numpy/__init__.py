"""The reference engine: NumPy, one operation after the other. Large arrays are computed in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.engines.protocol import PLAIN, Compiled, Engine, Variant
from stopgrad.engines.registry import register
from stopgrad.graph import rowwise
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import computation


@register
class NumPyEngine(Engine):
    """Interprets a graph with NumPy, without NumPy's floating-point warnings."""

    name = "numpy"
    priority = 0
    variants = (Variant("pieces"), PLAIN)

    def compile(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int] = (),
        variant: Variant = PLAIN,
    ) -> Compiled:
        compute = computation(inputs, outputs, None if variant is PLAIN else rowwise.regions)
        return lambda arrays: _apart(compute(arrays), arrays)

    def hold(self, array: npt.ArrayLike) -> Any:
        return np.array(array)

    def is_native(self, x: object) -> bool:
        return type(x) is np.ndarray and x.dtype.isnative


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
