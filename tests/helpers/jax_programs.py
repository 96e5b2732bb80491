"""Random programs in JAX, made by seeds: control flow, custom derivatives, stops, moves, keys.

A program draws as it runs, by the shapes of what it has, so that every trace of it is the same. Its values
are of moderate size and away from the places where a function has no derivative, as far as random numbers go.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SHAPES = [(), (2,), (3,), (2, 2), (2, 3), (3, 2), (3, 3), (2, 3, 2)]
Array = Any
Make = Callable[["Maker"], Array | None]


@dataclass
class Maker:
    """Draws operations, and does them.

    Attributes:
        rng: what decides.
        floats, ints: the values that there are.
        key: a key of JAX's, for random numbers.
        depth: how many more functions may be nested in this one.
        ops: which operations are drawn from.
        honest: whether functions with derivatives of their own have the true ones.
    """

    rng: random.Random
    floats: list[Array]
    ints: list[Array]
    key: Array
    depth: int
    ops: Sequence[Make]
    honest: bool

    def any(self) -> Array:
        """A value; a later one is more probable."""
        n = len(self.floats)
        return self.floats[min(n - 1, int(n * math.sqrt(self.rng.random())))]

    def shaped(self, shape: Sequence[int]) -> Array:
        return fit(self.any(), shape)

    def of_rank(self, *ranks: int) -> Array | None:
        found = [x for x in self.floats if x.ndim in ranks]
        return self.rng.choice(found) if found else None

    def other(self, x: Array) -> Array:
        """A value that is not this one."""
        found = [y for y in self.floats if y is not x]
        return self.rng.choice(found) if found else jnp.cos(x)

    def draw(self) -> Array:
        """A fresh key."""
        return jax.random.fold_in(self.key, self.rng.randrange(1000))

    def sub(self, steps: int = 3, without: Sequence[Make] = ()) -> Callable[..., Array]:
        """A function of arrays that gives one like its first."""
        ops = [op for op in self.ops if op not in without]
        return function(self.rng.randrange(2**32), steps, self.depth - 1, ops, self.key, self.honest)

    def step(self) -> None:
        """One operation more."""
        for _ in range(20):
            make = self.rng.choice(self.ops)
            made = make(self)
            if made is not None:
                (self.floats if jnp.issubdtype(made.dtype, jnp.floating) else self.ints).append(made)
                return


def function(
    seed: int, steps: int, depth: int, ops: Sequence[Make], key: Array, honest: bool
) -> Callable[..., Array]:
    """A random function; its result has the shape of its first argument, and is between -2 and 2."""

    def program(first: Array, *others: Array) -> Array:
        shown = ops if depth > 0 else [op for op in ops if op not in NESTED]
        floats = [x for x in (first, *others) if jnp.issubdtype(x.dtype, jnp.floating)]
        ints = [x for x in others if not jnp.issubdtype(x.dtype, jnp.floating)]
        maker = Maker(random.Random(seed), floats, ints, key, depth, shown, honest)
        for _ in range(steps):
            maker.step()
        return jnp.tanh(fit(maker.floats[-1], first.shape)) + 0.5 * jnp.sin(first)

    return program


def fit(x: Array, shape: Sequence[int]) -> Array:
    """The elements of x, repeated or in part summed, in another shape."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    size = math.prod(shape)
    if x.size == size:
        return x.reshape(shape)
    if x.size > size:
        flat = jnp.pad(x.reshape(-1), (0, -x.size % size))
        summed = flat.reshape(-1, size).sum(0).reshape(shape)
        return summed / math.sqrt(x.size / size) if jnp.issubdtype(x.dtype, jnp.floating) else summed
    return x.reshape(-1)[jnp.arange(size) % x.size].reshape(shape)


# ------------------------------------------------------------------------------------------- elementwise

