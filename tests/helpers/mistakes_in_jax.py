"""The programs of the gallery with JAX's functions in place of this library's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from mistakes import Mistake


def in_jax(mistake: Mistake, name: str) -> Callable[..., Any]:
    """``broken`` or ``cured`` of a program, run by JAX."""
    code = compile(mistake.text.replace("import stopgrad as sg", ""), str(mistake.path), "exec")
    scope: dict[str, Any] = {"sg": FUNCTIONS}
    exec(code, scope)
    found: Callable[..., Any] = scope[name]
    return lambda *args: found(*jax.tree.map(jnp.asarray, args))


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns its value and what pulls a gradient back; None for an operand is 0."""
    made = jax.custom_vjp(lambda *args: f(*args)[0])

    def forward(*args: Any) -> Any:
        return f(*args)[0], args

    def backward(args: Any, g: Any) -> Any:
        found = f(*args)[1](g)
        found = found if isinstance(found, tuple) else (found,)
        return tuple([jnp.zeros_like(x) if d is None else d for x, d in zip(args, found, strict=True)])

    made.defvjp(forward, backward)
    return made


def while_loop(condition: Any, body: Any, state: Any, maximum_iterations: int) -> Any:
    """Unrolled: JAX differentiates no loop whose length is unknown."""
    for _ in range(maximum_iterations):
        state = body(*state)
    return state


def cosine_similarity(a: Any, b: Any, axis: int = -1) -> Any:
    return (a * b).sum(axis) / (jnp.linalg.norm(a, axis=axis) * jnp.linalg.norm(b, axis=axis))


def cross_entropy(labels: Any, logits: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)[:, 0]


FUNCTIONS = SimpleNamespace(
    stop_gradient=jax.lax.stop_gradient,
    straight_through=lambda hard, soft: jax.lax.stop_gradient(hard - soft) + soft,
    reverse_gradient=lambda x, s: jax.lax.stop_gradient((1.0 + s) * x) - s * x,
    custom_gradient=custom_gradient,
    grad=jax.grad,
    scan=jax.lax.scan,
    cond=jax.lax.cond,
    while_loop=while_loop,
    cast=lambda x, dtype: x.astype(dtype),
    concat=jnp.concatenate,
    split=jnp.split,
    clip=jnp.clip,
    one_hot=jax.nn.one_hot,
    softmax=lambda x, axis, name=None: jax.nn.softmax(x, axis),
    log_softmax=jax.nn.log_softmax,
    softplus=jax.nn.softplus,
    relu=jax.nn.relu,
    leaky_relu=jax.nn.leaky_relu,
    sigmoid=jax.nn.sigmoid,
    rsqrt=jax.lax.rsqrt,
    tanh=jnp.tanh,
    exp=jnp.exp,
    log=jnp.log,
    sqrt=jnp.sqrt,
    round=jnp.round,
    sign=jnp.sign,
    where=jnp.where,
    minimum=jnp.minimum,
    maximum=jnp.maximum,
    cosine_similarity=cosine_similarity,
    l2_normalize=lambda x, axis: x / jnp.linalg.norm(x, axis=axis, keepdims=True),
    sparse_softmax_cross_entropy_with_logits=cross_entropy,
    sigmoid_cross_entropy_with_logits=lambda y, x: jax.nn.softplus(x) - x * y,
    int32=jnp.int32,
    float64="float64",
)
