"""XLA on a mesh of devices: one program, which XLA's partitioner divides. Imported with the first mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stopgrad.base.arrays import Array
from stopgrad.engines.protocol import PLAIN, Compiled, Engine, Variant
from stopgrad.engines.xla import XlaEngine
from stopgrad.engines.xla.compiler_options import compiler_options
from stopgrad.engines.xla.placement import Placement
from stopgrad.engines.xla.result_memory import handed_over
from stopgrad.graph.body import walk
from stopgrad.graph.fingerprint import lines_of
from stopgrad.graph.graph import Output
from stopgrad.graph.interpreter import program
from stopgrad.graph.sharding import Spec
from stopgrad.ops.structural.sharding import declared_sharding
from stopgrad.rewrite.forms import DIVIDED
from stopgrad.rewrite.forms.divided import contract_in_place
from stopgrad.scale.distributed import agree
from stopgrad.scale.meshes import Mesh
from stopgrad.scale.processes import process_count


class XlaOnMesh(XlaEngine):
    """Compiles with XLA, for the devices of a mesh."""

    # XLA can divide its own operations, but not our kernels.
    variants = (Variant("forms", DIVIDED, (contract_in_place,)), PLAIN)
    checks = False

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self._placement = Placement(self._jax, mesh, self._settings)
        self.namespace.constrained = self._placement.constrained

    def compile(
        self,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        donate: Sequence[int] = (),
        variant: Variant = PLAIN,
    ) -> Compiled:
        """A program for all devices of the mesh."""
        before, after = [declared_sharding(x) for x in inputs], [declared_sharding(y) for y in outputs]
        if process_count() > 1:
            facts = [repr(self.mesh), f"sharding {before} {after}", f"{variant.name} {tuple(donate)}"]
            lines, shown = lines_of(inputs, outputs)
            agree(
                "compiling the graph",
                [*facts, *lines],
                shown=lambda i: facts[i] if i < len(facts) else shown(i - len(facts)),
            )
        placement = self._placement
        shardings = [placement.sharding(spec) for spec in before]
        interpret = program(inputs, outputs, self)
        jit = self._jax.jit(
            lambda *arrays: interpret(arrays),
            in_shardings=tuple(shardings),
            out_shardings=[placement.sharding(spec) if spec else None for spec in after],
            donate_argnums=tuple(donate),
            keep_unused=bool(donate),
        )
        kinds = [self._jax.ShapeDtypeStruct(x.shape, x.dtype.numpy) for x in inputs]
        operations = [*walk(outputs[0].op.graph.subgraph_to(outputs))] if outputs else []
        backend = self._jax.default_backend()
        options = {} if variant is PLAIN else compiler_options(operations, backend)
        details = (repr(self.mesh), before, after, variant.name, tuple(donate))
        parts = (lambda: jit.lower(*kinds), inputs, outputs, options, details)
        compiled = self._settings.fixed(True, lambda: self._programs.compile(*parts, placement.devices))
        config = self._jax.config

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            ready = [placement.ready(x, sharding) for x, sharding in zip(arrays, shardings, strict=True)]
            if config.jax_debug_nans or config.jax_debug_infs:
                return self._settings.fixed(True, compiled, *ready)
            return compiled(*ready)

        run.executable = compiled  # type: ignore[attr-defined] # For those who want to look at it.
        return self.raising(run, operations)

    def hold(self, array: npt.ArrayLike) -> Any:
        return self._placement.hold(array, ())

    def spec_of(self, value: object) -> Spec:
        return self._placement.spec_of(value) or ()

    def spread(self, array: npt.ArrayLike, spec: Spec) -> Any:
        return self._placement.hold(array, spec)

    def place(self, value: Array, spec: Spec) -> Any:
        return self._placement.place(value, spec)

    def layout(self, spec: Spec) -> Any:
        return self._placement.sharding(spec)

    def fetched(self, value: npt.ArrayLike) -> np.ndarray[Any, Any]:
        return handed_over(self._placement.fetched(value))

    taken = Engine.taken

    def agree(self, what: str, lines: Callable[[], Sequence[str]]) -> None:
        if process_count() > 1:
            agree(what, lines())


XlaEngine.on_mesh = XlaOnMesh  # type: ignore[method-assign]
