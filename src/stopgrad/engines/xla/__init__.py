"""XLA, through JAX's documented interface: one ``jax.jit`` per compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.body import walk
from stopgrad.engines.protocol import Compiled, Engine
from stopgrad.engines.registry import register
from stopgrad.graph import Output
from stopgrad.interpreter import program
from stopgrad.namespaces import Namespace, require
from stopgrad.types import complex128, float64, int64, uint64

_WIDE = (float64, int64, uint64, complex128)


def jax_namespace() -> Namespace:
    """JAX's NumPy, with ``lax``, ``special`` and ``nn``."""
    numpy_of_jax = require("jax.numpy", "the xla engine", "xla")
    return Namespace(
        numpy_of_jax, "the xla engine", "xla", special="jax.scipy.special", lax="jax.lax", nn="jax.nn"
    )


@register
class XlaEngine(Engine):
    """Compiles with XLA.

    64-bit types are enabled around the calls that compute with them, and only there: the process's own JAX
    settings stay as they are.
    """

    name = "xla"
    priority = 100
    needs = ("jax",)

    def __init__(self) -> None:
        self._jax = require("jax", "the xla engine", "xla")
        self.namespace = jax_namespace()
        self._array = self._jax.Array

    def array(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """What a lowering returned, as an array of the inferred dtype."""
        return self.namespace.asarray(value, dtype)

    def compile(
        self, inputs: Sequence[Output], outputs: Sequence[Output], donate: Sequence[int] = ()
    ) -> Compiled:
        interpret = program(inputs, outputs, self)
        compiled = self._jax.jit(lambda *arrays: interpret(arrays), donate_argnums=tuple(donate))
        enable_x64 = self._jax.enable_x64

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            return compiled(*arrays)

        def run_with_64_bits(arrays: Sequence[Any]) -> Sequence[Any]:
            with enable_x64(True):
                return compiled(*arrays)

        operations = walk(outputs[0].op.graph.subgraph_to(outputs)) if outputs else ()
        wide = any(y.dtype in _WIDE for op in operations for y in op.outputs)
        return run_with_64_bits if wide or any(x.dtype in _WIDE for x in inputs) else run

    def hold(self, array: Any) -> Any:
        with self._jax.enable_x64(True):
            # A copy: on a CPU, JAX would otherwise share the caller's memory, which donation then overwrites.
            return self.namespace.array(np.asarray(array), copy=True)

    def is_native(self, x: Any) -> bool:
        return isinstance(x, self._array)
