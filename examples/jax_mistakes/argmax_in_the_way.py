"""A loss of the predicted class: argmax has no gradient.

Symptom: none
Seen in: google-deepmind/dm-haiku #442 ("Zero gradients after argmax"); pytorch/pytorch #1339.

The gradient of JAX is a zero like any other, and the optimizer takes a step of nothing. A loss of the logits
has a gradient, and so has the expectation under the softmax.
"""

import jax
import jax.numpy as jnp
import numpy as np

LEARNS = ("params.w", "params.b")


def broken(params, x, y):
    logits = jnp.tanh(x @ params["w"] + params["b"])
    predicted = jnp.argmax(logits, axis=-1)  # <- here
    return jnp.mean((predicted.astype(jnp.float32) - y) ** 2)


def cured(params, x, y):
    logits = jnp.tanh(x @ params["w"] + params["b"])
    expected = jax.nn.softmax(logits) @ jnp.arange(logits.shape[-1], dtype=jnp.float32)
    return jnp.mean((expected - y) ** 2)


def example():
    rng = np.random.default_rng(0)
    w, b, x = (rng.normal(size=s).astype("f4") for s in [(3, 2), 2, (4, 3)])
    return {"w": w, "b": b}, x, np.array([0, 1, 1, 0], "f4")
