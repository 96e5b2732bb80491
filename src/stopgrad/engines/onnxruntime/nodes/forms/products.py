"""Products of matrices and sums of products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stopgrad.base.arrays import Array
from stopgrad.engines.onnxruntime.nodes.forms.common_nodes import reshaped
from stopgrad.engines.onnxruntime.nodes.node_writing import Writing
from stopgrad.graph.op import Op
from stopgrad.ops.linalg.contractions import Einsum, MatMul, sizes_in

_GEMM = frozenset(map(np.dtype, ("float32", "float64")))
"""The dtypes for which the runtime has Gemm, which transposes its operands itself."""


def _matmul(xp: Writing, a: Array, b: Array, *, transpose_a: bool, transpose_b: bool) -> Any:
    m, n = a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1]
    if (transpose_a or transpose_b) and a.ndim == b.ndim == 2 and a.dtype in _GEMM:
        turned = {"transA": 1} if transpose_a else {}
        turned |= {"transB": 1} if transpose_b else {}
        return xp.node("Gemm", [a, b], a.dtype, (m, n), **turned)
    a = xp.swapaxes(a, -1, -2) if transpose_a else a
    b = xp.swapaxes(b, -1, -2) if transpose_b else b
    return xp.matmul(a, b)


def _einsum(xp: Writing, *xs: Array, equation: str) -> Any:
    """Axes of size 1 that are to be broadcast are dropped: ONNX's Einsum does not broadcast them."""
    subscripts, _, right = equation.partition("->")
    sizes = sizes_in(equation, [x.shape for x in xs])
    terms, operands = [], []
    for term, x in zip(subscripts.split(","), xs, strict=True):
        axes = [i for i, label in enumerate(term) if x.shape[i] != 1 or sizes[label] == 1]
        terms.append("".join(term[i] for i in axes))
        operands.append(reshaped(xp, x, tuple(x.shape[i] for i in axes)))
    reduced_equation = f"{','.join(terms)}->{right}"
    return xp.node(
        "Einsum", operands, xs[0].dtype, tuple(sizes[label] for label in right), equation=reduced_equation
    )


PRODUCTS: Mapping[type[Op], Callable[..., Any]] = {MatMul: _matmul, Einsum: _einsum}
