"""Narrows 64-bit types to 32 bits, if JAX has the former disabled."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from stopgrad.base.errors import EngineError, StopgradError
from stopgrad.base.types import DType, complex64, complex128, float32, float64, int32, int64, uint32, uint64
from stopgrad.graph.body import walk
from stopgrad.graph.graph import Output
from stopgrad.rewrite import rewrite

_NARROW: dict[DType, DType] = {float64: float32, complex128: complex64, int64: int32, uint64: uint32}


def are_wide_types_enabled() -> bool:
    """Whether JAX has 64-bit types enabled at present."""
    return bool(jax.config.jax_enable_x64)


def narrowed(inputs: Sequence[Output], outputs: Sequence[Output]) -> tuple[list[Output], list[Output]]:
    """A graph that JAX can compute: the same one, or one with each 64-bit type narrowed to 32 bits.

    Raises:
        EngineError: an operation works with 64 bits only.
    """
    operations = [*walk(outputs[0].op.graph.subgraph_to(outputs))] if outputs else []
    if are_wide_types_enabled() or all(y.dtype not in _NARROW for op in operations for y in op.outputs):
        return list(inputs), list(outputs)
    try:
        narrow = rewrite(outputs, inputs, dtypes=_NARROW)
    except StopgradError as error:
        raise EngineError(
            "this needs types of 64 bits, which JAX has disabled here; "
            f"jax.config.update('jax_enable_x64', True) enables them ({error.message})"
        ) from None
    return narrow.inputs, narrow.outputs