UNARY: list[Callable[[Array], Array]] = [
    jnp.tanh,
    jnp.sin,
    jnp.cos,
    lambda x: jnp.exp(-x * x),
    lambda x: jnp.log1p(x * x),
    lambda x: jnp.log(1.5 + jnp.sin(x)),
    lambda x: jnp.sqrt(1.0 + x * x),
    lambda x: lax.rsqrt(1.0 + x * x),
    lambda x: jnp.cbrt(2.0 + jnp.sin(x)),
    lambda x: jnp.expm1(0.5 * jnp.tanh(x)),
    lambda x: lax.integer_pow(x, 3) / (1.0 + x**2),
    lambda x: 1.0 / (2.0 + jnp.sin(x)),
    lambda x: jnp.arcsinh(x) + jnp.arctan(x),
    lambda x: jnp.arccosh(2.0 + x * x),
    lambda x: jnp.arctanh(0.5 * jnp.sin(x)),
    lambda x: jnp.arcsin(0.5 * jnp.sin(x)) - jnp.arccos(0.3 * jnp.cos(x)),
    lambda x: jnp.sinh(jnp.tanh(x)) + jnp.cosh(jnp.sin(x)),
    lambda x: jnp.tan(0.5 * jnp.sin(x)),
    lax.erf,
    lambda x: lax.erfc(x) + lax.erf_inv(0.5 * jnp.sin(x)),
    lambda x: lax.lgamma(2.0 + jnp.sin(x)),
    lambda x: lax.digamma(2.0 + jnp.sin(x)),
    lambda x: jnp.exp2(jnp.sin(x)) + jnp.logaddexp(x, 1.0),
    jax.nn.sigmoid,
    jax.nn.softplus,
    jax.nn.gelu,
    jax.nn.silu,
    jax.nn.elu,
    jax.nn.relu,
    jax.nn.leaky_relu,
    jax.nn.selu,
    jnp.abs,
    jnp.sinc,
    lambda x: -x,
    lambda x: jnp.clip(x, -0.7, 0.7),
    lambda x: lax.clamp(-0.5, x, 0.9),
    lambda x: x * 1.5,
    lambda x: jnp.nan_to_num(x),
    lambda x: x - lax.stop_gradient(jnp.max(x)),
    lambda x: jnp.real(jnp.exp(1j * x)) + jnp.imag(lax.complex(x, 2.0 * x) ** 2),
    lambda x: jnp.abs(lax.complex(x, 1.0 + x * x)),
]

BINARY: list[Callable[[Array, Array], Array]] = [
    jnp.add,
    jnp.subtract,
    jnp.multiply,
    lambda x, y: x / (1.0 + y * y),
    jnp.maximum,
    jnp.minimum,
    lambda x, y: jnp.arctan2(x, 1.5 + jnp.sin(y)),
    lambda x, y: jnp.power(1.0 + x * x, jnp.tanh(y)),
    lambda x, y: jnp.hypot(x, 1.0 + y * y),
    lambda x, y: jnp.where(x > y, jnp.sin(x), y),
    lambda x, y: lax.select_n(x < 0.1, x, jnp.broadcast_to(2.0 * y, x.shape)),
    lambda x, y: jnp.logaddexp(x, y),
    lambda x, y: jnp.remainder(x, 2.0 + jnp.sin(y)),
    lambda x, y: jnp.copysign(x, 1.0) - y,
    lambda x, y: jnp.where(jnp.isfinite(x) & (y > 0.0), x * y, x - y),
    lambda x, y: lax.stop_gradient(x) * y,
    lambda x, y: jnp.float_power(2.0 + jnp.sin(x), 1.5) - y,
]

FLAT: list[Callable[[Array], Array]] = [
    jnp.round,
    jnp.floor,
    jnp.ceil,
    lambda x: (x > 0.2).astype(x.dtype),
    lambda x: x.astype(jnp.int32).astype(x.dtype),
    lax.stop_gradient,
    lambda x: jax.nn.one_hot(jnp.argmax(x.reshape(-1)), 3, dtype=x.dtype),
    lambda x: jnp.argsort(x.reshape(-1)).astype(x.dtype),
]
"""What has no gradient."""


def unary(m: Maker) -> Array:
    return m.rng.choice(UNARY)(m.any())


def binary(m: Maker) -> Array:
    x = m.any()
    return m.rng.choice(BINARY)(x, fit(m.other(x), x.shape))


def broadcasts(m: Maker) -> Array | None:
    x = m.of_rank(2, 3)
    if x is None:
        return None
    return m.rng.choice(BINARY)(x, m.shaped(m.rng.choice([x.shape[-1:], (1, *x.shape[1:]), ()])))


