"""Vaswani et al. 2017, eq. 1 and section 3; pre-norm as in Xiong et al. 2020; one head at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient as sg
from jax.scipy.special import erf

from examples_references import Case, moved

KEY = np.array([3, 5], np.uint32)


def norm(x):
    x = x - jnp.mean(x, -1, keepdims=True)
    return x / jnp.sqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5)


def attention(layer, x, heads=4):
    length, width = x.shape
    each = width // heads
    before = jnp.tril(jnp.ones((length, length)))
    found = []
    for head in range(heads):
        columns = slice(head * each, (head + 1) * each)
        q, k, v = (jnp.dot(x, layer["qkv"][:, i * width : (i + 1) * width][:, columns]) for i in range(3))
        weights = before * jnp.exp(jnp.dot(q, k.T) / np.sqrt(each))
        found.append(jnp.dot(weights / jnp.sum(weights, 1, keepdims=True), v))
    return jnp.dot(jnp.concatenate(found, 1), layer["out"])


def mlp(layer, x):
    h = jnp.dot(x, layer["up"])
    return jnp.dot(h * 0.5 * (1.0 + erf(h / np.sqrt(2.0))), layer["down"])


def loss(params, tokens, read=lambda e: e, say=lambda e: e, key=None):
    embedding, total = params["embedding"], 0.0
    batch, length = tokens.shape[0], tokens.shape[1] - 1
    for b in range(batch):
        x = read(embedding)[tokens[b, :-1]] + params["places"][:length]
        for i, layer in enumerate(params["layers"]):
            for j, part in enumerate((attention, mlp)):
                made = part(layer, norm(x))
                if key is not None:
                    shape = (batch, *made.shape)
                    kept = jax.random.bernoulli(jax.random.fold_in(key, 2 * i + j), np.float32(0.9), shape)
                    made = kept[b] * made / 0.9
                x = x + made
        p = jax.nn.softmax(jnp.dot(norm(x), say(embedding).T))
        total -= jnp.sum(jnp.log(p[jnp.arange(length), tokens[b, 1:]]))
    return total / (batch * length)


def arguments(example, rng):
    params = moved(example.init(rng, letters=5, width=8, length=6), rng)
    return params, rng.integers(5, size=(2, 6), dtype=np.int32)


CASES = {
    "loss": Case(loss, arguments, tolerance=1e-9),
    "loss, learning to say": Case(
        lambda params, tokens: loss(params, tokens, read=sg),
        arguments,
        tolerance=1e-9,
        call=lambda example: lambda params, tokens: example.loss(params, tokens, tied="say"),
    ),
    "loss, learning to read, with dropout": Case(
        lambda params, tokens: loss(params, tokens, say=sg, key=KEY),
        arguments,
        tolerance=1e-9,
        call=lambda example: lambda params, tokens: example.loss(params, tokens, KEY, tied="read"),
    ),
}
