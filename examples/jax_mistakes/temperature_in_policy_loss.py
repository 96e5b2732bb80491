"""SAC's policy loss without the stop on its temperature: the sum of the losses moves it twice.

Symptom: leak
Seen in: young-geng/JaxCQL #3, which asks why dopamine stops the temperature there and JaxCQL need not: it
differentiates each loss by its own parameters.

Whoever adds the losses up and differentiates once needs the stops.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LEARNS = ("params.policy",)
HELD = ("params.log_alpha",)


def broken(params, states, values):
    log_p = jax.nn.log_softmax(states @ params["policy"])
    alpha = jnp.exp(params["log_alpha"])  # <- here
    return (jnp.exp(log_p) * (alpha * log_p - values)).sum(-1).mean()


def cured(params, states, values):
    log_p = jax.nn.log_softmax(states @ params["policy"])
    alpha = jnp.exp(lax.stop_gradient(params["log_alpha"]))
    return (jnp.exp(log_p) * (alpha * log_p - values)).sum(-1).mean()


def example():
    rng = np.random.default_rng(0)
    policy, states, values = (rng.normal(size=s).astype("f4") for s in [(3, 2), (4, 3), (4, 2)])
    return {"policy": policy, "log_alpha": np.float32(-1.0)}, states, values
