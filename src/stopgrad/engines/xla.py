"""XLA, through JAX's documented interface: one ``jax.jit`` per compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.body import Body, bodies_in
from stopgrad.engines.protocol import Compiled
from stopgrad.graph import Operation, Output
from stopgrad.interpreter import program
from stopgrad.namespaces import jax_namespace, require
from stopgrad.types import complex128, float64, int64, uint64

_WIDE = (float64, int64, uint64, complex128)


class XlaEngine:
    """Compiles with XLA.

    64-bit types are enabled around the calls that compute with them, and only there: the process's own JAX
    settings stay as they are.
    """

    name = "xla"

    def __init__(self) -> None:
        self._jax = require("jax", "the xla engine", "xla")
        self.namespace = jax_namespace()
        self._array = self._jax.Array

    def array(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """What a lowering returned, as an array of the inferred dtype."""
        return self.namespace.asarray(value, dtype)

    def unsupported(self, operations: Sequence[Operation]) -> str | None:
        return None

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

        return (
            run_with_64_bits
            if _is_wide(Body(outputs[0].op.graph, inputs, outputs) if outputs else None)
            else run
        )

    def hold(self, array: Any) -> Any:
        with self._jax.enable_x64(True):
            # A copy: on a CPU, JAX would otherwise share the caller's memory, which donation then overwrites.
            return self.namespace.array(np.asarray(array), copy=True)

    def is_native(self, x: Any) -> bool:
        return isinstance(x, self._array)


def _is_wide(body: Body | None) -> bool:
    """Whether anything in a computation has a 64-bit type."""
    if body is None:
        return False
    operations = body.operations()
    outputs = [y for op in operations for y in op.outputs]
    return any(x.dtype in _WIDE for x in (*body.inputs, *outputs)) or any(
        _is_wide(inner) for op in operations if op.definition.has_bodies for inner in bodies_in(op.values)
    )
