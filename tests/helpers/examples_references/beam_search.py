"""The likelihood of sentences, one word of one sentence after the other (Sutskever et al. 2014, eq. 1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from examples_references import Case, moved

START, END = 0, 1


def log_probability(params, sentence):
    h, before, ended, total = jnp.zeros(params["W"].shape[1]), START, False, 0.0
    for word in sentence:
        h = jnp.tanh(jnp.dot(params["W"].T, jnp.append(params["embedding"][before], h)))
        p = jax.nn.softmax(jnp.dot(h, params["out"]))[word]
        total += jnp.where(ended, 0.0, jnp.log(p))
        before, ended = word, ended | (word == END)
    return total


def loss(params, sentences):
    return -jnp.mean(jax.vmap(lambda sentence: log_probability(params, sentence))(sentences))


def arguments(example, rng):
    """Every word is said and read, and some sentences end."""
    words = np.array([[2, 1, 3, 1], [3, 0, 2, 4], [4, 0, 1, 1]], np.int32)
    return moved(example.init(rng, words=5, width=4), rng), words


CASES = {"loss": Case(loss, arguments)}
