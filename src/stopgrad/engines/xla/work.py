"""A graph as it is compiled: what is done outside of the program, what kernels compute, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from stopgrad.base.types import complex128, float64, int64, uint64
from stopgrad.engines.protocol import PLAIN, Variant
from stopgrad.engines.xla.compiler_options import compiler_options
from stopgrad.engines.xla.edges import Edges, edges
from stopgrad.engines.xla.native import Kernels, kernels, loaded, regions
from stopgrad.engines.xla.native.paying import Compile
from stopgrad.engines.xla.stored_plans import Plan
from stopgrad.graph.body import bodies_in, walk
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.interpreter import Backend, Region, Run, program

WIDE = frozenset({float64, int64, uint64, complex128})
"""The types for which JAX needs its 64-bit mode."""


class Work:
    """What is compiled of a graph, each part found when it is asked for.

    Args:
        inputs: the inputs of the graph.
        outputs: its outputs.
        variant: the engine's variant, in whose form the graph is.
        engine: the engine.
        platform: where it computes.
        probe: compiles the graphs by which kernels are measured.

    Attributes:
        edges: the graph without what is done outside of the program; None if that is nothing.
        inputs: the inputs of the program.
        outputs: its outputs.
    """

    inputs: Sequence[Output]
    outputs: Sequence[Output]

    def __init__(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        variant: Variant,
        engine: Backend,
        platform: str,
        probe: Compile,
    ) -> None:
        self.edges: Edges | None = None if variant is PLAIN else edges(inputs, outputs)
        self.inputs = inputs if self.edges is None else self.edges.inputs
        self.outputs = outputs if self.edges is None else self.edges.outputs
        self._variant, self._engine, self._platform, self._probe = variant, engine, platform, probe
        self._regions: dict[tuple[Output, ...], Sequence[Region]] = {}
        self._kernels: Kernels | None = None

    @cached_property
    def operations(self) -> Sequence[Operation]:
        """All operations, those in bodies included."""
        return [*walk(self.outputs[0].op.graph.subgraph_to(self.outputs))] if self.outputs else []

    @cached_property
    def plain(self) -> Run:
        """The program without kernels."""
        return program(self.inputs, self.outputs, self._engine)

    @cached_property
    def fast(self) -> Run:
        """The program with the kernels that pay."""
        if self._variant.name != "native" or self._platform != "cpu":
            return self.plain
        run = program(self.inputs, self.outputs, self._engine, self._regions_for)
        # The interpreter visits bodies only while JAX traces, which is too late for the program's name.
        for body in {body for op in self.operations for body in bodies_in(op.values)}:
            self._regions_for(body.operations(), body.ends)
        return run

    def _regions_for(self, operations: Sequence[Operation], wanted: Sequence[Output]) -> Sequence[Region]:
        key = tuple(wanted)
        chosen = self._regions.get(key)
        if chosen is None:
            chosen = self._regions[key] = regions(operations, wanted, self._probed)
        return chosen

    def _probed(self) -> Kernels:
        if self._kernels is None:
            self._kernels = kernels(self._probe)
        return self._kernels

    @cached_property
    def wide(self) -> bool:
        """Whether it computes with 64-bit types."""
        ours = any(y.dtype in WIDE for op in self.operations for y in op.outputs)
        return ours or any(x.dtype in WIDE for x in self.inputs)

    @cached_property
    def options(self) -> dict[str, str]:
        """The compiler's options."""
        return {} if self._variant is PLAIN else compiler_options(self.operations, self._platform)

    @property
    def details(self) -> tuple[Any, ...]:
        """What the kernels make of it: a program that was compiled with kernels cannot run without them."""
        assert self.fast is not None
        count = sum(map(len, self._regions.values()))
        return loaded() if count else None, count

    def plan(self, donate: Sequence[int]) -> Plan:
        """What runs the compiled program without this graph."""
        outside = None if self.edges is None else self.edges.outside
        types = [x.type for x in self.inputs]
        return Plan(types, len(self.outputs), tuple(donate), self.wide, self._kernels, outside)