def flat(m: Maker) -> Array:
    return m.rng.choice(FLAT)(2.0 * m.any())


def stopped(m: Maker) -> Array:
    x, y = lax.stop_gradient((jnp.sin(m.any()), m.any()))
    return m.shaped(x.shape) * x + fit(y, x.shape)


def straight_through(m: Maker) -> Array:
    x = m.any()
    return x + lax.stop_gradient(jnp.round(x) - x)


# ------------------------------------------------------------------------------------------ moves, reductions


def reshapes(m: Maker) -> Array:
    return m.shaped(m.rng.choice(SHAPES))


def transposes(m: Maker) -> Array | None:
    x = m.of_rank(2, 3)
    return None if x is None else jnp.transpose(x, m.rng.sample(range(x.ndim), x.ndim))


MOVES: list[Callable[[Maker, Array], Array]] = [
    lambda m, x: lax.rev(x, [m.rng.randrange(x.ndim)]),
    lambda m, x: jnp.roll(x, m.rng.randrange(-3, 4), m.rng.randrange(x.ndim)),
    lambda m, x: jnp.tile(x, 2),
    lambda m, x: jnp.repeat(x, 2, axis=m.rng.randrange(x.ndim)),
    lambda m, x: jnp.stack([x, jnp.sin(x)], axis=m.rng.randrange(x.ndim + 1)),
    lambda m, x: jnp.concatenate([x, 2.0 * x], axis=m.rng.randrange(x.ndim)),
    lambda m, x: jnp.split(jnp.concatenate([x, x * x], axis=0), 2, axis=0)[1],
    lambda m, x: jnp.expand_dims(x, m.rng.randrange(x.ndim + 1)),
    lambda m, x: jnp.squeeze(x[None]),
    lambda m, x: jnp.moveaxis(x, 0, -1),
    lambda m, x: x[..., ::-1] - jnp.flip(x, 0),
    lambda m, x: x[m.rng.randrange(x.shape[0])],
    lambda m, x: x[..., m.rng.randrange(x.shape[-1]) :],
    lambda m, x: lax.slice_in_dim(x, 0, x.shape[0], stride=2),
    lambda m, x: lax.broadcast_in_dim(x, (2, *x.shape), range(1, x.ndim + 1)),
    lambda m, x: lax.pad(x, x.dtype.type(0.5), [m.rng.choice([(1, 0, 0), (0, 2, 1), (0, -1, 1)])] * x.ndim),
    lambda m, x: jnp.pad(x, 1, mode=m.rng.choice(["edge", "wrap", "reflect"])) if min(x.shape) > 1 else x,
    lambda m, x: jnp.tril(jnp.outer(x, x)) + jnp.triu(jnp.outer(x, 1.0 - x), 1),
    lambda m, x: jnp.diag(x.reshape(-1)[:3]),
]
REDUCTIONS: list[Callable[..., Array]] = [
    jnp.sum,
    jnp.mean,
    jnp.max,
    jnp.min,
    jnp.var,
    lambda x, axis: jnp.prod(jnp.tanh(x) + 1.5, axis=axis),
    lambda x, axis: jnp.sqrt(1.0 + jnp.var(x, axis=axis)),
    lambda x, axis: jnp.linalg.norm(x + 3.0, axis=axis),
    lambda x, axis: jax.nn.logsumexp(x, axis=axis),
    lambda x, axis: jnp.sum(x, axis=axis, where=x > -0.3),
    lambda x, axis: jnp.median(x, axis=axis),
    lambda x, axis: jnp.ptp(x, axis=axis),
]
ALONG: list[Callable[..., Array]] = [
    jnp.cumsum,
    lambda x, axis: jnp.cumprod(1.2 + 0.3 * jnp.sin(x), axis=axis),
    lambda x, axis: lax.cummax(x, axis=axis),
    lambda x, axis: lax.cummin(x, axis=axis, reverse=True),
    lambda x, axis: lax.cumlogsumexp(x, axis=axis),
    lambda x, axis: jnp.sort(x, axis=axis),
    lambda x, axis: lax.sort((x, jnp.sin(x)), dimension=axis, num_keys=1)[1],
    lambda x, axis: jax.nn.softmax(x, axis=axis),
    lambda x, axis: jax.nn.log_softmax(x, axis=axis),
    lambda x, axis: jax.nn.standardize(x, axis=axis, epsilon=0.1),
    lambda x, axis: lax.associative_scan(jnp.add, x, axis=axis),
    lambda x, axis: jnp.take_along_axis(x, jnp.argsort(-x, axis=axis), axis=axis),
    lambda x, axis: jnp.diff(x, axis=axis, append=1.0),
    lambda x, axis: lax.top_k(jnp.moveaxis(x, axis, -1), 1)[0],
]


