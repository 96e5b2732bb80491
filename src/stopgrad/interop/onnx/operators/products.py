"""Operators of linear algebra."""

from __future__ import annotations

import stopgrad as sg
from stopgrad.interop.onnx.operators.calling import Call, Table
from stopgrad.interop.shared.conversions import brought


def _product(node: Call, a: sg.Output, b: sg.Output) -> sg.Output:
    """``matmul`` as NumPy's, in which an operand may be a vector."""
    if not a.ndim or not b.ndim:
        node.fail("a product of matrices takes no scalars")
    left = sg.expand_dims(a, 0) if a.ndim == 1 else a
    right = sg.expand_dims(b, 1) if b.ndim == 1 else b
    product = sg.matmul(left, right)
    product = sg.squeeze(product, product.ndim - 1) if b.ndim == 1 else product
    return sg.squeeze(product, product.ndim - (1 if b.ndim == 1 else 2)) if a.ndim == 1 else product


def _scaled(x: sg.Output, factor: float) -> sg.Output:
    return x if factor == 1.0 else sg.multiply(x, brought(factor, x.dtype))


def _affine(node: Call, a: sg.Output, b: sg.Output, c: sg.Output | None = None) -> sg.Output:
    """alpha · a · b + beta · c, with a and b transposed as the attributes say."""
    if a.ndim != 2 or b.ndim != 2:
        node.fail("it multiplies two matrices")
    first, second = (bool(node.attribute(name, 0)) for name in ("transA", "transB"))
    product = _scaled(sg.matmul(a, b, first, second), node.attribute("alpha", 1.0))
    return product if c is None else sg.add(product, _scaled(c, node.attribute("beta", 1.0)))


def _summed(node: Call, *xs: sg.Output) -> sg.Output:
    return sg.einsum(node.attribute("equation").replace(" ", ""), *xs)


def _determinant(node: Call, x: sg.Output) -> sg.Output:
    return sg.det(x)


PRODUCTS: Table = {
    "MatMul": _product,
    "Gemm": _affine,
    "Einsum": _summed,
    "Det": _determinant,
}
