"""Losses in JAX that make a NaN or infinity, each with a right twin that makes none.

The line at fault has the comment ``# here``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

X = np.array([0.0, 4.0], np.float32)
Z = np.zeros(3, np.float32)
BIG = np.array([100.0, 1.0], np.float32)
EYE = np.eye(2, dtype=np.float32)
APART = np.diag(np.array([1.0, 2.0], np.float32))


class Case(NamedTuple):
    """A loss that makes a NaN or infinity, and one that does not.

    Attributes:
        wrong, right: the losses.
        args: of both.
        where: where the wrong one makes it.
        pattern: which cure is told; None for none.
        fixed: the arguments of the right one, if they are others.
    """

    wrong: Callable[..., Any]
    right: Callable[..., Any]
    args: tuple[Any, ...]
    where: str
    pattern: str | None
    fixed: tuple[Any, ...] | None = None


def root(x: Any) -> Any:
    return jnp.sum(jnp.sqrt(x))  # here


def root_right(x: Any) -> Any:
    return jnp.sum(jnp.sqrt(x + 1e-12))


def norm(x: Any) -> Any:
    return jnp.linalg.norm(x)  # here


def norm_right(x: Any) -> Any:
    return jnp.sqrt(jnp.sum(x * x) + 1e-12)


def choice(x: Any) -> Any:
    y = jnp.sqrt(x)  # here
    return jnp.sum(jnp.where(x > 0, y, 0.0))


def choice_right(x: Any) -> Any:
    safe = jnp.where(x > 0, x, 1.0)
    return jnp.sum(jnp.where(x > 0, jnp.sqrt(safe), 0.0))


def quotient_chosen(x: Any) -> Any:
    y = 1.0 / x  # here
    return jnp.sum(jnp.where(x > 0, y, 0.0))


def quotient_chosen_right(x: Any) -> Any:
    safe = jnp.where(x > 0, x, 1.0)
    return jnp.sum(jnp.where(x > 0, 1.0 / safe, 0.0))


def logarithm(x: Any) -> Any:
    return jnp.sum(jnp.log(x))  # here


def logarithm_right(x: Any) -> Any:
    return jnp.sum(jnp.log(x + 1e-12))


def negative(x: Any) -> Any:
    return jnp.sum(jnp.log(x - 1.0))  # here


def quotient(x: Any) -> Any:
    return jnp.sum(x / jnp.sum(x))  # here


def quotient_right(x: Any) -> Any:
    return jnp.sum(x / (jnp.sum(x) + 1e-6))


def softmax(x: Any) -> Any:
    e = jnp.exp(x)  # here
    return (e / jnp.sum(e))[0]


def softmax_right(x: Any) -> Any:
    return jax.nn.softmax(x)[0]


def power(x: Any) -> Any:
    return jnp.sum(x**0.5)  # here


def power_right(x: Any) -> Any:
    return jnp.sum((x + 1e-12) ** 0.5)


def reciprocal(x: Any) -> Any:
    return jnp.sum(x**-1)  # here


def reciprocal_right(x: Any) -> Any:
    return jnp.sum((x + 1e-3) ** -1)


def angle(x: Any) -> Any:
    return jnp.sum(jnp.arccos(x))  # here


def angle_right(x: Any) -> Any:
    return jnp.sum(jnp.arccos(jnp.clip(x, -1 + 1e-6, 1 - 1e-6)))


def direction(x: Any) -> Any:
    return jnp.arctan2(x[0], x[1])  # here


def direction_right(x: Any) -> Any:
    return jnp.arctan2(x[0], x[1] + 1.0)


def vectors(a: Any) -> Any:
    _, v = jnp.linalg.eigh(a)  # here
    return jnp.sum(v[:, 0] ** 2 * jnp.arange(2.0))


def eigenvalues(a: Any) -> Any:
    return jnp.sum(jnp.linalg.eigvalsh(a) ** 2)


def singular(a: Any) -> Any:
    u, _, _ = jnp.linalg.svd(a)  # here
    return jnp.sum(u[:, 0] * jnp.arange(2.0))


def inverse(a: Any) -> Any:
    return jnp.sum(jnp.linalg.inv(a))  # here


def factor(a: Any) -> Any:
    return jnp.sum(jnp.linalg.cholesky(a))  # here


def deviation(x: Any) -> Any:
    return jnp.std(x)  # here


def deviation_right(x: Any) -> Any:
    return jnp.sqrt(jnp.var(x) + 1e-6)


def of_one(x: Any) -> Any:
    return jnp.var(x[:1], ddof=1)  # here


def of_two(x: Any) -> Any:
    return jnp.var(x[:2], ddof=1)


def masked(x: Any) -> Any:
    return jnp.sum(0.0 * jnp.log(x))  # here


def masked_right(x: Any) -> Any:
    return jnp.sum(0.0 * jnp.log(x + 1.0))


def half(x: Any) -> Any:
    h = x.astype(jnp.float16) * 60000.0  # here
    return jnp.sum(h * 2.0).astype(jnp.float32)


def half_right(x: Any) -> Any:
    return jnp.sum(x * 60000.0 * 2.0)


def scanned(x: Any) -> Any:
    def step(carry: Any, t: Any) -> Any:
        return carry + jnp.log(t), carry  # here

    return jax.lax.scan(step, 0.0, x)[0]


def scanned_right(x: Any) -> Any:
    def step(carry: Any, t: Any) -> Any:
        return carry + jnp.log(t + 1.0), carry

    return jax.lax.scan(step, 0.0, x)[0]


def scanned_backwards(x: Any) -> Any:
    def step(carry: Any, t: Any) -> Any:
        return carry + jnp.sqrt(t), carry  # here

    return jax.lax.scan(step, 0.0, x, reverse=True)[0]


def looped(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return y * 1e20  # here

    return jnp.sum(jax.lax.fori_loop(0, 3, body, x))


def looped_right(x: Any) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, 3, lambda i, y: y * 2.0, x))


def until(x: Any) -> Any:
    def body(state: Any) -> Any:
        i, y = state
        return i + 1, jnp.exp(y)  # here

    with_stop = jax.lax.stop_gradient(x)
    _, y = jax.lax.while_loop(lambda state: state[0] < 4, body, (0, with_stop))
    return jnp.sum(y * x)


def until_right(x: Any) -> Any:
    with_stop = jax.lax.stop_gradient(x)
    _, y = jax.lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, jnp.tanh(s[1])), (0, with_stop))
    return jnp.sum(y * x)


def branched(x: Any) -> Any:
    def yes(y: Any) -> Any:
        return jnp.sum(jnp.sqrt(y))  # here

    return jax.lax.cond(x[1] > 0, yes, lambda y: jnp.sum(y), x)


def branched_right(x: Any) -> Any:
    return jax.lax.cond(x[1] < 0, lambda y: jnp.sum(jnp.sqrt(y)), lambda y: jnp.sum(y), x)


def batched(x: Any) -> Any:
    def one(t: Any) -> Any:
        return jnp.sqrt(t)  # here

    return jnp.sum(jax.vmap(one)(x))


def batched_right(x: Any) -> Any:
    return jnp.sum(jax.vmap(lambda t: jnp.sqrt(t + 1.0))(x))


@jax.jit
def _jitted(x: Any) -> Any:
    return jnp.sqrt(x)  # here


def jitted(x: Any) -> Any:
    return jnp.sum(_jitted(x))


def jitted_right(x: Any) -> Any:
    return jnp.sum(_jitted(x + 1.0))


def remembered(x: Any) -> Any:
    @jax.checkpoint
    def block(y: Any) -> Any:
        return jnp.sin(jnp.sqrt(y))  # here

    return jnp.sum(block(x))


def remembered_right(x: Any) -> Any:
    return jnp.sum(jax.checkpoint(lambda y: jnp.sin(jnp.sqrt(y + 1.0)))(x))


@jax.custom_vjp
def _ruled(x: Any) -> Any:
    return jnp.sqrt(x)


def _ruled_forward(x: Any) -> Any:
    return jnp.sqrt(x), x


def _ruled_backward(x: Any, g: Any) -> Any:
    return (g / x,)


_ruled.defvjp(_ruled_forward, _ruled_backward)


def ruled(x: Any) -> Any:
    return jnp.sum(_ruled(x))  # here


def ruled_right(x: Any) -> Any:
    return jnp.sum(_ruled(x + 1.0))


@jax.custom_jvp
def _pushed(x: Any) -> Any:
    return jnp.sqrt(x)


@_pushed.defjvp
def _pushed_rule(primals: Any, tangents: Any) -> Any:
    return jnp.sqrt(primals[0]), tangents[0] / primals[0]


def pushed(x: Any) -> Any:
    return jnp.sum(_pushed(x))  # here


def pushed_right(x: Any) -> Any:
    return jnp.sum(_pushed(x + 1.0))


def outside(x: Any) -> Any:
    return jnp.sum(jnp.take(x, jnp.array([0, 7])))  # here


def outside_right(x: Any) -> Any:
    return jnp.sum(jnp.take(x, jnp.array([0, 7]), mode="clip"))


def all_masked(x: Any) -> Any:
    scores = jnp.where(x > 1e9, x, -jnp.inf)
    return jnp.sum(jax.nn.softmax(scores))  # here


def all_masked_right(x: Any) -> Any:
    scores = jnp.where(x > 0.0, x, -jnp.inf)
    return jnp.sum(jax.nn.softmax(scores) * jnp.arange(2.0))


def entropy(x: Any) -> Any:
    p = jax.nn.softmax(x)
    return -jnp.sum(p * jnp.log(p))  # here


def entropy_right(x: Any) -> Any:
    return -jnp.sum(jax.nn.softmax(x) * jax.nn.log_softmax(x))


def zero_power(x: Any, p: Any) -> Any:
    return jnp.sum(x**p)  # here


def zero_power_right(x: Any, p: Any) -> Any:
    return jnp.sum((x + 1e-6) ** p)


def inverse_error(x: Any) -> Any:
    return jnp.sum(jax.scipy.special.erfinv(x))  # here


def inverse_error_right(x: Any) -> Any:
    return jnp.sum(jax.scipy.special.erfinv(jnp.clip(x, -0.999, 0.999)))


def partly(x: Any) -> Any:
    return functools.reduce(lambda a, b: a + b, [jnp.log1p(t) for t in x])  # here


ONES = np.array([0.5, 1.0], np.float32)
CASES: dict[str, Case] = {
    "root at 0": Case(root, root_right, (X,), "gradient", "gradient of a root at 0"),
    "norm at 0": Case(norm, norm_right, (Z,), "gradient", "gradient of a norm at 0"),
    "where and sqrt": Case(choice, choice_right, (X,), "gradient", "branch not taken"),
    "where and division": Case(quotient_chosen, quotient_chosen_right, (X,), "gradient", "branch not taken"),
    "log 0": Case(logarithm, logarithm_right, (X,), "forward", "logarithm of 0"),
    "log of a negative number": Case(
        negative, logarithm, (X,), "forward", "logarithm of a negative number", (X + 2,)
    ),
    "0 / 0": Case(quotient, quotient_right, (Z,), "forward", "0 divided by 0"),
    "softmax written out": Case(softmax, softmax_right, (BIG,), "forward", "overflow of exp"),
    "power at 0": Case(power, power_right, (X,), "gradient", "gradient of a power at 0"),
    "negative power of 0": Case(reciprocal, reciprocal_right, (X,), "forward", "negative power of 0"),
    "acos at 1": Case(angle, angle_right, (ONES,), "gradient", "edge of the domain"),
    "atan2 at the origin": Case(
        direction, direction_right, (Z,), "gradient", "gradient of an angle at the origin"
    ),
    "eigh, equal": Case(vectors, vectors, (EYE,), "gradient", "equal eigenvalues", (APART,)),
    "eigh, values alone": Case(vectors, eigenvalues, (EYE,), "gradient", "equal eigenvalues"),
    "svd, equal": Case(singular, singular, (EYE,), "gradient", "equal eigenvalues", (APART,)),
    "inverse": Case(inverse, inverse, (0 * EYE,), "forward", "singular matrix", (EYE,)),
    "cholesky": Case(factor, factor, (-EYE,), "forward", "no positive definite matrix", (EYE,)),
    "std of alike": Case(
        deviation, deviation_right, (Z,), "gradient", "gradient of a standard deviation of 0"
    ),
    "variance of one": Case(of_one, of_two, (X,), "forward", None),
    "0 * inf": Case(masked, masked_right, (X,), "forward", "logarithm of 0"),
    "float16": Case(half, half_right, (X,), "forward", "overflow of float16"),
    "scan": Case(scanned, scanned_right, (X,), "forward", "logarithm of 0"),
    "scan backwards": Case(scanned_backwards, scanned_right, (X,), "gradient", "gradient of a root at 0"),
    "fori_loop": Case(looped, looped_right, (X,), "forward", "overflow"),
    "while_loop": Case(until, until_right, (X,), "forward", "overflow of exp"),
    "cond": Case(branched, branched_right, (X,), "gradient", "gradient of a root at 0"),
    "vmap": Case(batched, batched_right, (X,), "gradient", "gradient of a root at 0"),
    "jit": Case(jitted, jitted_right, (X,), "gradient", "gradient of a root at 0"),
    "checkpoint": Case(remembered, remembered_right, (X,), "gradient", "gradient of a root at 0"),
    "custom_vjp": Case(ruled, ruled_right, (X,), "gradient", "division by 0"),
    "custom_jvp": Case(pushed, pushed_right, (X,), "gradient", "division by 0"),
    "index out of bounds": Case(outside, outside_right, (X,), "forward", "an index out of bounds"),
    "all masked": Case(all_masked, all_masked_right, (X,), "forward", None),
    "p log p": Case(
        entropy, entropy_right, (np.array([0.0, 200.0], np.float32),), "forward", "logarithm of 0"
    ),
    "0 ** p": Case(
        zero_power, zero_power_right, (X, np.float32(0.5)), "gradient", "gradient of a power at 0"
    ),
    "erfinv at 1": Case(inverse_error, inverse_error_right, (ONES,), "forward", "edge of the domain"),
    "unrolled log1p": Case(partly, partly, (X - 1,), "forward", "logarithm of 0", (X,)),
}