def moves(m: Maker) -> Array | None:
    x = m.of_rank(1, 2)
    return None if x is None else m.rng.choice(MOVES)(m, x)


def reductions(m: Maker) -> Array | None:
    x = m.of_rank(1, 2, 3)
    return None if x is None else m.rng.choice(REDUCTIONS)(x, axis=m.rng.choice([None, -1, 0]))


def along(m: Maker) -> Array | None:
    x = m.of_rank(1, 2, 3)
    return None if x is None else m.rng.choice(ALONG)(x, axis=m.rng.randrange(x.ndim))


def windows(m: Maker) -> Array:
    x = m.shaped((1, 4, 4, 2))
    size, strides = (1, 2, 2, 1), (1, m.rng.choice([1, 2]), 1, 1)
    padding = m.rng.choice(["VALID", "SAME"])
    if m.rng.random() < 0.5:
        return lax.reduce_window(x, -jnp.inf, lax.max, size, strides, padding)
    return lax.reduce_window(x, 0.0, lax.add, size, strides, padding)


def convolves(m: Maker) -> Array:
    groups, dilated = m.rng.choice([1, 2]), m.rng.choice([1, 2])
    paddings = [[(1, 0), (0, 2)], [(0, 0), (1, 1)], *(["SAME", "VALID"] if dilated == 1 else [])]
    return lax.conv_general_dilated(
        m.shaped((1, 2, 4, 3)),
        m.shaped((2, 2 // groups, 2, 2)),
        window_strides=(1, m.rng.choice([1, 2])),
        padding=m.rng.choice(paddings),
        lhs_dilation=(1, dilated),
        rhs_dilation=(m.rng.choice([1, 2]), 1),
        feature_group_count=groups,
    )


# ------------------------------------------------------------------------------------------------- products


def contracts(m: Maker) -> Array:
    """`dot_general` over any dimensions."""
    rng = m.rng
    batch, contracted = rng.randrange(2), rng.randrange(3)
    sizes = [rng.choice([2, 3]) for _ in range(batch + contracted)]
    mine = sizes + [2] * rng.randrange(2)
    yours = sizes + [3] * rng.randrange(2)
    a, b = (rng.sample(range(len(shape)), len(shape)) for shape in (mine, yours))
    x = jnp.transpose(m.shaped(mine), a)
    y = jnp.transpose(m.shaped(yours), b)
    where = [[order.index(i) for i in range(batch + contracted)] for order in (a, b)]
    numbers = (
        (tuple(where[0][batch:]), tuple(where[1][batch:])),
        (tuple(where[0][:batch]), tuple(where[1][:batch])),
    )
    return lax.dot_general(x, y, numbers) / 2.0


def einsums(m: Maker) -> Array:
    spec = m.rng.choice(["ij,jk->ik", "ij,ij->i", "ij,kj->", "ij->ji", "ij,jk,kl->il", "ii->i", "ij,j->i"])
    ranks = [len(part) for part in spec.split("->")[0].split(",")]
    return jnp.einsum(spec, *[m.shaped((3, 3)[:rank]) for rank in ranks]) / 2.0


def _positive(m: Maker) -> Array:
    a = jnp.tanh(m.shaped((3, 3)))
    return a @ a.T + 2.0 * jnp.eye(3, dtype=a.dtype)


def algebra(m: Maker) -> Array:
    p, b = _positive(m), m.shaped((3, 2))
    return m.rng.choice(
        [
            lambda: jnp.linalg.inv(p),
            lambda: jnp.linalg.cholesky(p),
            lambda: jnp.linalg.solve(p, b),
            lambda: jnp.linalg.slogdet(p)[1],
            lambda: jnp.linalg.det(p) / 10.0,
            lambda: jax.scipy.linalg.solve_triangular(jnp.tril(p), b, lower=True),
            lambda: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(p), True), b),
            lambda: jnp.linalg.eigvalsh(p + jnp.diag(jnp.arange(3.0, dtype=p.dtype))),
            lambda: jnp.linalg.qr(p)[1] ** 2,
            lambda: jnp.linalg.svd(p + jnp.diag(jnp.arange(3.0, dtype=p.dtype)), compute_uv=False),
            lambda: jax.scipy.linalg.expm(0.2 * p),
            lambda: jnp.linalg.matrix_power(p, 3) / 30.0,
        ]
    )()


