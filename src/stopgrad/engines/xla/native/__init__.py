"""Kernels in C++ that XLA calls where they are faster than its own. They need a C++ compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stopgrad.base.namespaces import require
from stopgrad.engines.xla.native import convolution, paying, rows
from stopgrad.engines.xla.native.library import library, loaded
from stopgrad.engines.xla.native.paying import Compile
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Region

__all__ = ["Kernels", "candidates", "kernels", "library", "loaded", "regions"]


def candidates(operations: Sequence[Operation], wanted: Sequence[Output]) -> Sequence[Region]:
    """The regions of a graph that kernels can compute."""
    convolutions = convolution.regions(operations, wanted)
    taken = {op for region in convolutions for op in region.operations}
    return [*convolutions, *rows.regions(operations, wanted, taken)]


class Kernels(NamedTuple):
    """The kernels of this machine.

    Attributes:
        library: the name of their file; None if there are none.
        slow: the kinds that gain nothing.
    """

    library: str | None
    slow: tuple[str, ...] = ()


def kernels(compile: Compile) -> Kernels:
    """The kernels, which are built and measured when they are first needed.

    Args:
        compile: compiles the graphs by which kernels are measured, once per machine.
    """
    native = library()
    if native.path is None:
        return Kernels(None)
    version = require("jaxlib.version", "the xla engine", "xla").__version__
    return Kernels(native.path.name, tuple(sorted(paying.slower(native.path, version, compile))))


def regions(
    operations: Sequence[Operation], wanted: Sequence[Output], probe: Callable[[], Kernels]
) -> Sequence[Region]:
    """The regions of a graph that kernels compute, for :func:`stopgrad.graph.interpreter.program`.

    Args:
        operations: those of one graph, in order.
        wanted: the results of the graph.
        probe: returns the kernels. Called only if there is something to compute, since this may build them.
    """
    possible = candidates(operations, wanted)
    if not possible or (available := probe()).library is None:
        return ()
    slow = available.slow
    return [region for region in possible if paying.kind_of(region) not in slow] if slow else possible
