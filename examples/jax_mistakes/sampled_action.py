"""An action that is drawn, and taken for a differentiable function of the logits.

Symptom: none
Seen in: jax-ml/jax #17556 ("gradient is zero when use jax.random.categorical") and, of `bernoulli`, #11606.

What is drawn is an index. Learn through the log-probability of what was drawn (REINFORCE), or through a
relaxation of it (Gumbel-softmax).
"""

import jax
import jax.numpy as jnp
import numpy as np

LEARNS = ("logits",)


def broken(logits, key, costs):
    actions = jax.random.categorical(key, logits, shape=(16,))  # <- here
    return jnp.mean((actions.astype(jnp.float32) - costs[actions]) ** 2)


def cured(logits, key, costs):
    actions = jax.random.categorical(key, logits, shape=(16,))
    losses = (actions.astype(jnp.float32) - costs[actions]) ** 2
    return jnp.mean(jax.nn.log_softmax(logits)[actions] * losses)


def example():
    rng = np.random.default_rng(0)
    return rng.normal(size=3).astype("f4"), jax.random.key(0), rng.normal(size=3).astype("f4")
