"""GPT-2 of `full_size_models.py` and AdamW, written in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def _norm(p: Mapping[str, Any], name: str, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _linear(p: Mapping[str, Any], name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _attention(p: Mapping[str, Any], name: str, x: Any, heads: int) -> Any:
    apart = lambda y: y.reshape(*x.shape[:2], heads, -1)
    q, k, v = (apart(_linear(p, f"{name}.{one}", x)) for one in "qkv")
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return _linear(p, f"{name}.out", y.reshape(x.shape))


def gpt2(p: Mapping[str, Any], words: Any) -> Any:
    """The logits of the next words."""
    x = p["words.weight"][words] + p["places.weight"][: words.shape[1]]
    layers = 1 + max(int(name.split(".")[1]) for name in p if name.startswith("blocks"))
    heads = max(1, x.shape[-1] // 64) if x.shape[-1] > 64 else 2
    for i in range(layers):
        x = x + _attention(p, f"blocks.{i}.attention", _norm(p, f"blocks.{i}.norm1", x), heads)
        y = jax.nn.gelu(_linear(p, f"blocks.{i}.wide", _norm(p, f"blocks.{i}.norm2", x)), approximate=True)
        x = x + _linear(p, f"blocks.{i}.narrow", y)
    return _norm(p, "norm", x) @ p["words.weight"].T


def training(case: str, arrays: Mapping[str, Any], rate: float) -> tuple[Any, Callable[..., Any]]:
    """The first state, and a step from state, words and labels to the state and the loss."""
    assert case == "gpt2"
    p = {name: jnp.asarray(array) for name, array in arrays.items()}
    zeros = jax.tree.map(jnp.zeros_like, p)

    def loss_of(p: Any, words: Any, labels: Any) -> Any:
        logits = jax.nn.log_softmax(gpt2(p, words))
        return -jnp.take_along_axis(logits, labels[..., None], -1).mean()

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, words: Any, labels: Any) -> Any:
        p, m, v, count = state
        loss, g = jax.value_and_grad(loss_of)(p, words, labels)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        length, scale = rate / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        move = lambda p, m, v: p * (1 - rate * 0.01) - length * m / (jnp.sqrt(v) / scale + 1e-8)
        return (jax.tree.map(move, p, m, v), m, v, count), loss

    return (p, zeros, jax.tree.map(jnp.zeros_like, p), jnp.zeros(())), step
