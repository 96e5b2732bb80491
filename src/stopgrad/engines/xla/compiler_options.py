"""Options of XLA's compiler, some of which depend on a graph's operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stopgrad.base.memory import keeps_memory
from stopgrad.engines.xla.result_memory import PIECE
from stopgrad.graph.graph import Operation
from stopgrad.ops.neural.convolution import Conv, ConvBackpropFilter, ConvBackpropInput

if TYPE_CHECKING:
    import jax

_CONVOLUTIONS = frozenset({Conv, ConvBackpropFilter, ConvBackpropInput})

# The library that XLA uses for parts of a graph is good at sums and products, but computes convolutions in
# one thread: without it, a convolution 3 × 3, 32 → 64 takes 10 ms instead of 19 on two cores.
_NO_CONVOLUTIONS = "LIBRARY_FUSION_TYPE_REDUCE,LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"

CHEAP_KERNELS: Mapping[str, str | bool] = MappingProxyType({"xla_cpu_use_fusion_emitters": False})
"""Options for programs that only cut arrays apart: their kernels compile in half the time."""


def memory_options(platform: str) -> dict[str, str]:
    """The options for any graph by which memory can be kept between calls."""
    if platform == "cpu" and keeps_memory():
        return {"xla_multiheap_size_constraint_per_heap": str(PIECE)}
    return {}


def compiler_options(operations: Iterable[Operation], platform: str) -> dict[str, str]:
    """The options for a graph of these operations, those in bodies included, on a platform."""
    options = memory_options(platform)
    if platform == "cpu" and any(op.definition in _CONVOLUTIONS for op in operations):
        options["xla_cpu_experimental_ynn_fusion_type"] = _NO_CONVOLUTIONS
    return options


def compile_lowered(lowered: jax.stages.Lowered, options: Mapping[str, str | bool]) -> Any:
    """Compile what JAX lowered; without the options if this version of XLA does not know them."""
    if options:
        try:
            return lowered.compile(compiler_options=dict(options))
        except RuntimeError as error:
            if "compile option" not in str(error) and "setting option" not in str(error):
                raise
    return lowered.compile()
