"""Kernels in C++ that XLA calls where they are faster than its own. They need a C++ compiler."""

from __future__ import annotations

from collections.abc import Sequence

from stopgrad.base.namespaces import require
from stopgrad.engines.xla.native import convolution, paying, rows
from stopgrad.engines.xla.native.library import library, loaded
from stopgrad.engines.xla.native.paying import Compile
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region

__all__ = ["candidates", "library", "loaded", "regions"]


def candidates(operations: Sequence[Operation], wanted: Sequence[Output]) -> Sequence[Region]:
    """The regions of a graph that kernels can compute."""
    found = convolution.regions(operations, wanted)
    return [*found, *rows.regions(operations, wanted, {op for region in found for op in region.operations})]


def regions(operations: Sequence[Operation], wanted: Sequence[Output], compile: Compile) -> Sequence[Region]:
    """The regions of a graph that kernels compute, for :func:`stopgrad.graph.interpreter.program`.

    Args:
        operations: those of one graph, in order.
        wanted: the results of the graph.
        compile: compiles the graphs by which kernels are measured, once per machine.
    """
    found = candidates(operations, wanted)
    # Asked last, because this builds the kernels when they are first needed.
    if not found or not (kernels := library()).available:
        return ()
    assert kernels.path is not None
    version = require("jaxlib.version", "the xla engine", "xla").__version__
    slow = paying.slower(kernels.path, version, compile)
    return [region for region in found if paying.kind_of(region) not in slow] if slow else found
