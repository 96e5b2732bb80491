"""Casts; and random draws and integrals in the form that they have for XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.base.types import DType
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.engines.onnxruntime.nodes.onnx_nodes import NO_COMPLEX, NotInOnnx
from stopgrad.graph.op import Op
from stopgrad.ops.elementwise.convert import Cast, Complex
from stopgrad.ops.random.rejection import RandomLogGamma, RandomPoisson
from stopgrad.ops.special.incomplete import BetaMoment, LogGammaMoment


def _cast(xp: Writing, x: Array, *, dtype: DType) -> Any:
    """Casts from floating-point to integer dtypes saturate, and NaN becomes 0."""
    x, target = xp.value(x), dtype.numpy
    if not dtype.is_integer or x.dtype.kind in "biu":
        return xp.cast(x, target)
    limits = np.iinfo(target)
    x = xp.cast(x, np.float32) if x.dtype.itemsize < 4 else x
    low, beyond = float(limits.min), float(limits.max // 2 + 1) * 2.0
    inside = (x >= low) & (x < beyond)
    integers = xp.cast(xp.where(inside, x, np.zeros((), x.dtype)), target)
    integers = xp.where(x < low, np.array(limits.min, target), integers)
    return xp.where(x >= beyond, np.array(limits.max, target), integers)


def _complex(xp: Writing, real: Array, imag: Array) -> Any:
    raise NotInOnnx(NO_COMPLEX)


# For XLA, draws are loops until no rejection is left, and integrals are one sum over an axis.
NUMBERS: Mapping[type[Op], Callable[..., Any]] = {
    Cast: _cast,
    Complex: _complex,
    **{definition: definition.xla for definition in (RandomLogGamma, RandomPoisson)},
    **{definition: definition.xla for definition in (LogGammaMoment, BetaMoment)},
}
