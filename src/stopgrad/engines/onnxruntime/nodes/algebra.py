"""Products of matrices, as nodes."""

from __future__ import annotations

from typing import Any

from stopgrad.engines.onnxruntime.nodes.node_writing import Writing, writes
from stopgrad.engines.onnxruntime.nodes.values import Operand
from stopgrad.graph.type_rules import broadcast_shapes


class Algebra(Writing):
    """Products of matrices."""

    @writes
    def matmul(self, x: Operand, y: Operand) -> Any:
        dtype = self.common(x, y)
        x, y = self.value(x, dtype), self.value(y, dtype)
        batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
        rows = x.shape[-2:-1] if x.ndim > 1 else ()
        columns = y.shape[-1:] if y.ndim > 1 else ()
        return self.node("MatMul", [x, y], dtype, (*batch, *rows, *columns))
