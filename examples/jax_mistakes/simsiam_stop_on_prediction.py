"""SimSiam with its stop on the prediction instead of the target: the predictor never learns.

Symptom: inert
Seen in: google-deepmind/optax PR #1531 (losses that leave the stop to their caller); which side it belongs
on is asked in PatrickHua/SimSiam #39 and lightly-ai/lightly #559.

The value is the same wherever the stop stands, and the encoder still gets a gradient: through the target,
which is what the stop was to prevent (Chen & He 2021, arXiv 2011.10566, algorithm 1).
"""

import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.predictor", "view1")
HELD = ("view2",)


def cosine(a, b):
    return jnp.sum(a * b, -1) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1))


def broken(params, view1, view2):
    p = jnp.tanh(view1 @ params["encoder"]) @ params["predictor"]
    z = jnp.tanh(view2 @ params["encoder"])
    return -cosine(lax.stop_gradient(p), z).mean()  # <- here


def cured(params, view1, view2):
    p = jnp.tanh(view1 @ params["encoder"]) @ params["predictor"]
    z = jnp.tanh(view2 @ params["encoder"])
    return -cosine(p, lax.stop_gradient(z)).mean()


def example():
    rng = np.random.default_rng(0)
    w, v, view1, view2 = (rng.normal(size=s).astype("f4") for s in [(3, 2), (2, 2), (5, 3), (5, 3)])
    return {"encoder": w, "predictor": v}, view1, view2
