"""JAX's own gradients against those of graphs that are loaded from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import stopgrad as sg
import stopgrad.jax as sgj
from helpers.edges import LINE, MATRICES, PAIRS, PLAIN, UNIT, VECTORS, Comparison, table, write

OF_ONE: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs,
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i0e": lax.bessel_i0e,
    "bessel_i1e": lax.bessel_i1e,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "clamp": lambda x: lax.clamp(jnp.float32(-1), x, jnp.float32(1)),
    "convert_element_type": lambda x: x.astype(jnp.float16).astype(jnp.float32),
    "copy": jnp.copy,
    "cos": lax.cos,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "exp": lax.exp,
    "exp2": lax.exp2,
    "expm1": lax.expm1,
    "floor": lax.floor,
    "integer_pow 2": lambda x: lax.integer_pow(x, 2),
    "integer_pow 3": lambda x: lax.integer_pow(x, 3),
    "integer_pow -1": lambda x: lax.integer_pow(x, -1),
    "integer_pow 0": lambda x: lax.integer_pow(x, 0),
    "lgamma": lax.lgamma,
    "log": lax.log,
    "log1p": lax.log1p,
    "logistic": lax.logistic,
    "neg": lax.neg,
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 10),
    "round": lax.round,
    "rsqrt": lax.rsqrt,
    "sign": lax.sign,
    "sin": lax.sin,
    "sinh": lax.sinh,
    "sqrt": lax.sqrt,
    "square": lax.square,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "stop_gradient": lax.stop_gradient,
    "pow 0": lambda x: x ** jnp.float32(0.0),
    "pow 0.5": lambda x: lax.pow(x, jnp.float32(0.5)),
    "pow 3": lambda x: lax.pow(x, jnp.float32(3.0)),
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "softplus": jax.nn.softplus,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "elu": jax.nn.elu,
    "selu": jax.nn.selu,
    "celu": jax.nn.celu,
    "leaky_relu": jax.nn.leaky_relu,
    "log_sigmoid": jax.nn.log_sigmoid,
    "hard_tanh": jax.nn.hard_tanh,
    "soft_sign": jax.nn.soft_sign,
    "mish": jax.nn.mish,
    "sinc": jnp.sinc,
    "logit": jax.scipy.special.logit,
    "xlogx": lambda x: jax.scipy.special.xlogy(x, x),
    "entr": jax.scipy.special.entr,
    "ndtri": jax.scipy.special.ndtri,
    "nan_to_num": jnp.nan_to_num,
    "where and sqrt": lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0),
}
"""Functions of one number, for each of the points of LINE."""
OF_TWO: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "atan2": lax.atan2,
    "div": lax.div,
    "max": lax.max,
    "min": lax.min,
    "mul": lax.mul,
    "pow": lax.pow,
    "rem": lax.rem,
    "sub": lax.sub,
    "logaddexp": jnp.logaddexp,
    "hypot": jnp.hypot,
    "select_n": lambda x, y: lax.select(x > y, x, y),
    "igamma": lax.igamma,
    "igammac": lax.igammac,
    "xlogy": jax.scipy.special.xlogy,
    "xlog1py": jax.scipy.special.xlog1py,
    "arctan2 of squares": lambda x, y: jnp.arctan2(x * x, y),
    "copysign": jnp.copysign,
    "fmod": jnp.fmod,
    "float_power": jnp.float_power,
}
"""Functions of two numbers, for each of the points of PAIRS, with respect to both."""
OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "cumsum": jnp.cumsum,
    "cumprod": jnp.cumprod,
    "cummax": lambda x: lax.cummax(x),
    "reduce_sum": jnp.sum,
    "cummin": lambda x: lax.cummin(x),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x),
    "reduce_prod": jnp.prod,
    "reduce_max": lambda x: jnp.max(x, initial=-jnp.inf),
    "reduce_min": lambda x: jnp.min(x, initial=jnp.inf),
    "sort": lambda x: jnp.sort(x) * jnp.arange(x.size),
    "top_k": lambda x: lax.top_k(x, min(2, x.size))[0],
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=0) if x.size else 0.0,
    "norm": jnp.linalg.norm,
    "softmax": lambda x: jax.nn.softmax(x) * jnp.arange(x.size),
    "log_softmax": lambda x: jax.nn.log_softmax(x)[:1],
    "std": jnp.std,
    "var": jnp.var,
    "mean": jnp.mean,
    "norm 1": lambda x: jnp.linalg.norm(x, 1) if x.size else 0.0,
    "norm inf": lambda x: jnp.linalg.norm(x, jnp.inf) if x.size else 0.0,
    "median": lambda x: jnp.median(x),
    "reduce_window_max": lambda x: _pooled(x, -jnp.inf, lax.max),
    "reduce_window_min": lambda x: _pooled(x, jnp.inf, lax.min),
    "reduce_window_sum": lambda x: _pooled(x, 0.0, lax.add),
    "scatter_max": lambda x: jnp.zeros(2).at[jnp.arange(x.size) % 2].max(x),
    "scatter_min": lambda x: jnp.zeros(2).at[jnp.arange(x.size) % 2].min(x),
    "scatter_mul": lambda x: jnp.ones(x.size).at[jnp.arange(x.size)].mul(x),
    "scatter_add": lambda x: jnp.zeros(2).at[jnp.arange(x.size) % 2].add(x) ** 2,
    "scatter": lambda x: jnp.zeros(9).at[jnp.arange(x.size)].set(x),
    "dot_general": lambda x: x @ x,
    "gather out of bounds": lambda x: jnp.take(x, jnp.array([0, 7]), mode="fill") if x.size else 0.0,
    "normalize": lambda x: (x / jnp.linalg.norm(x)) * jnp.arange(x.size),
    "polygamma": lambda x: lax.polygamma(jnp.float32(1), x),
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)) if x.size else 0.0,
}
"""Functions of a vector, at each of VECTORS."""
OF_MATRICES: dict[str, Callable[..., Any]] = {
    "cholesky": jnp.linalg.cholesky,
    "eigh values": lambda a: jnp.linalg.eigh(a)[0] * jnp.arange(3.0),
    "eigh vectors": lambda a: jnp.linalg.eigh(a)[1] ** 2 * jnp.arange(3.0),
    "svd values": lambda a: jnp.linalg.svd(a, compute_uv=False) * jnp.arange(3.0),
    "svd vectors": lambda a: jnp.linalg.svd(a)[0] ** 2 * jnp.arange(3.0),
    "qr": lambda a: jnp.linalg.qr(a)[1],
    "lu": lambda a: jax.scipy.linalg.lu(a)[2],
    "det": jnp.linalg.det,
    "slogdet": lambda a: jnp.linalg.slogdet(a)[1],
    "inv": jnp.linalg.inv,
    "custom_linear_solve": lambda a: jnp.linalg.solve(a, jnp.ones(3)),
    "triangular_solve": lambda a: jax.scipy.linalg.solve_triangular(a, jnp.ones(3)),
    "norm nuc": lambda a: jnp.linalg.norm(a, "nuc"),
    "pinv": jnp.linalg.pinv,
    "matrix_power": lambda a: jnp.linalg.matrix_power(a, 3),
    "expm": jax.scipy.linalg.expm,
}
"""Functions of a symmetric matrix, at each of MATRICES."""

NO_ROW = {
    "it moves elements, or is the identity": "device_put dynamic_update_slice layout_constraint name "
    "optimization_barrier pad reshard sharding_constraint split stack tile unstack",
    "it is linear in each operand": "add_any conv_general_dilated scatter-sub",
    "it is of complex numbers": "complex conj eig imag real",
    "what it makes has no gradient, or one of 0 everywhere": "argmax argmin eq_to le le_to mulhi not "
    "shift_left shift_right_logical xor",
    "it draws, or is of keys": "random_bits random_fold_in random_seed random_split random_unwrap "
    "random_wrap",
    "it holds a function, which is differentiated": "call_hi_primitive composite custom_vmap_call eval_jaxpr "
    "reduce remat2 while",
    "only derivatives of windows have it": "select_and_gather_add select_and_scatter_add",
    "its row is written apart": "regularized_incomplete_beta",
}
"""Primitives that no function above calls, by the reason."""


def called() -> set[str]:
    """The primitives that the functions call."""
    given = (OF_ONE, (LINE,)), (OF_TWO, PAIRS), (OF_SEVERAL, (PLAIN,)), (OF_MATRICES, (MATRICES["plain"],))
    found: set[str] = set()
    for rows, args in given:
        stack: list[Any] = [jax.make_jaxpr(f)(*map(jnp.asarray, args)) for f in rows.values()]
        while stack:
            x = stack.pop()
            if isinstance(x, (tuple, list)):
                stack += x
            for eqn in getattr(getattr(x, "jaxpr", x), "eqns", ()):
                found.add(eqn.primitive.name)
                stack += eqn.params.values()
    return found


def _pooled(x: Any, start: float, joined: Any) -> Any:
    return lax.reduce_window(x, start, joined, (2,), (1,), "SAME") if x.size else jnp.zeros(())


def comparisons() -> Iterator[tuple[str, Comparison]]:
    """All functions, with both gradients at their points; without what JAX itself refuses."""
    for name, one in _all():
        if one is not None:
            yield name, one


def _all() -> Iterator[tuple[str, Comparison | None]]:
    for name, f in OF_ONE.items():
        points = [f"{x:g}" for x in LINE]
        yield name, compared(f, (LINE,), points)
    for name, f in OF_TWO.items():
        points = [f"{x:g}, {y:g}" for x, y in zip(*PAIRS, strict=True)]
        yield name, compared(f, PAIRS, points)
    for name, f in OF_SEVERAL.items():
        for point, x in VECTORS.items():
            yield name, compared(f, (x,), [point])
    for name, f in OF_MATRICES.items():
        for point, a in MATRICES.items():
            yield name, compared(f, (a,), [point])
    yield (
        "regularized_incomplete_beta",
        compared(
            lambda x: lax.betainc(jnp.full(5, 2.0), jnp.full(5, 3.0), x), (UNIT,), [f"{x:g}" for x in UNIT]
        ),
    )


def compared(f: Callable[..., Any], args: tuple[Any, ...], points: list[str]) -> Comparison | None:
    """Both gradients of the sum of what a function returns; None if JAX computes none."""

    def loss(*xs: Any) -> Any:
        return jnp.sum(f(*xs))

    which = tuple(range(len(args)))
    try:
        gradients = jax.grad(loss, which)(*map(jnp.asarray, args))
    except (TypeError, ValueError, NotImplementedError):  # Of nothing, JAX computes no maximum.
        return None
    theirs = np.concatenate([np.ravel(g) for g in gradients])
    names = (
        points
        if len(points) == 1
        else [f"{p}, of {i}" if len(args) > 1 else p for i in which for p in points]
    )
    try:
        made = sg.grad(sgj.load(loss, *args), list(which))(*args)
    except sg.StopgradError as error:
        return Comparison(names, theirs, None, type(error).__name__)
    ours = np.concatenate(
        [np.ravel(np.zeros_like(x) if g is None else np.asarray(g)) for g, x in zip(made, args, strict=True)]
    )
    return Comparison(names, theirs, ours)


if __name__ == "__main__":
    write("JAX", table(comparisons()))
