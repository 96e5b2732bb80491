"""Parameters frozen by the beginning of their names: the head is frozen, too.

Symptom: none
Seen in: google-deepmind/optax #477 (labels that do not match the tree); huggingface/transformers PR #15873
froze an encoder with a test that "didn't check what it was supposed to check".

`encoder` was to be frozen, and `encoder_head` begins like that.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.encoder_head.w",)
HELD = ("params.encoder.w",)


def freeze(params, prefix):
    def leaf(path, p):
        return lax.stop_gradient(p) if path[0].key.startswith(prefix) else p  # <- here

    return jax.tree_util.tree_map_with_path(leaf, params)


def frozen(params, names):
    return {name: lax.stop_gradient(p) if name in names else p for name, p in params.items()}


def loss(params, x, y):
    return ((jnp.tanh(x @ params["encoder"]["w"]) @ params["encoder_head"]["w"] - y) ** 2).mean()


def broken(params, x, y):
    return loss(freeze(params, "encoder"), x, y)


def cured(params, x, y):
    return loss(frozen(params, {"encoder"}), x, y)


def example():
    rng = np.random.default_rng(0)
    w, v, x, y = (rng.normal(size=s).astype("f4") for s in [(3, 2), (2, 2), (4, 3), (4, 2)])
    return {"encoder": {"w": w}, "encoder_head": {"w": v}}, x, y
