"""The reference: NumPy, one operation after the other; large arrays in pieces, with the same results."""

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
    """Interprets with NumPy. Floating-point warnings are off: values say what happened."""

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
    """Results that share no memory with what was fed, nor with each other.

    One may be handed out, another kept.
    """
    taken = {id(array) for array in arrays}
    apart = []
    for value in values:
        if value.base is not None or not value.flags.writeable or id(value) in taken:
            value = np.array(value)
        taken.add(id(value))
        apart.append(value)
    return apart