# ------------------------------------------------------------------------------------------------- integers

INTEGERS: list[Callable[[Array], Array]] = [
    lambda n: n * 3 + 1,
    lambda n: n % 5,
    lambda n: n // 2 - 1,
    lambda n: (n & 6) | (n << 1),
    lambda n: (n ^ 3) >> 1,
    lambda n: lax.population_count(n) - lax.clz(n),
    lambda n: jnp.abs(n) + jnp.cumsum(n),
    lambda n: jnp.sort(n)[::-1],
    lambda n: jnp.clip(n, -4, 4),
    lambda n: jnp.where(n > 1, -n, n),
    lambda n: jnp.bitwise_not(n) % 7,
    lambda n: n**2 % 11,
    lambda n: n.astype(jnp.uint8).astype(jnp.int32),
]


def integers(m: Maker) -> Array | None:
    return m.rng.choice(INTEGERS)(m.rng.choice(m.ints)) if m.ints else None


def indices(m: Maker) -> Array:
    x = m.any().reshape(-1)
    return m.rng.choice([jnp.argmax, jnp.argsort, lambda x: jnp.round(x).astype(jnp.int32)])(x).reshape(-1)


def floats_of_integers(m: Maker) -> Array | None:
    if not m.ints:
        return None
    x = m.any()
    return fit(m.rng.choice(m.ints).astype(x.dtype) / 8.0, x.shape) * x


def _index(m: Maker, size: int, count: int = 3) -> Array:
    n = m.rng.choice(m.ints) if m.ints else jnp.arange(count)
    return fit(n, (count,)) % size


def gathers(m: Maker) -> Array | None:
    x = m.of_rank(1, 2, 3)
    if x is None:
        return None
    i = _index(m, x.shape[0])
    return m.rng.choice(
        [
            lambda: x[i],
            lambda: jnp.take(x, i, axis=0, mode="clip"),
            lambda: x[i, ..., None],
            lambda: jnp.take(x, i[:2], axis=-1, mode="wrap"),
            lambda: lax.dynamic_index_in_dim(x, i[0], 0),
            lambda: lax.dynamic_slice_in_dim(x, i[0], max(1, x.shape[0] - 1), 0),
            lambda: x.at[i].get(mode="fill", fill_value=0.25),
            lambda: x[jnp.stack([i, i[::-1]])],
        ]
    )()


def scatters(m: Maker) -> Array | None:
    x = m.of_rank(1, 2)
    if x is None:
        return None
    i, v = _index(m, x.shape[0]), m.shaped((3, *x.shape[1:]))
    return m.rng.choice(
        [
            lambda: x.at[i[0]].set(v[0]),
            lambda: x.at[i].add(v),
            lambda: x.at[0].mul(1.0 + v[0] ** 2),
            lambda: x.at[i[0]].max(v[0]),
            lambda: x.at[0].min(v[0]),
            lambda: x.at[-1].divide(2.0 + jnp.sin(v[0])),
            lambda: lax.dynamic_update_slice_in_dim(x, v[:1], i[0], 0),
            lambda: jax.ops.segment_sum(v, i, num_segments=x.shape[0]) + x,
            lambda: x.at[i + 1].add(v, mode="drop"),
        ]
    )()


