"""XLA, through JAX's documented interface: one ``jax.jit`` per compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stopgrad.engines.protocol import Compiled, failed, lowering, program
from stopgrad.graph import Output
from stopgrad.namespaces import jax_namespace, require
from stopgrad.types import complex128, float64, int64, uint64

_WIDE = (float64, int64, uint64, complex128)


class XlaEngine:
    """Compiles each operation's ``xla`` definition.

    64-bit types are enabled around the calls that compute with them, and only there: the process's own JAX settings
    stay as they are.
    """

    name = "xla"

    def __init__(self) -> None:
        self._jax = require("jax", "the xla engine", "xla")
        self._namespace = jax_namespace()
        self._array = self._jax.Array

    def compile(self, inputs: Sequence[Output], outputs: Sequence[Output], donate: Sequence[int] = ()) -> Compiled:
        operations = program(inputs, outputs)
        steps = [(op, lowering(op, "xla"), dict(op.attributes), op.inputs, op.outputs) for op in operations]
        namespace, enable_x64 = self._namespace, self._jax.enable_x64

        def trace(*arrays: Any) -> list[Any]:
            values: dict[Output, Any] = dict(zip(inputs, arrays, strict=True))
            for op, function, attributes, reads, writes in steps:
                try:
                    made = function(namespace, *[values[x] for x in reads], **attributes)
                except Exception as error:
                    raise failed(op, "xla", error) from error
                for y, value in zip(writes, made if len(writes) > 1 else (made,), strict=True):
                    values[y] = namespace.asarray(value, y.dtype.numpy)
            return [values[y] for y in outputs]

        compiled = self._jax.jit(trace, donate_argnums=tuple(donate))

        def run(arrays: Sequence[Any]) -> Sequence[Any]:
            return compiled(*arrays)

        def run_with_64_bits(arrays: Sequence[Any]) -> Sequence[Any]:
            with enable_x64(True):
                return compiled(*arrays)

        wide = any(y.dtype in _WIDE for op in operations for y in op.outputs) or any(x.dtype in _WIDE for x in inputs)
        return run_with_64_bits if wide else run

    def hold(self, array: Any) -> Any:
        with self._jax.enable_x64(True):
            # A copy: on a CPU, JAX would otherwise share the caller's memory, which donation then overwrites.
            return self._namespace.array(np.asarray(array), copy=True)

    def is_native(self, x: Any) -> bool:
        return isinstance(x, self._array)
