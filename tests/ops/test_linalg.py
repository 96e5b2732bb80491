"""Linear algebra: gradients beside JAX's; singular matrices and repeated values; batches, sizes, dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import ml_dtypes
import numpy as np
import pytest
from all_engines import each_engine
from values import by, complex_normal, normal

import stopgrad as sg

pytestmark = pytest.mark.slow

S, Z = normal(2, 3, 3), complex_normal(2, 3, 3)
D, H = S @ S.swapaxes(-1, -2) + np.eye(3), Z @ np.conj(Z.swapaxes(-1, -2)) + np.eye(3)
TALL, WIDE = normal(2, 4, 3), normal(2, 3, 4)
R = normal(2, 3, 2, seed=3)


def weighted(f: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """A real number from all results of a function, which no choice of factors changes."""

    def number(*xs: Any) -> Any:
        found = f(*xs)
        total = 0.0
        for i, y in enumerate(found if isinstance(found, (tuple, list)) else (found,)):
            count = np.arange(np.prod(y.shape, dtype=int)) + i
            weights, others = np.cos(count).reshape(y.shape), np.sin(count).reshape(y.shape)
            if xp is sg:
                size = sg.real(y) * weights + sg.imag(y) * others
                total = total + sg.reduce_sum(size * size + size)
            else:
                size = jnp.real(y) * weights + jnp.imag(y) * others
                total = total + jnp.sum(size * size + size)
        return total

    return number


def herm(x: Any) -> Any:
    return (x + jnp.conj(jnp.swapaxes(x, -1, -2))) / 2


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (sg.cholesky, jnp.linalg.cholesky, (D,)),
    "cholesky complex": (sg.cholesky, jnp.linalg.cholesky, (H,)),
    "qr": (sg.qr, lambda x: tuple(jnp.linalg.qr(x)), (TALL,)),
    "qr complex": (sg.qr, lambda x: tuple(jnp.linalg.qr(x)), (Z,)),
    "solve": (sg.solve, jnp.linalg.solve, (S, R)),
    "solve adjoint": (
        lambda a, b: sg.solve(a, b, adjoint=True),
        lambda a, b: jnp.linalg.solve(jnp.conj(a.swapaxes(-1, -2)), b),
        (Z, R + 0j),
    ),
    "triangular": (
        sg.triangular_solve,
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        (D, R),
    ),
    "cholesky_solve": (sg.cholesky_solve, lambda l, b: jax.scipy.linalg.cho_solve((l, True), b), (D, R)),
    "inv": (sg.inv, jnp.linalg.inv, (Z,)),
    "det": (sg.det, jnp.linalg.det, (S,)),
    "det complex": (sg.det, jnp.linalg.det, (Z,)),
    "slogdet": (sg.slogdet, lambda x: tuple(jnp.linalg.slogdet(x)), (Z,)),
    "logdet": (sg.logdet, lambda x: jnp.linalg.slogdet(herm(x))[1], (H,)),
    "pinv": (sg.pinv, jnp.linalg.pinv, (TALL,)),
    "pinv complex": (sg.pinv, jnp.linalg.pinv, (complex_normal(2, 4),)),
    "lstsq": (sg.lstsq, lambda a, b: jnp.linalg.lstsq(a, b)[0], (TALL[0], normal(4, 2))),
    "svdvals": (sg.svdvals, lambda x: jnp.linalg.svd(x, compute_uv=False), (WIDE,)),
    "eigvalsh": (sg.eigvalsh, jnp.linalg.eigvalsh, (H,)),
    "expm": (sg.expm, jax.scipy.linalg.expm, (S,)),
    "expm complex": (sg.expm, jax.scipy.linalg.expm, (3 * Z,)),
    "matrix_power": (lambda x: sg.matrix_power(x, -3), lambda x: jnp.linalg.matrix_power(x, -3), (S,)),
    "trace": (sg.trace, lambda x: jnp.trace(x, axis1=-2, axis2=-1), (WIDE,)),
    "norm nuc": (
        lambda x: sg.norm(x, "nuc", (-2, -1)),
        lambda x: jnp.linalg.norm(x, "nuc", (-2, -1)),
        (TALL,),
    ),
    "norm 2": (lambda x: sg.norm(x, 2, (-2, -1)), lambda x: jnp.linalg.norm(x, 2, (-2, -1)), (Z,)),
    "norm 1": (lambda x: sg.norm(x, 1, (-2, -1)), lambda x: jnp.linalg.norm(x, 1, (-2, -1)), (Z,)),
    "norm 3": (lambda x: sg.norm(x, 3, -1), lambda x: jnp.linalg.norm(x, 3, -1), (TALL,)),
    "norm inf": (lambda x: sg.norm(x, np.inf, -1), lambda x: jnp.linalg.norm(x, np.inf, -1), (TALL,)),
    "cross": (sg.cross, jnp.cross, (S, S[0])),
    "kron": (sg.kron, jnp.kron, (S[0], TALL[0])),
    "vecdot": (sg.vecdot, jnp.vecdot, (Z, Z[0])),
    "einsum": (
        lambda a, b: sg.einsum("...ii,ij", a, b),
        lambda a, b: jnp.einsum("...ii,ij", a, b),
        (S, S[1]),
    ),
}


def directions(xs: Any) -> list[Any]:
    return [np.sin(np.arange(np.prod(x.shape))).reshape(x.shape) for x in xs]


@functools.cache
def of_jax(name: str) -> Any:
    """The gradients, and those of their real parts in fixed directions."""
    _, theirs, xs = PAIRS[name]
    first = jax.grad(weighted(theirs, jnp), argnums=tuple(range(len(xs))))

    def slope(*xs: Any) -> Any:
        return sum(jnp.sum(jnp.real(d) * v) for d, v in zip(first(*xs), directions(xs), strict=True))

    second = jax.grad(slope, argnums=tuple(range(len(xs))))
    with jax.enable_x64(True):
        return jax.jit(lambda *xs: (first(*xs), second(*xs)))(*xs)


@each_engine
@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_both_orders_are_those_of_jax(name: str, engine: str) -> None:
    ours, _, xs = PAIRS[name]
    first = sg.grad(weighted(ours, sg), argnums=tuple(range(len(xs))))

    def slope(*xs: Any) -> Any:
        total: Any = 0.0
        for d, v in zip(first(*xs), directions(xs), strict=True):
            total = total + sg.reduce_sum(sg.real(d) * v)
        return total

    second = sg.grad(slope, argnums=tuple(range(len(xs))))
    for found, expected in zip(
        by(engine, lambda *xs: (first(*xs), second(*xs)), *xs), of_jax(name), strict=True
    ):
        for a, b in zip(found, expected, strict=True):
            scale = np.abs(b).max()
            np.testing.assert_allclose(a / scale, np.conj(b) / scale, rtol=1e-8, atol=1e-9)


@each_engine
def test_the_gradient_of_eigenvalues_is_that_of_jax(engine: str) -> None:
    with jax.enable_x64(True):
        expected = jax.grad(weighted(jnp.linalg.eigvals, jnp))(Z)
    np.testing.assert_allclose(by(engine, sg.grad(weighted(sg.eigvals, sg)), Z), np.conj(expected), rtol=1e-9)


# ----------------------------------------------------------------- vectors: what no choice of factors changes


def of_pairs(xp: Any) -> dict[str, Callable[..., Any]]:
    def adjoint(x: Any) -> Any:
        return xp.conj(xp.swapaxes(x, -1, -2)) if xp is jnp else sg.adjoint(x)

    eigh = jnp.linalg.eigh if xp is jnp else sg.eigh

    def svd(x: Any) -> Any:
        if xp is sg:
            return sg.svd(x)
        u, s, vh = jnp.linalg.svd(x, full_matrices=False)
        return s, u, adjoint(vh)

    def projected(x: Any) -> Any:
        w, v = eigh(x)
        return w, v[..., :, :1] @ adjoint(v[..., :, :1])

    def polar(x: Any) -> Any:
        s, u, v = svd(x)
        return s, u[..., :2] @ adjoint(v[..., :2])

    return {"eigh": projected, "svd": polar}


@each_engine
@pytest.mark.parametrize(("name", "x"), [("eigh", D), ("eigh", H), ("svd", TALL), ("svd", WIDE), ("svd", Z)])
def test_gradients_of_spectral_projections_are_those_of_jax(name: str, x: Any, engine: str) -> None:
    with jax.enable_x64(True):
        expected = jax.grad(weighted(of_pairs(jnp)[name], jnp))(x)
    found = by(engine, sg.grad(weighted(of_pairs(sg)[name], sg)), x)
    np.testing.assert_allclose(found, np.conj(expected), rtol=1e-8, atol=1e-9)


@each_engine
@pytest.mark.parametrize("x", [S, Z, H])
def test_the_first_large_component_of_vectors_is_real_and_positive(x: Any, engine: str) -> None:
    for vectors in (
        by(engine, lambda x: sg.eigh(x)[1], x),
        by(engine, lambda x: sg.eig(x)[1], x),
        by(engine, lambda x: sg.svd(x)[1], x),
    ):
        for columns in vectors:
            for v in columns.T:
                pivot = v[np.argmax(np.abs(v) > 0.999 * np.abs(v).max())]
                assert pivot.real > 0
                assert abs(pivot.imag) < 1e-12


@each_engine
@pytest.mark.parametrize("x", [S, Z, TALL, WIDE])
def test_factors_multiply_to_what_was_factored(x: Any, engine: str) -> None:
    s, u, v = by(engine, sg.svd, x)
    np.testing.assert_allclose(u * s[..., None, :] @ np.conj(v.swapaxes(-1, -2)), x, atol=1e-12)
    q, r = by(engine, sg.qr, x)
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    s, u, v = by(engine, lambda x: sg.svd(x, full_matrices=True), x)
    for basis in (u, v):
        unit = np.broadcast_to(np.eye(basis.shape[-1]), basis.shape)
        np.testing.assert_allclose(np.conj(basis.swapaxes(-1, -2)) @ basis, unit, atol=1e-12)


# ---------------------------------------------------------------------------------- singular and repeated


@each_engine
def test_the_gradient_of_the_determinant_is_right_for_singular_matrices(engine: str) -> None:
    for x in (
        np.ones((2, 2)),
        np.zeros((2, 2)),
        np.diag([1.0, 0.0, 2.0]),
        np.arange(9.0).reshape(3, 3),
        np.zeros((3, 3)),
    ):
        n = len(x)
        minors = [
            [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(n)]
            for i in range(n)
        ]
        np.testing.assert_allclose(by(engine, sg.grad(sg.det), x), minors, atol=1e-10)
    hessian = by(engine, sg.hessian(sg.det), np.zeros((2, 2)))
    expected = np.zeros((2, 2, 2, 2))
    expected[0, 0, 1, 1] = expected[1, 1, 0, 0] = 1
    expected[0, 1, 1, 0] = expected[1, 0, 0, 1] = -1
    np.testing.assert_allclose(hessian, expected, atol=1e-12)


@each_engine
def test_repeated_eigenvalues_have_finite_gradients_that_are_right_for_what_they_span(engine: str) -> None:
    turn = np.linalg.qr(normal(4, 4))[0]
    for diagonal in (np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 1.0, 3.0, 3.0])):
        x = (turn * diagonal) @ turn.T
        x = (x + x.T) / 2

        def projection(x: Any) -> Any:
            _, v = sg.eigh(x)
            return sg.matmul(v[:, :2], v[:, :2], transpose_b=True)

        found = by(engine, sg.grad(weighted(projection, sg)), x)
        # A step that separates nothing inside the span: the projection from a contour, by resolvents.
        step, direction = 1e-5, normal(4, 4, seed=9)
        direction = direction + direction.T

        def value(x: Any) -> Any:
            w, v = np.linalg.eigh(x)
            p = v[:, :2] @ v[:, :2].T
            weights = np.cos(np.arange(16)).reshape(4, 4)
            y = p * weights
            assert w.size
            return np.sum(y * y + y)

        slope = (value(x + step * direction) - value(x - step * direction)) / (2 * step)
        np.testing.assert_allclose(np.sum(found * direction), slope, rtol=1e-6, atol=1e-7)
        values = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.exp(sg.eigvalsh(x)))), x)
        np.testing.assert_allclose(values, (turn * np.exp(diagonal)) @ turn.T, rtol=1e-9)
        assert np.isfinite(by(engine, sg.grad(weighted(sg.eigh, sg)), x)).all()


@each_engine
def test_singular_values_that_repeat_or_are_zero_have_finite_gradients(engine: str) -> None:
    for x in (np.eye(3), np.zeros((3, 2)), np.ones((2, 3)), np.diag([2.0, 1.0, 0.0])):
        for f in (sg.svd, sg.svdvals, lambda x: sg.norm(x, "nuc", (-2, -1))):
            assert np.isfinite(by(engine, sg.grad(weighted(f, sg)), x)).all()
    # Of the sum of the singular values of an invertible matrix: the orthogonal factor.
    nuclear = by(engine, sg.grad(lambda x: sg.norm(x, "nuc", (0, 1))), 2 * np.eye(3))
    np.testing.assert_allclose(nuclear, np.eye(3), atol=1e-12)


@each_engine
def test_norms_of_zeros_have_the_gradient_0(engine: str) -> None:
    functions: list[Callable[[Any], Any]] = [
        *(lambda x, p=p: sg.norm(x, p) for p in (0.5, 1, 2, 3, np.inf)),
        *(lambda x, p=p: sg.norm(x, p, (0, 1)) for p in ("fro", 1, np.inf)),
        lambda x: sg.global_norm([x]),
        lambda x: sg.reduce_sum(sg.l2_normalize(x)) * 1e-12,
    ]
    for f in functions:
        found = by(engine, sg.grad(f), np.zeros((2, 3)))
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, 0, atol=1e-5)
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.clip_by_norm(x, 2.0))), np.zeros((2, 3)))
    np.testing.assert_array_equal(found, 1)
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.clip_by_global_norm([x], 2.0)[0][0])), np.zeros(3))
    np.testing.assert_array_equal(found, 1)
    second = by(engine, sg.hessian(lambda x: sg.norm(x)), np.zeros(2))
    assert np.isfinite(second).all()


def test_an_infinite_global_norm_makes_all_nan() -> None:
    (a, b), norm = sg.clip_by_global_norm([np.array([np.inf]), np.ones(2)], 1.0)
    assert np.isnan(a).all()
    assert np.isnan(b).all()
    assert np.isinf(norm)


def test_structures_of_tensors_come_back_as_they_are() -> None:
    found, _ = sg.clip_by_global_norm({"b": np.array([3.0]), "a": [None, np.array([4.0])]}, 1.0)
    assert found["a"][0] is None
    np.testing.assert_allclose([found["b"][0], found["a"][1][0]], [0.6, 0.8])
    assert sg.global_norm([]) == 0


SINGULAR = np.stack([np.eye(2), np.ones((2, 2)), np.full((2, 2), np.nan)])


@each_engine
def test_a_singular_matrix_of_a_batch_spoils_none_of_the_others(engine: str) -> None:
    for f in (sg.inv, lambda x: sg.solve(x, np.eye(2))):
        found = by(engine, f, SINGULAR)
        np.testing.assert_array_equal(found[0], np.eye(2))
        assert np.isnan(found[1:]).all()
    found = by(engine, sg.cholesky, np.stack([4 * np.eye(2), -np.eye(2)]))
    np.testing.assert_array_equal(found[0], 2 * np.eye(2))
    assert np.isnan(found[1][np.tril_indices(2)]).all()
    for f in (sg.svdvals, sg.eigvalsh, lambda x: sg.real(sg.eigvals(x)), sg.expm, sg.pinv):
        found = by(engine, f, SINGULAR)
        assert np.isfinite(found[:2]).all()
        assert np.isnan(found[2]).all()
    sign, log = by(engine, sg.slogdet, SINGULAR[:2])
    np.testing.assert_array_equal(sign, [1, 0])
    np.testing.assert_array_equal(log, [0, -np.inf])


@each_engine
def test_a_gradient_that_is_not_determined_is_refused(engine: str) -> None:
    for f, name in (
        (lambda x: sg.reduce_sum(sg.qr(x, full_matrices=True)[0]), "Qr"),
        (lambda x: sg.reduce_sum(sg.svd(x, full_matrices=True)[1]), "Svd"),
    ):
        with pytest.raises(
            sg.GradientError, match=rf"{name}: .* does not determine; take full_matrices=False"
        ):
            by(engine, sg.grad(f), TALL[0])
    for f, g in (
        (lambda x: sg.qr(x, full_matrices=True)[1], lambda x: sg.qr(x)[1]),
        (lambda x: sg.svd(x, full_matrices=True)[2], lambda x: sg.svd(x)[2]),
    ):
        found = by(engine, sg.grad(lambda x, f=f: sg.reduce_sum(f(x)[:3] ** 2 + f(x)[:3])), TALL[0])
        expected = by(engine, sg.grad(lambda x, g=g: sg.reduce_sum(g(x) ** 2 + g(x))), TALL[0])
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_exponential_of_a_large_matrix_is_scaled_down() -> None:
    x = np.array([[-40.0, 30.0], [10.0, -60.0]])
    np.testing.assert_allclose(sg.expm(x), scipy_expm(x), rtol=1e-10)


def scipy_expm(x: Any) -> Any:
    values, vectors = np.linalg.eig(x)
    return (vectors * np.exp(values)) @ np.linalg.inv(vectors)


# --------------------------------------------------------------------------------- batches, sizes, dtypes

BATCHED: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (sg.cholesky, (D,)),
    (sg.qr, (TALL,)),
    (sg.svd, (WIDE,)),
    (sg.eigh, (H,)),
    (sg.eig, (Z,)),
    (sg.inv, (S,)),
    (sg.det, (S,)),
    (sg.slogdet, (Z,)),
    (sg.pinv, (TALL,)),
    (sg.expm, (S,)),
    (sg.solve, (S, R)),
    (lambda b: sg.solve(S[0], b), (R,)),
    (lambda a: sg.solve(a, R[0]), (S,)),
    (lambda b: sg.triangular_solve(S, b, adjoint=True), (normal(4, 2, 3, 2),)),
    (lambda a: sg.solve(a, R), (S,)),
    (lambda x: sg.norm(x, 3, 0), (S,)),
    (lambda x: sg.norm(x, "nuc", (0, 1)), (S,)),
    (lambda x: sg.diag(sg.diag_part(x, k=1), k=-1), (S,)),
    (lambda x: sg.diag_part(x, k=(-1, 1)), (S,)),
    (lambda x: sg.tril(x, -1), (S,)),
    (sg.kron, (S, TALL)),
    (lambda x: sg.clip_by_norm(x, 0.5), (S,)),
]


@pytest.mark.parametrize("case", range(len(BATCHED)))
def test_vmap_is_a_loop(case: int) -> None:
    f, xs = BATCHED[case]
    found = sg.vmap(f)(*xs)
    expected = [f(*rows) for rows in zip(*xs, strict=True)]
    if not isinstance(found, (tuple, list)):
        found, expected = [found], [[y] for y in expected]
    for i, y in enumerate(found):
        np.testing.assert_allclose(y, np.stack([e[i] for e in expected]), rtol=1e-9, atol=1e-11)


@each_engine
def test_sizes_may_be_known_later(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, ["b", "n", "n"])
        y = sg.placeholder(sg.float64, ["m", "n"])
        definite = sg.matmul(x, x, adjoint_b=True) + sg.eye(x.shape[-1], dtype=sg.float64)
        ys = [
            sg.cholesky(definite),
            sg.eigvalsh(definite),
            sg.det(x),
            sg.inv(definite),
            sg.trace(x),
            sg.tril(y),
            sg.norm(y, "nuc", (0, 1)),
            sg.pinv(y),
            sg.qr(y)[1],
            sg.diag_part(y),
            sg.diag(sg.diag_part(y)),
            sg.einsum("...ij,mj->...mi", x, y),
            sg.kron(y, y),
            sg.matrix_rank(y),
        ]
        dx, dy = sg.gradients([sg.reduce_sum(v * v) for v in ys[:-1]], [x, y])
    for b, m, n in ((2, 3, 3), (1, 2, 4), (3, 4, 2)):
        fed = {x: normal(b, n, n), y: normal(m, n)}
        with sg.Session(graph, engine=engine) as session:
            *found, gx, gy = session.run([*ys, dx, dy], fed)
        np.testing.assert_allclose(found[2], np.linalg.det(fed[x]), rtol=1e-9)
        np.testing.assert_allclose(found[6], np.linalg.norm(fed[y], "nuc"), rtol=1e-9)
        np.testing.assert_allclose(found[9], np.diagonal(fed[y]))
        assert found[-1] == min(m, n)
        assert gx.shape == fed[x].shape
        assert gy.shape == fed[y].shape
        assert np.isfinite(gx).all()
        assert np.isfinite(gy).all()


@each_engine
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.complex64])
def test_small_dtypes_stay(dtype: Any, engine: str) -> None:
    x = (D[0] / np.abs(D[0]).max() + np.eye(3)).astype(dtype)
    wide = x.astype(np.complex128 if dtype is np.complex64 else np.float64)
    limit = {2: 0.05, 4: 1e-4, 8: 1e-4}[np.dtype(dtype).itemsize]
    for f in (
        sg.cholesky,
        sg.inv,
        sg.det,
        sg.expm,
        sg.pinv,
        sg.norm,
        sg.eigvalsh,
        sg.svdvals,
        sg.trace,
        sg.logdet,
    ):
        found, expected = by(engine, f, x), f(wide)
        assert found.dtype == (np.dtype(dtype) if expected.dtype.kind == wide.dtype.kind else np.float32)
        np.testing.assert_allclose(found.astype(expected.dtype), expected, rtol=limit, atol=limit)
        slope = by(engine, sg.grad(lambda x, f=f: sg.reduce_sum(sg.real(f(x)))), x)
        assert slope.dtype == x.dtype
        assert np.isfinite(slope.astype(wide.dtype)).all()


@each_engine
def test_matrices_without_elements(engine: str) -> None:
    x = np.zeros((2, 0, 0))
    for f in (sg.inv, sg.cholesky, sg.expm, sg.pinv, sg.det, sg.eigvalsh, sg.svdvals, sg.trace, sg.norm):
        expected = np.ones(2) if f is sg.det else np.zeros(2) if f is sg.trace else None
        found = by(engine, f, x)
        assert expected is None or np.array_equal(found, expected)
        assert by(engine, sg.grad(lambda x, f=f: sg.reduce_sum(f(x))), x).shape == x.shape
    assert [v.shape for v in by(engine, sg.qr, np.zeros((3, 0)))] == [(3, 0), (0, 0)]


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sg.inv(np.ones((2, 3))), r"MatrixInverse: \(C2\) x must hold square matrices"),
        (lambda: sg.solve(np.eye(2), np.ones((3, 1))), r"MatrixSolve: \(C3\) rhs must have 2 rows"),
        (lambda: sg.norm(np.ones(3), "nuc"), r"norm: 'nuc' is a norm of matrices: say along which two axes"),
        (lambda: sg.norm(np.ones((2, 2)), 3, (0, 1)), r"3 is no norm of matrices; take 'fro', 'nuc'"),
        (lambda: sg.norm(np.ones(3), "no"), r"'no' is no norm of vectors"),
        (lambda: sg.norm(np.ones((2, 2)), 2, (0, 0)), r"\(C1\) axis=\(0, 0\) names one axis twice"),
        (lambda: sg.matmul(S, S, transpose_a=True, adjoint_a=True), r"transpose_a and adjoint_a cannot both"),
        (lambda: sg.matmul(S, S, a_is_sparse=True), r"a_is_sparse, .* have no meaning here; leave them out"),
        (lambda: sg.einsum(np.ones(3), [60]), r"whole numbers from 0 to 51"),
        (lambda: sg.einsum(np.ones(3), ["i"]), r"an integer is needed, not 'i'"),
        (lambda: sg.einsum(np.ones(3)), r"the equation is text such as 'ij,jk->ik'"),
        (lambda: sg.einsum("i->", np.ones(3), optimize="fast"), r"optimize is True, False"),
        (lambda: sg.diag(np.ones(3), k=(1, 0)), r"k is one diagonal, or the lowest and the highest"),
        (lambda: sg.diag(np.ones(3), align="LEFT"), r"align is one of RIGHT_LEFT"),
        (lambda: sg.diag(np.ones(3), num_rows=5, num_cols=4), r"MatrixDiag: \(C2\)"),
        (lambda: sg.cross(np.ones(2), np.ones(2)), r"cross: \(C1\) vectors have three components"),
        (lambda: sg.vecdot(np.ones(2), np.ones(3)), r"vecdot: \(C1\) axis -1 of .* differ in size"),
        (lambda: sg.matvec(np.ones(2), np.ones(2)), r"matvec: \(C1\) takes matrices and vectors"),
        (lambda: sg.matrix_power(S, 1.5), r"an integer is needed, not 1.5"),
        (lambda: sg.lstsq(S, R, 0.1, fast=False), r"a regularizer goes with fast=True"),
        (lambda: sg.tensordot(S, S, -1), r"\(C2\) axes=-1 is no number of axes"),
        (lambda: sg.tensordot(S, S, [[0], [0], [0]]), r"\(C2\) axes=.* is no number of axes and no pair"),
        (lambda: sg.l2_normalize(S, 0, dim=1), r"axis and dim are one argument"),
        (lambda: sg.eye(-1), r"the size -1 is negative"),
        (lambda: sg.tril(S, 0.5), r"an integer is needed"),
        (lambda: sg.norm(S, None), r"a number is needed, not None"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(sg.StopgradError, match=message) as caught:
        call()
    assert not isinstance(caught.value, sg.InternalError)


@pytest.mark.parametrize("norm", [-1.0, np.array([1.0, -2.0])])
def test_a_largest_norm_is_not_negative(norm: Any) -> None:
    with pytest.raises(sg.ArgumentError, match="negative"):
        sg.clip_by_norm(np.ones(2), norm)
    with pytest.raises(sg.ArgumentError, match="negative"):
        sg.clip_by_global_norm([np.ones(2)], norm)
