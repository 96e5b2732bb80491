"""Products of matrices, convolutions, attention, and linear algebra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.shared import convolutions
from stopgrad.interop.shared.conversions import Refused, Value, brought, pulled, spread
from stopgrad.interop.torch.importing.aten.calling import Call, Table, table


def _multiplied(call: Call, a: sg.Output, b: sg.Output, *_: object) -> sg.Output:
    return sg.matmul(a, b)


def _scaled(x: sg.Output, factor: Value) -> sg.Output:
    return x if factor == 1 else sg.multiply(x, brought(factor, x.dtype, x))


def _added(
    call: Call, x: sg.Output, a: sg.Output, b: sg.Output, *, beta: float = 1, alpha: float = 1
) -> sg.Output:
    return _added_to(x, sg.matmul(a, b), beta, alpha)  # With beta = 0, x is not read: its NaN does not count.


# ------------------------------------------------------------------------------------------ convolutions


def convolved(
    call: Call,
    x: sg.Output,
    weight: sg.Output,
    bias: sg.Output | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> sg.Output:
    """``aten.convolution``: x is [batch, channels, ...], the weight [output channels, channels, ...]."""
    spatial = weight.ndim - 2
    if spatial not in convolutions.LAYOUTS:
        raise Refused("there are convolutions over one to three axes here")
    stride, dilation, output_padding = (spread(n, spatial) for n in (stride, dilation, output_padding))
    pads = [(n, n) for n in spread(padding, spatial)]
    if transposed:
        return convolutions.transposed(x, weight, bias, stride, pads, dilation, output_padding, groups)
    return convolutions.convolved(x, weight, bias, stride, pads, dilation, groups)


def _convolution_gradient(
    call: Call,
    g: sg.Output,
    x: sg.Output,
    weight: sg.Output,
    bias_sizes: Sequence[Size],
    *options: Any,
) -> tuple[Any, ...]:
    *parameters, mask = options
    operands = [x, weight]
    dx, dw = pulled(lambda x, w: convolved(call, x, w, None, *parameters), operands, [g])
    axes = (0, *range(2, g.ndim))
    return (
        dx if mask[0] else None,
        dw if mask[1] else None,
        sg.reduce_sum(g, axis=axes) if mask[2] else None,
    )


# ------------------------------------------------------------------------------- windows as columns


# ----------------------------------------------------------------------------------------- attention


def _attention(
    call: Call,
    query: sg.Output,
    key: sg.Output,
    value: sg.Output,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: sg.Output | None = None,
    scale: float | None = None,
) -> tuple[sg.Output, None]:
    if dropout_p:
        raise Refused(
            "attention with dropout is translated from its parts; call model.eval() or use dropout=0"
        )
    y = sg.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale)
    return y, None


def _whole_attention(
    call: Call,
    query: sg.Output,
    key: sg.Output,
    value: sg.Output,
    attn_mask: sg.Output | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> sg.Output:
    unseen = None
    if attn_mask is not None and not attn_mask.dtype.is_bool:
        # If all keys of a query have -∞, its result is 0, as if a boolean mask excluded all of them.
        unseen = sg.reduce_all(sg.equal(attn_mask, brought(-math.inf, attn_mask.dtype)), -1, True)
        attn_mask = sg.where(unseen, brought(0, attn_mask.dtype), attn_mask)
    y = sg.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        dropout_key=call.key() if dropout_p else None,
    )
    return y if unseen is None else sg.where(unseen, brought(0, y.dtype), y)


# --------------------------------------------------------------------------------- matrices as a whole


def _triangular(
    call: Call, a: sg.Output, b: sg.Output, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> sg.Output:
    if unitriangular:
        eye = sg.eye(a.shape[-1], dtype=a.dtype)
        a = sg.where(sg.not_equal(eye, brought(0, eye.dtype)), eye, a)
    if left:
        return sg.triangular_solve(a, b, lower=not upper)
    t = sg.triangular_solve(sg.swapaxes(a, -1, -2), sg.swapaxes(b, -1, -2), lower=upper)
    return sg.swapaxes(t, -1, -2)


def _solved(
    call: Call, a: sg.Output, b: sg.Output, *, left: bool = True, **_: object
) -> tuple[sg.Output, None, None, None]:
    if any(call.uses(i) for i in (1, 2, 3)):
        raise Refused("of linalg.solve_ex only the solution is translated")
    if not left:
        raise Refused("linalg.solve with left=False has no translation; transpose both sides")
    vector = b.ndim == a.ndim - 1
    y = sg.solve(a, sg.expand_dims(b, -1) if vector else b)
    return (sg.squeeze(y, -1) if vector else y), None, None, None


def _inverse(call: Call, a: sg.Output, **_: object) -> tuple[sg.Output, sg.Output]:
    return sg.inv(a), _no_failure(a)


def _factor(call: Call, a: sg.Output, *, upper: bool = False, **_: object) -> tuple[sg.Output, sg.Output]:
    y = sg.cholesky(a)
    return (sg.adjoint(y) if upper else y), _no_failure(a)


def _no_failure(a: sg.Output) -> Tensor:
    """``info`` of LAPACK for each matrix: 0, which says that the factorisation succeeded."""
    return sg.zeros(list(a.shape[:-2]), sg.int32)


def _orthogonal(call: Call, a: sg.Output, mode: str = "reduced") -> tuple[sg.Output, sg.Output]:
    if mode == "r":
        raise Refused("linalg.qr with mode='r' has no translation; take the second result of mode='reduced'")
    q, r = sg.qr(a, full_matrices=mode == "complete")
    return q, r


def _singular(
    call: Call,
    a: sg.Output,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[None, sg.Output, None] | tuple[Any, Any, Any]:
    if not compute_uv:
        return None, sg.svdvals(a), None
    s, u, v = sg.svd(a, full_matrices=full_matrices)
    return u, s, sg.adjoint(v)


def _eigen_general(call: Call, a: sg.Output) -> tuple[sg.Output, sg.Output]:
    values, vectors = sg.eig(a)
    return values, vectors


def _cholesky_solved(call: Call, b: sg.Output, chol: sg.Output, upper: bool = False) -> sg.Output:
    return sg.cholesky_solve(sg.adjoint(chol) if upper else chol, b)


def _summed_products(
    call: Call, x: sg.Output, a: sg.Output, b: sg.Output, *, beta: Value = 1, alpha: Value = 1
) -> sg.Output:
    return _added_to(x, sg.reduce_sum(sg.matmul(a, b), axis=0), beta, alpha)


def _added_to(x: sg.Output, product: sg.Output, beta: Value, alpha: Value) -> sg.Output:
    product = _scaled(product, alpha)
    return product if beta == 0 else sg.add(_scaled(x, beta), product)


def _determinant(call: Call, a: sg.Output) -> tuple[sg.Output, None, None]:
    return sg.det(a), None, None


def _log_determinant(call: Call, a: sg.Output) -> tuple[sg.Output, sg.Output, None, None]:
    return (*sg.slogdet(a), None, None)


def _eigen(call: Call, a: sg.Output, uplo: str = "L", compute_v: bool = True) -> tuple[sg.Output, sg.Output]:
    # PyTorch reads one triangle only. What a symmetric matrix is computed from gets PyTorch's gradient.
    lower = sg.tril(a) if uplo == "L" else sg.adjoint(sg.triu(a))
    eye = sg.eye(a.shape[-1], dtype=a.dtype)
    whole = sg.subtract(sg.add(lower, sg.adjoint(lower)), sg.multiply(lower, eye))
    values, vectors = sg.eigh(whole)
    return values, vectors


PRODUCTS: Table = dict(
    table(
        {
            "mm bmm": _multiplied,
            "addmm addmv": _added,
            "convolution": convolved,
            "convolution_backward": _convolution_gradient,
            "_scaled_dot_product_flash_attention_for_cpu": _attention,
            "scaled_dot_product_attention": _whole_attention,
            "linalg_solve_triangular": _triangular,
            "_linalg_solve_ex": _solved,
            "linalg_inv_ex": _inverse,
            "linalg_cholesky_ex": _factor,
            "_linalg_det": _determinant,
            "_linalg_slogdet": _log_determinant,
            "_linalg_eigh": _eigen,
            "linalg_qr": _orthogonal,
            "_linalg_svd": _singular,
            "linalg_eig": _eigen_general,
            "cholesky": lambda call, a, upper=False: _factor(call, a, upper=upper)[0],
            "cholesky_solve": _cholesky_solved,
            "linalg_matrix_exp": lambda call, a: sg.expm(a),
            "addbmm": _summed_products,
        }
    )
)