def randoms(m: Maker) -> Array:
    x, key = m.any(), m.draw()
    return m.rng.choice(
        [
            lambda: jax.random.normal(key, x.shape, x.dtype) * x,
            lambda: jax.random.uniform(key, x.shape, x.dtype, -1.0, 2.0) + x,
            lambda: jnp.where(jax.random.bernoulli(key, 0.7, x.shape), x / 0.7, 0.1),
            lambda: x * jax.random.randint(key, x.shape, 1, 4).astype(x.dtype),
            lambda: jax.random.permutation(key, x.reshape(-1)),
            lambda: jax.random.gumbel(key, x.shape, x.dtype) * 0.1 + x,
            lambda: jax.random.truncated_normal(key, -1.0, 1.0, x.shape, x.dtype) + x,
            lambda: jax.nn.one_hot(jax.random.categorical(key, x.reshape(-1)), 3, dtype=x.dtype),
            lambda: jax.random.normal(jax.random.split(key, 3)[1], (), x.dtype) + x,
        ]
    )()


# --------------------------------------------------------------------------------------------- control flow


def scans(m: Maker) -> Array:
    f, c, xs, w = m.sub(), m.shaped((2,)), m.shaped((3, 2)), m.any()
    reverse, stops = m.rng.random() < 0.3, m.rng.random() < 0.2

    def body(carry: Any, x: Array) -> Any:
        h, count = carry
        h = lax.stop_gradient(h) if stops else h
        h = f(h, x, w)
        return (h, count + 1), (jnp.sin(h), count)

    (h, n), (ys, _) = lax.scan(body, (c, jnp.int32(0)), xs, reverse=reverse)
    return jnp.concatenate([ys, h[None]]) + n.astype(h.dtype) / 8.0


def maps(m: Maker) -> Array:
    f, w = m.sub(2), m.any()
    return lax.map(lambda row: f(row, w), m.shaped((2, 3)))


def fori(m: Maker) -> Array:
    f, x, w = m.sub(2), m.any(), m.any()
    return lax.fori_loop(0, m.rng.choice([1, 3]), lambda i, h: f(h, w) + i.astype(h.dtype) / 4.0, x)


def whiles(m: Maker) -> Array:
    """A loop of unknown length, through which JAX has no reverse mode: stopped."""
    f, (x, w) = m.sub(2), lax.stop_gradient((m.any(), m.any()))

    def body(state: Any) -> Any:
        i, h = state
        return i + 1, f(h, w)

    n, h = lax.while_loop(lambda s: (s[0] < 4) & (jnp.sum(jnp.abs(s[1])) < 9.0), body, (jnp.int32(0), x))
    return h * m.shaped(h.shape) + n.astype(h.dtype) / 8.0


def conds(m: Maker) -> Array:
    f, g, x, y = m.sub(2), m.sub(2), m.any(), m.any()
    held = m.rng.random() < 0.3
    return lax.cond(
        jnp.sum(y) > 0.1, lambda x, y: f(x, y), lambda x, y: lax.stop_gradient(x) if held else g(x, y), x, y
    )


def switches(m: Maker) -> Array:
    branches = [m.sub(1), m.sub(2), lambda x, y: jnp.sin(x) * 0.5]
    x, y = m.any(), m.any()
    return lax.switch(_index(m, 4, 1)[0], branches, x, y)


def jits(m: Maker) -> Array:
    return jax.jit(m.sub(2))(m.any(), m.any())


def remats(m: Maker) -> Array:
    return jax.checkpoint(m.sub(2))(m.any(), m.any())


def vmaps(m: Maker) -> Array:
    f, x, y = m.sub(2), m.shaped((2, 3)), m.any()
    return jax.vmap(f, in_axes=(m.rng.choice([0, 1]), None), out_axes=m.rng.choice([0, 1]))(x, y)


def custom_jvps(m: Maker) -> Array:
    slope, honest = m.rng.choice([0.0, 0.5, 2.0]), m.honest

    @jax.custom_jvp
    def f(x: Array, y: Array) -> Array:
        return jnp.sin(x) * jnp.cos(y)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        if honest:
            return f(x, y), jnp.cos(x) * jnp.cos(y) * dx - jnp.sin(x) * jnp.sin(y) * dy
        return f(x, y), slope * jnp.cos(x) * dx + 0.3 * dy * jnp.tanh(y)

    x = m.any()
    return f(x, fit(m.other(x), x.shape)) + 0.1 * x


