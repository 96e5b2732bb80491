"""Kernels in C++ that XLA calls where they are faster than its own. They need a C++ compiler."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.engines.xla.native import convolution, pooling, rows
from stopgrad.engines.xla.native.library import library, loaded
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region

__all__ = ["library", "loaded", "regions"]


def regions(operations: Sequence[Operation], wanted: Sequence[Output]) -> Sequence[Region]:
    """The regions of a graph that kernels compute, for :func:`stopgrad.graph.interpreter.program`."""
    found = [*convolution.regions(operations, wanted), *pooling.regions(operations, wanted)]
    found += rows.regions(operations, wanted, {op for region in found for op in region.operations})
    # Asked last, because this builds the kernels when they are first needed.
    return found if found and library().available else ()
