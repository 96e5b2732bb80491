"""Loaded JAX functions have JAX's values and gradients: primitive by primitive."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_cases import Group, assert_round_trip, draw, ints

import stopgrad as sg
import stopgrad.jax as sgj
from stopgrad.interop.jax.primitives.indexing import Blocks

X = draw(3, 4)
Y = draw(3, 4, seed=1)
P = draw(3, 4, seed=2, low=0.2, high=3.0)
U = draw(3, 4, seed=3, low=-0.9, high=0.9)
I = ints(3, 4, low=-9, high=9)
J = ints(3, 4, seed=1, low=1, high=9)
W = ints(3, 4, seed=5, high=2**32, dtype=np.uint32)
B = X > 0

UNARY: dict[str, Any] = {
    "neg": X,
    "abs": X,
    "sign": X,
    "floor": X,
    "ceil": X,
    "exp": X,
    "exp2": X,
    "log": P,
    "log1p": P,
    "expm1": X,
    "sin": X,
    "cos": X,
    "tan": U,
    "asin": U,
    "acos": U,
    "atan": X,
    "sinh": X,
    "cosh": X,
    "tanh": X,
    "asinh": X,
    "acosh": P + 1,
    "atanh": U,
    "sqrt": P,
    "rsqrt": P,
    "cbrt": P,
    "square": X,
    "erf": X,
    "erfc": X,
    "erf_inv": U,
    "lgamma": P,
    "digamma": P,
    "bessel_i0e": X,
    "bessel_i1e": X,
    "is_finite": X,
    "logistic": X,
    "population_count": W,
    "clz": W,
    "bitwise_not": W,
    "reciprocal": P,
}
BINARY: dict[str, Any] = {
    "add": (X, Y),
    "sub": (X, Y),
    "mul": (X, Y),
    "div": (X, P),
    "rem": (X, P),
    "max": (X, Y),
    "min": (X, Y),
    "pow": (P, Y),
    "atan2": (X, Y),
    "igamma": (P, P),
    "igammac": (P, P),
    "nextafter": (X, Y),
    "eq": (I, J),
    "ne": (I, J),
    "lt": (X, Y),
    "le": (X, Y),
    "gt": (X, Y),
    "ge": (X, Y),
    "complex": (X, Y),
    "bitwise_and": (I, J),
    "bitwise_or": (I, J),
    "bitwise_xor": (I, J),
    "shift_left": (I, J),
    "shift_right_logical": (I, J),
    "shift_right_arithmetic": (I, J),
}


ORDERS = pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.nightly)])
_SIMPLE = {name: (getattr(lax, name), x) for name, x in UNARY.items()}
_SIMPLE |= {name: (getattr(lax, name), *xs) for name, xs in BINARY.items()}
SIMPLE = Group(
    _SIMPLE,
    4,
    {"bessel_i0e": 1, "bessel_i1e": 1, "igamma": 0, "igammac": 0, "nextafter": 0},
)


@ORDERS
@pytest.mark.parametrize("name", SIMPLE.cases)
def test_elementwise(name: str, order: int) -> None:
    SIMPLE.check(name, order)


CASES: dict[str, Any] = {
    "int div": (lambda a, b: lax.div(a, b), I, J),
    "int rem": (lambda a, b: lax.rem(a, b), I, J),
    "int power": (lambda a: [lax.integer_pow(a, n) for n in (-3, -1, 0, 1, 2, 3, 5, 8)], P),
    "power of a number": (lambda a: a**2.5, P),
    "beta": (lambda x: lax.betainc(P, P + 0.3, jnp.abs(x)), U),
    "polygamma": (lambda x: jax.scipy.special.polygamma(1, x), P),
    "clamp": (lambda a: lax.clamp(np.float32(-0.5), a, np.float32(0.7)), X),
    "clip": (lambda a: jnp.clip(a, -0.5, 0.7), X),
    "select": (lambda c, a, b: jnp.where(c, a, b), B, X, Y),
    "select of many": (lambda i, a, b: lax.select_n(i % 3, a, b, a * b), J, X, Y),
    "shifts beyond": (lambda a: [lax.shift_left(a, jnp.int32(n)) for n in (0, 31, 32, 40)], I),
    "right shifts beyond": (lambda a: [lax.shift_right_logical(a, jnp.int32(n)) for n in (0, 31, 32)], I),
    "sign shifts beyond": (lambda a: [lax.shift_right_arithmetic(a, jnp.int32(n)) for n in (0, 31, 32)], I),
    "round": (lambda a: [jnp.round(a), lax.round(a), jnp.round(a, 1)], np.linspace(-3, 3, 25, dtype="f")),
    "truths": (lambda a, b: [a & b, a | b, a ^ b, ~a], B, Y > 0),
    "reduce precision": (lambda a: lax.reduce_precision(a, 8, 7), X),
    "casts": (lambda a: [a.astype(t) for t in ("int32", "float16", "bool", "uint8")], P),
    "broadcast": (lambda a: lax.broadcast_in_dim(a, (3, 2, 4), (0, 2)), X),
    "reshape": (lambda a: a.reshape(2, 6), X),
    "reshape in another order": (lambda a: lax.reshape(a, (2, 6), dimensions=(1, 0)), X),
    "squeeze": (lambda a: jnp.squeeze(a[None, :, None], (0, 2)), X),
    "transpose": (lambda a: jnp.transpose(a[None], (2, 0, 1)), X),
    "rev": (lambda a: lax.rev(a, (1,)), X),
    "concatenate": (lambda a, b: jnp.concatenate([a, b, a], 1), X, Y),
    "split": (lambda a: jnp.split(a, [1, 3], 1), X),
    "stack": (lambda a, b: jnp.stack([a, b], 1), X, Y),
    "tile": (lambda a: jnp.tile(a, (2, 3)), X),
    "iota": (lambda: [lax.broadcasted_iota(t, (2, 3), 1) for t in ("int32", "float32", "uint8")],),
    "slice": (lambda a: lax.slice(a, (0, 1), (3, 4), (2, 2)), X),
    "pads": (lambda a: lax.pad(a, 1.5, ((1, -1, 0), (-1, 2, 0))), X),
    "pads inside": (lambda a: [lax.pad(a, v, ((1, 2, 1), (-2, -1, 2))) for v in (0.0, 1.5)], X),
    "pads by a value": (lambda a, v: lax.pad(a, v, ((1, 2, 1), (0, 0, 0))), X, np.float32(0.5)),
    "dynamic slice": (lambda a, i: lax.dynamic_slice(a, (i, 1), (2, 2)), X, np.int32(1)),
    "dynamic slice beyond": (lambda a, i: lax.dynamic_slice(a, (i, -i), (2, 2)), X, np.int32(7)),
    "dynamic update": (lambda a, b, i: lax.dynamic_update_slice(a, b, (i, 2)), X, Y[:2, :2], np.int32(7)),
    "index": (lambda a: [a[1], a[:, -1], a[..., ::2], a[::-1]], X),
    "sum": (lambda a: [a.sum(), a.sum(0), a.sum((0, 1), keepdims=True)], X),
    "sum of ints": (lambda a: [a.sum(), a.sum(0)], I),
    "prod": (lambda a: [a.prod(), a.prod(1)], X),
    "max": (lambda a: [a.max(), a.max(0), a.min(1)], X),
    "max of ints": (lambda a: [a.max(), a.max(0), a.min(1)], I),
    "all": (lambda a: [a.all(), a.any(0), a.max(), a.min()], B),
    "bits of many": (lambda a: [jnp.bitwise_or.reduce(a, 0), jnp.bitwise_and.reduce(a, 1)], W),
    "xor of many": (lambda a: lax.reduce_xor(a, (0, 1)), W),
    "reduce": (lambda a: lax.reduce(a, np.float32(0), lambda p, q: p + q + p * q, (1,)), U),
    "reduce two": (
        lambda a, b: lax.reduce(
            (a, b), (np.float32(0), np.float32(1)), lambda p, q: (p[0] + q[0], p[1] * q[1]), (0,)
        ),
        X,
        Y,
    ),
    "argmax": (lambda a: [a.argmax(), a.argmax(0), a.argmin(1)], X),
    "argmax of truths": (lambda a: [a.argmax(0), a.argmin(1)], B),
    "cumulative": (lambda a: [f(a, 1) for f in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin)], X),
    "cumulative backwards": (lambda a: [f(a, 0, True) for f in (lax.cumsum, lax.cumprod, lax.cummax)], X),
    "cumulative logsumexp": (lambda a: lax.cumlogsumexp(a, 1), X),
    "copies": (lambda a: lax.optimization_barrier((jnp.copy(a), a * 2)), X),
    "real and imag": (
        lambda a, b: (lambda z: [jnp.real(z * z), jnp.imag(z * z), jnp.abs(z)])(a + 1j * b),
        X,
        Y,
    ),
    "ties of max": (
        lambda a: [a.max(), jnp.maximum(a, 1.0), jnp.minimum(1.0, a)],
        np.array([1, 1, 0, 1], "f"),
    ),
    "ties of min": (lambda a: [a.min(), jnp.minimum(a, 1.0), jnp.sort(a)], np.array([1, 1, 2, 1], "f")),
    "ties of abs": (
        lambda a: [jnp.abs(a), jax.nn.relu(a), jnp.clip(a, 0, 1), lax.clamp(np.float32(0), a, np.float32(1))],
        np.array([0, 1, -1], "f"),
    ),
}


CASES_GROUP = Group(CASES)


@ORDERS
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, order: int) -> None:
    CASES_GROUP.check(name, order)


def _dot(numbers: Any) -> Any:
    return lambda a, b: lax.dot_general(a, b, numbers)


DOTS: dict[str, Any] = {
    "matrices": (jnp.matmul, X, Y.T),
    "vector": (jnp.dot, X, Y[0]),
    "vectors": (jnp.dot, X[0], Y[0]),
    "outer": (jnp.outer, X[0], Y[0]),
    "turned": (_dot((((0,), (0,)), ((), ()))), X, Y),
    "many": (jnp.matmul, draw(2, 3, 4), draw(2, 4, 5)),
    "many with one": (jnp.matmul, draw(2, 3, 4), draw(4, 5)),
    "two axes": (_dot((((0, 1), (0, 1)), ((), ()))), X, Y),
    "batch in the middle": (_dot((((0,), (2,)), ((1,), (0,)))), draw(3, 2, 4), draw(2, 5, 3)),
    "einsum": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), draw(2, 3, 4), draw(2, 5, 4)),
    "ints": (jnp.matmul, I, J.T),
    "truths": (jnp.matmul, B, B.T),
    "wider": (
        lambda a, b: jnp.matmul(a, b, preferred_element_type=np.float32),
        X.astype("f2"),
        Y.T.astype("f2"),
    ),
    "wider ints": (
        lambda a, b: jnp.matmul(a, b, preferred_element_type=np.int32),
        I.astype(np.int8),
        J.T.astype(np.int8),
    ),
}


DOTS_GROUP = Group(DOTS)


@ORDERS
@pytest.mark.parametrize("name", DOTS)
def test_dot_general(name: str, order: int) -> None:
    DOTS_GROUP.check(name, order)


def _conv(**settings: Any) -> Any:
    settings = {"window_strides": (1, 1), "padding": "SAME"} | settings
    return lambda x, k: lax.conv_general_dilated(x, k, **settings)


IMAGE, KERNEL = draw(2, 4, 6, 5), draw(6, 4, 3, 2)
CONVOLUTIONS: dict[str, Any] = {
    "same": (_conv(), IMAGE, KERNEL),
    "strided": (_conv(window_strides=(2, 1), padding="VALID"), IMAGE, KERNEL),
    "padded": (_conv(padding=((2, 0), (1, 3))), IMAGE, KERNEL),
    "cut": (_conv(padding=((-1, 0), (2, -1))), IMAGE, KERNEL),
    "dilated": (_conv(rhs_dilation=(2, 1)), IMAGE, KERNEL),
    "transposed": (_conv(lhs_dilation=(2, 3), padding=((1, 2), (1, 1))), IMAGE, KERNEL),
    "groups": (_conv(feature_group_count=2), IMAGE, KERNEL[:, :2]),
    "depthwise": (_conv(feature_group_count=4), IMAGE, draw(8, 1, 3, 2)),
    "batch groups": (_conv(batch_group_count=2), IMAGE, KERNEL),
    "channels last": (_conv(dimension_numbers=("NHWC", "HWIO", "NHWC")), draw(2, 6, 5, 4), draw(3, 2, 4, 6)),
    "one axis": (
        lambda x, k: lax.conv_general_dilated(x, k, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NCW")),
        draw(2, 7, 3),
        draw(3, 3, 5),
    ),
    "conv_transpose": (
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"),
        draw(1, 4, 4, 3),
        draw(3, 3, 3, 2),
    ),
}


CONVOLUTIONS_GROUP = Group(CONVOLUTIONS, 4)


@ORDERS
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, order: int) -> None:
    CONVOLUTIONS_GROUP.check(name, order)


def test_double_precision() -> None:
    with jax.enable_x64(True):
        a, b = draw(3, 4, dtype=np.float64), draw(4, 3, seed=1, dtype=np.float64)
        assert_round_trip(lambda a, b: jnp.tanh(a @ b) / (1 + jnp.exp(a.sum())), a, b)


INDEXING: dict[str, Any] = {
    "take": (lambda a, i: a[i], X, np.array([2, 0, 2])),
    "take columns": (lambda a, i: a[:, i], X, np.array([[2, 0], [3, 3]])),
    "pairs": (lambda a, i, j: a[i, j], X, np.array([2, 0, 2]), np.array([1, 1, 3])),
    "negative": (lambda a, i: a[i], X, np.array([-1, 0])),
    "fill": (lambda a, i: jnp.take(a, i, axis=0), X, np.array([5, 0, -1])),
    "fill ints": (
        lambda a, i: [jnp.take(b, i, axis=0) for b in (a, a > 3, a.astype("uint8"))],
        I,
        np.array([5, 0]),
    ),
    "fill value": (lambda a, i: a.at[i].get(mode="fill", fill_value=7.0), X, np.array([5, 0])),
    "clip": (lambda a, i: a.at[i].get(mode="clip"), X, np.array([5, -9])),
    "along": (lambda a, i: jnp.take_along_axis(a, i, 1), X, ints(3, 2, high=4)),
    "batched": (lambda a, i: jax.vmap(lambda r, k: r[k])(a, i), X, ints(3, 2, high=4)),
    "rows and columns": (lambda a, i: a[i, 1:3], X, np.array([2, 0])),
    "blocks": (
        lambda a, i: lax.gather(a, i, lax.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3), mode="clip"),
        X,
        np.array([[0, 1], [1, 0], [5, 5]]),
    ),
    "batched slices": (
        lambda a, i: jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(a, i),
        X,
        np.array([0, 2, 3]),
    ),
    "one hot row": (lambda a, i: a[0, i], X, np.int32(2)),
    "set": (lambda a, i, v: a.at[i].set(v), X, np.array([2, 0]), Y[:2]),
    "set one": (lambda a, v: a.at[1, 2].set(v), X, np.float32(3)),
    "add": (lambda a, i, v: a.at[i].add(v), X, np.array([2, 2, 0]), Y),
    "add columns": (lambda a, i, v: a.at[:, i].add(v), X, np.array([1, 1]), Y[:, :2]),
    "add beyond": (lambda a, i, v: a.at[i].add(v), X, np.array([7, -1, 0]), Y),
    "subtract": (lambda a, i, v: a.at[i].subtract(v), X, np.array([2, 2, 0]), Y),
    "max": (lambda a, i, v: a.at[i].max(v), X, np.array([2, 1, 0]), Y),
    "min": (lambda a, i, v: a.at[i].min(v), X, np.array([2, 1, 0]), Y),
    "add clipped": (lambda a, i, v: a.at[i].add(v, mode="clip"), X, np.array([7, -9, 0]), Y),
    "set slice": (lambda a, v: a.at[1:, ::2].set(v), X, Y[1:, :2]),
    "add pairs": (lambda a, i, j, v: a.at[i, j].add(v), X, np.array([2, 0, 2]), np.array([1, 1, 1]), Y[:, 0]),
    "batched add": (
        lambda a, i, v: jax.vmap(lambda r, k, w: r.at[k].add(w))(a, i, v),
        X,
        ints(3, 2, high=4),
        Y[:, :2],
    ),
    "segment sum": (lambda a, s: jax.ops.segment_sum(a, s, 2), X, np.array([0, 1, 0])),
    "truths": (lambda a, i: a.at[i].set(True), B, np.array([1])),
}


INDEXING_GROUP = Group(INDEXING)


@ORDERS
@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name: str, order: int) -> None:
    INDEXING_GROUP.check(name, order)


def test_scatter_multiply() -> None:
    # JAX has no gradient of it unless no index occurs twice.
    assert_round_trip(lambda a, i, v: a.at[i].mul(v), X, np.array([2, 2, 0]), Y, order=0)
    assert_round_trip(lambda a, i, v: a.at[i].mul(v, unique_indices=True), X, np.array([2, 1, 0]), Y, order=1)


SORTS: dict[str, Any] = {
    "sort": (lambda a: [jnp.sort(a), jnp.sort(a, 0), -jnp.sort(-a)], X),
    "argsort": (lambda a: [jnp.argsort(a), jnp.argsort(a, 0, descending=True)], X),
    "with values": (lambda a, b: lax.sort((a, b), dimension=1, num_keys=1), X, Y),
    "two keys": (
        lambda a, b, c: lax.sort((a, b, c), dimension=1, num_keys=2),
        ints(3, 9, high=3),
        ints(3, 9, high=3),
        draw(3, 9),
    ),
    "not finite": (
        lambda a: [jnp.sort(a), jnp.argsort(a)],
        np.array([2, np.nan, -np.inf, 0, -0.0, np.inf], "f"),
    ),
    "truths": (lambda a: [jnp.sort(a), jnp.argsort(a)], B),
    "ties": (lambda a, b: lax.sort((a, b), num_keys=1), np.array([1, 0, 1, 0, 1], "f"), draw(5)),
    "top k": (lambda a: lax.top_k(a, 2), X),
    "median": (lambda a: [jnp.median(a), jnp.quantile(a, 0.3, axis=1)], X),
    "unique": (lambda a: jnp.unique(a, size=5, fill_value=-1), ints(9, high=5)),
    "searchsorted": (lambda a, b: jnp.searchsorted(jnp.sort(a[0]), b), X, Y),
    "permuted": (lambda a: jnp.argsort(jnp.argsort(a)), X),
}


SORTS_GROUP = Group(SORTS)


@ORDERS
@pytest.mark.parametrize("name", SORTS)
def test_sorts(name: str, order: int) -> None:
    SORTS_GROUP.check(name, order)


A = draw(4, 4, seed=3)
S = (A @ A.T + 4 * np.eye(4)).astype("f")
TALL = draw(5, 3, seed=4)
MATRICES: dict[str, Any] = {
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + 4 * jnp.eye(4)), A),
    "cholesky of the lower half": (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), S),
    "cholesky solve": (lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), S, A[0]),
    "solve": (jnp.linalg.solve, S, A[0]),
    "solve many": (jnp.linalg.solve, S, A[:, :2]),
    "inverse": (jnp.linalg.inv, S),
    "determinant": (jnp.linalg.det, S),
    "logarithm of a determinant": (lambda a: jnp.linalg.slogdet(a)[1], S),
    "qr": (lambda a: list(jnp.linalg.qr(a)), TALL),
    "eigh": (lambda a: (lambda w, v: [w, v**2])(*jnp.linalg.eigh(a @ a.T)), A),
    "svd": (lambda a: (lambda u, s, v: [s, u**2])(*jnp.linalg.svd(a, full_matrices=False)), TALL),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), TALL),
    "pseudoinverse": (jnp.linalg.pinv, TALL),
    "triangular": (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), S, A[0]),
    "triangular from the right": (
        lambda a, b: lax.linalg.triangular_solve(a, b, lower=False, transpose_a=True, unit_diagonal=True),
        S,
        A[:3],
    ),
    "lu": (lambda a: list(jax.scipy.linalg.lu(a)), A),
    "exponential": (lambda a: jax.scipy.linalg.expm(a * 0.1), A),
    "fft": (lambda a: jnp.fft.fft(a), A[0]),
    "ifft of two axes": (lambda a: jnp.fft.ifft2(jnp.fft.fft2(a) * 2), A),
    "rfft": (lambda a: [jnp.fft.rfft(a), jnp.fft.rfft2(a)], A),
    "irfft": (lambda a: [jnp.fft.irfft(a + 1j * a), jnp.fft.irfft2(a + 1j * a)], A),
}


MATRICES_GROUP = Group(MATRICES, 4, {"exponential": 1, "pseudoinverse": 1})


@ORDERS
@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str, order: int) -> None:
    MATRICES_GROUP.check(name, order)


def _window(x: Any, start: Any, function: Any, size: Any, by: Any, padding: Any, **more: Any) -> Any:
    return lax.reduce_window(x, start, function, size, by, padding, **more)


IMAGES = draw(2, 5, 4, 3)
WINDOWS: dict[str, Any] = {
    "max": (lambda x: _window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), IMAGES),
    "max, same": (lambda x: _window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 1, 1), "SAME"), IMAGES),
    "max of channels": (lambda x: _window(x, -np.inf, lax.max, (1, 1, 1, 2), (1, 1, 1, 1), "VALID"), IMAGES),
    "min": (lambda x: _window(x, np.inf, lax.min, (2, 2), (1, 1), "SAME"), X),
    "sum": (lambda x: _window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 2, 1, 1), "SAME"), IMAGES),
    "sum, wide": (lambda x: _window(x, 0.0, lax.add, (7,), (2,), ((3, 5),)), draw(9)),
    "sum, dilated": (
        lambda x: _window(x, 0.0, lax.add, (3,), (1,), ((2, 2),), window_dilation=(2,), base_dilation=(2,)),
        draw(9),
    ),
    "sum of ints": (lambda x: _window(x, 0, lax.add, (2, 3), (1, 1), "VALID"), I),
    "gradient of max": (
        lambda x: jax.grad(lambda a: (_window(a, -np.inf, lax.max, (2, 2), (2, 2), "VALID") ** 2).sum())(x),
        draw(4, 4),
    ),
    "ties": (lambda x: _window(x, -np.inf, lax.max, (2,), (1,), "VALID"), np.array([1, 1, 0, 0, 2, 2], "f")),
}


WINDOWS_GROUP = Group(WINDOWS)


@ORDERS
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str, order: int) -> None:
    WINDOWS_GROUP.check(name, order)


KEY = np.array([3, 7], np.uint32)
SHAPE = (3, 4)
DRAWS: dict[str, Any] = {
    "uniform": (lambda k: jax.random.uniform(k, SHAPE), KEY),
    "normal": (lambda k, m, s: m + s * jax.random.normal(jax.random.split(k)[1], SHAPE), KEY, X, Y),
    "bits": (lambda k: [jax.random.bits(k, (5,), d) for d in ("uint8", "uint16", "uint32")], KEY),
    "splits": (lambda k: [jax.random.split(k, 3), jax.random.split(k, (2, 2))], KEY),
    "fold in": (lambda k, i: jax.random.fold_in(k, i), KEY, np.int32(5)),
    "seeds": (lambda s: jax.random.PRNGKey(s), np.int32(-5)),
    "new keys": (lambda s: jax.random.key_data(jax.random.split(jax.random.key(s), (2, 2))[1]), np.int32(5)),
    "a key as argument": (lambda k: [jax.random.normal(k), jax.random.split(k)], jax.random.key(3)),
    "integers": (lambda k: jax.random.randint(k, (5,), 0, 10), KEY),
    "dropout": (lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x / 0.5, 0), KEY, X),
    "permutation": (lambda k: jax.random.permutation(k, 6), KEY),
    "categorical": (lambda k, x: jax.random.categorical(k, x), KEY, X),
    "truncated": (lambda k: jax.random.truncated_normal(k, -1, 1, SHAPE), KEY),
    "choice": (lambda k: jax.random.choice(k, 5, (3,), replace=False), KEY),
    "many keys": (
        lambda k, x: jax.vmap(lambda k, x: x * jax.random.normal(jax.random.fold_in(k, 1)))(
            jax.random.split(k, 5), x
        ),
        KEY,
        draw(5),
    ),
    "keys in a loop": (
        lambda k, x: lax.scan(
            lambda c, k: (c * jax.random.uniform(k), None),
            x,
            jax.random.split(jax.random.wrap_key_data(k), 3),
        )[0],
        KEY,
        X,
    ),
    "carried keys": (
        lambda k, x: lax.fori_loop(
            0,
            3,
            lambda i, s: (jax.random.split(s[0])[0], s[1] + jax.random.normal(s[0])),
            (jax.random.wrap_key_data(k), x),
        )[1],
        KEY,
        X,
    ),
}


DRAWS_GROUP = Group(DRAWS)


@ORDERS
@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str, order: int) -> None:
    DRAWS_GROUP.check(name, order)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_bits_of_numbers(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x = jnp.array([0, -0.0, 1, -1.5, 3e-39, 65504, -np.inf, np.inf, np.nan, 1e-7, 0.1], dtype)
        word = f"int{8 * x.dtype.itemsize}"
        assert_round_trip(lambda x: lax.bitcast_convert_type(x, word), np.asarray(x))
        bits = lax.bitcast_convert_type(x, f"u{word}")
        assert_round_trip(lambda b: lax.bitcast_convert_type(b, dtype), np.asarray(bits))


def test_foreign() -> None:
    # No operation of the catalogue; JAX runs it.
    model = sgj.load(lambda x: jax.scipy.special.zeta(x * x + 1.5, 2.0) + x, P)
    foreign = [op for op in model.graph.operations if op.type == "Foreign"]
    assert [op.call for op in foreign] == ["lax.zeta"]
    assert sgj.explain(lambda x: jax.scipy.special.zeta(x + 1.5, 2.0), P)["x"].status != "disconnected"


# -------------------------------------------------------------------------------------- large operands


@pytest.mark.parametrize(
    ("shape", "index", "position"),
    [
        ((3, 2**30), (2, 5), 2**31 + 5),  # The position is beyond int32.
        ((1, 2**31), (0, 5), 5),  # The first axis' stride is.
        ((2**31 - 1, 1), (2**31 - 2, 0), 2**31 - 2),
    ],
)
def test_positions_in_an_operand_beyond_int32_are_counted_in_int64(
    shape: tuple[int, int], index: tuple[int, int], position: int
) -> None:
    blocks = Blocks(shape, (1, 1), (0, 1), ())
    with sg.Graph().as_default():
        at = sg.placeholder(sg.int32, [1, 2], name="at")
        made, fits = blocks.positions(at, clips=False)
        found, inside = sg.Session().run([made, fits], {at: [index]})
    assert (found.item(), inside.item()) == (position, True)


def test_indices_of_unsigned_kinds_beyond_the_sign_are_out_of_bounds() -> None:
    x, at = np.arange(4.0), np.array([2**32 - 1, 2, 2**31], np.uint32)
    for mode, expected in {"fill": [np.nan, 2.0, np.nan], "clip": [3.0, 2.0, 3.0]}.items():
        f = lambda x, at, mode=mode: jnp.take(x, at, mode=mode)
        np.testing.assert_array_equal(sgj.load(f, x, at)(x, at), expected)
        np.testing.assert_array_equal(f(x, at), expected)