def custom_vjps(m: Maker) -> Array:
    gives, honest = m.rng.random() < 0.5, m.honest

    @jax.custom_vjp
    def f(x: Array, y: Array) -> Array:
        return jnp.tanh(x) * y

    def backward(kept: Any, g: Array) -> Any:
        x, y = kept
        if honest:
            return g * y / jnp.cosh(x) ** 2, g * jnp.tanh(x)
        return g * jnp.cos(x) * y, g * jnp.sin(x) if gives else None

    f.defvjp(lambda x, y: (f(x, y), (x, y)), backward)
    x = m.any()
    return f(x, fit(m.other(x), x.shape)) + 0.1 * x


def grads(m: Maker) -> Array:
    """A gradient within the program."""
    f, x, y = m.sub(2), m.any(), m.any()
    return jax.grad(lambda x, y: jnp.sum(f(x, y) ** 2))(x, y)


def jvps(m: Maker) -> Array:
    f, x, y = m.sub(2, without=[custom_vjps]), m.any(), m.any()
    return jax.jvp(lambda x: f(x, y), (x,), (fit(m.any(), x.shape),))[1]


def solves(m: Maker) -> Array:
    a, b = _positive(m), m.shaped((3,))
    return lax.custom_linear_solve(
        lambda x: a @ x, b, lambda matvec, b: jnp.linalg.solve(a, b), symmetric=True
    )


SIMPLE: list[Make] = [unary, unary, unary, binary, binary, broadcasts, flat, stopped, straight_through]
MOVED: list[Make] = [reshapes, transposes, moves, moves, reductions, along, along, windows, convolves]
PRODUCTS: list[Make] = [contracts, contracts, einsums, algebra]
INDEXED: list[Make] = [integers, indices, floats_of_integers, gathers, gathers, scatters, scatters]
NESTED: list[Make] = [scans, maps, fori, whiles, conds, switches, jits, remats, vmaps, grads, jvps]
CUSTOM: list[Make] = [custom_jvps, custom_vjps, solves]
OPS = SIMPLE + MOVED + PRODUCTS + INDEXED + [randoms] + 2 * NESTED + CUSTOM


@dataclass(frozen=True)
class Program:
    """A loss of a tree of parameters, data, integers and a key.

    Attributes:
        seed: what makes it.
        ops: which operations it is made of.
        steps: how many.
        depth: how deep functions are nested in it.
        honest: whether derivatives that functions bring along are the true ones. JAX is not of one mind about
            the second derivative of others: in a scan, reverse mode puts the function itself in place of what
            brings them, so that ``grad(grad(f))`` is not ``jacfwd(jacfwd(f))``.
    """

    seed: int
    ops: tuple[Make, ...] = tuple(OPS)
    steps: int = 7
    depth: int = 2
    honest: bool = False

    def __call__(self, params: Any, data: Any, indices: Array, key: Array) -> Array:
        rng = random.Random(self.seed)
        floats = [params["w"], params["b"]["scale"], params["b"]["shift"], data[0], data[1]]
        floats = rng.sample(floats, 3 if rng.random() < 0.5 else 5)
        maker = Maker(rng, floats, [indices], key, self.depth, self.ops, self.honest)
        for _ in range(self.steps):
            maker.step()
        last = [maker.floats[-1], *rng.sample(maker.floats, 2)]
        return sum(jnp.mean(jnp.tanh(x) * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape)) for x in last)

    def example(self, dtype: Any = np.float32, draw: int = 0) -> tuple[Any, ...]:
        """Arguments; other numbers for every draw."""
        rng = np.random.default_rng((self.seed, draw))

        def normal(*shape: int) -> Any:
            return rng.normal(size=shape).astype(dtype)

        params = {"w": normal(2, 3), "b": {"scale": normal(), "shift": normal(3)}}
        ints = rng.integers(-3, 6, size=3).astype(np.int32)
        return params, [normal(3, 2), normal(2, 2)], ints, np.asarray([7, self.seed % 1000 + draw], np.uint32)
